"""The main thread's session of a test, and emptying the database after a test that committed."""

from __future__ import annotations

import threading
import time
from functools import cache
from typing import Any

from django.db import OperationalError, connection
from django.db.backends.signals import connection_created
from psycopg import sql

KEPT = {"django_content_type", "auth_permission"}
"""What migrations fill: no test changes it."""
SMALL_BYTES = 256 * 1024
"""A larger table is given back to the disk, so that no later test reads through what is gone."""


PATIENCE_S = 30.0


def lift_limits() -> None:
    """Let transactions of the main thread be idle for as long as they like, from its next connection on.

    A test's own transaction is open for all of the test: a busy machine that computes or waits must not end it.
    """
    connection_created.connect(_lift)


def _lift(*, connection: Any, **_: Any) -> None:
    if threading.current_thread() is threading.main_thread():
        connection.connection.execute("SET idle_in_transaction_session_timeout = 0")


def empty_tables(*_: Any) -> None:
    """Leave the database as the migrations made it, once every transaction that still runs has ended.

    Stands in for Django's flush, which makes each table's files anew, filled or not, and then all permissions: that
    took longer than most tests.
    """
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            with connection.cursor() as cursor:
                cursor.execute(_statement())
        except OperationalError:  # what still runs holds a lock for too long, or wanted ours the other way round
            if time.monotonic() > deadline:
                raise
        else:
            return


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
