"""Emptying the database after a test that committed."""

from __future__ import annotations

from functools import cache
from typing import Any

from django.db import connection
from psycopg import sql

KEPT = {"django_content_type", "auth_permission"}
"""What migrations fill: no test changes it."""
SMALL_BYTES = 256 * 1024
"""A larger table is given back to the disk, so that no later test reads through what is gone."""


def empty_tables(*_: Any) -> None:
    """Leave the database as the migrations made it, once every transaction that still runs has ended.

    Stands in for Django's flush, which makes each table's files anew, filled or not, and then all permissions: that
    took longer than most tests.
    """
    with connection.cursor() as cursor:
        cursor.execute(_statement())


@cache
def _statement() -> sql.Composed:
    """Lock all first, as TRUNCATE does; triggers stay silent, so that order and append-only tables do not matter."""
    names = sorted(set(connection.introspection.django_table_names(only_existing=True, include_views=False)) - KEPT)
    tables = [sql.Identifier(name) for name in names]
    body = sql.SQL(
        """
        DECLARE
            name regclass;
        BEGIN
            SET LOCAL session_replication_role = replica;
            LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE;
            FOREACH name IN ARRAY ARRAY[{names}]::regclass[] LOOP
                IF pg_relation_size(name) > {small} THEN
                    EXECUTE format('TRUNCATE %s CASCADE', name);
                ELSE
                    EXECUTE format('DELETE FROM %s', name);
                END IF;
            END LOOP;
        END
        """
    ).format(
        tables=sql.SQL(", ").join(tables),
        names=sql.SQL(", ").join(sql.Literal(table.as_string()) for table in tables),
        small=sql.Literal(SMALL_BYTES),
    )
    return sql.SQL("DO {}").format(sql.Literal(body.as_string()))
