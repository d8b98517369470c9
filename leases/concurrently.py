"""Index changes for migrations that run while everything else does. All need ``atomic = False``.

Processes of two versions run side by side during an upgrade, so no migration may hold a table that is in use. Built and
dropped *concurrently*, an index costs its readers and writers nothing. Such a migration is no transaction: one that was
broken off is run again, so every step here may find its work done, or half done.

Django's own ``AlterField`` with another ``db_index`` must not touch such a table: it drops and validates the foreign
key anew, and drops every unique index with a condition that begins with the column.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import OperationalError, migrations, models
from django.db.migrations.operations.base import Operation

LOCK_NOT_AVAILABLE = "55P03"
TRIES = 30
"""How often a short lock is asked for, a second apart."""


def patient(*steps: Operation) -> list[Operation]:
    """These steps without the session's limits on time: they wait for whoever is at work, and nobody waits for them."""
    begin = "SET statement_timeout = 0; SET lock_timeout = 0"
    end = "RESET statement_timeout; RESET lock_timeout"
    return [migrations.RunSQL(begin, end), *steps, migrations.RunSQL(end, begin)]


def add_index(model: str, index: models.Index) -> list[Operation]:
    """Build an index that the model declares from now on."""
    return [
        migrations.RunSQL(_drop(index.name), migrations.RunSQL.noop),
        AddIndexConcurrently(model_name=model, index=index),
    ]


def remove_index(model: str, name: str) -> list[Operation]:
    """Drop an index that the model declares no more."""
    return [
        RemoveIndexConcurrently(model_name=model, name=name),
        migrations.RunSQL(migrations.RunSQL.noop, _drop(name)),  # on the way back, before it is built
    ]


def without_own_index(model: str, name: str, field: models.Field[Any, Any], indexes: Mapping[str, str]) -> Operation:
    """The field has no index of its own any more: drop those, touch nothing else.

    `indexes`: names as the database has them, and for the way back over what each is, table and columns.
    """
    return migrations.SeparateDatabaseAndState(
        database_operations=[
            migrations.RunSQL(_drop(index), [_drop(index), f'CREATE INDEX CONCURRENTLY "{index}" ON {on}'])
            for index, on in indexes.items()
        ],
        state_operations=[migrations.AlterField(model_name=model, name=name, field=field)],
    )


def unique_over(model: str, table: str, name: str, *, columns: str, before: str, fields: Sequence[str]) -> Operation:
    """Let a unique constraint have its columns in another order; there is no moment without it.

    The new index is built beside the old one, then takes its place: for that the table is locked for a moment, and
    nobody is kept waiting for that lock for longer than a second at a time.
    """

    def swap(new: str) -> Any:
        def work(_apps: Any, schema_editor: Any) -> None:
            schema_editor.execute(_drop(f"{name}_new"))
            schema_editor.execute(f'CREATE UNIQUE INDEX CONCURRENTLY "{name}_new" ON "{table}" ({new})')
            _in_a_moment(
                schema_editor,
                f'ALTER TABLE "{table}" DROP CONSTRAINT IF EXISTS "{name}",'
                f' ADD CONSTRAINT "{name}" UNIQUE USING INDEX "{name}_new"',
            )

        return work

    return migrations.SeparateDatabaseAndState(
        database_operations=[migrations.RunPython(swap(columns), swap(before))],
        state_operations=[
            migrations.RemoveConstraint(model_name=model, name=name),
            migrations.AddConstraint(
                model_name=model, constraint=models.UniqueConstraint(fields=list(fields), name=name)
            ),
        ],
    )


def unique_there(name: str, on: str) -> Operation:
    """See that this unique index is there: what the models declare and some databases lost. Fails on duplicates."""

    def work(_apps: Any, schema_editor: Any) -> None:
        with schema_editor.connection.cursor() as cursor:
            cursor.execute("SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)", [f'"{name}"'])
            found = cursor.fetchone()
        if found == (True,):
            return
        schema_editor.execute(_drop(name))
        schema_editor.execute(f'CREATE UNIQUE INDEX CONCURRENTLY "{name}" ON {on}')

    return migrations.RunPython(work, migrations.RunPython.noop)


def _drop(name: str) -> str:
    return f'DROP INDEX CONCURRENTLY IF EXISTS "{name}"'


def _in_a_moment(schema_editor: Any, statement: str) -> None:
    schema_editor.execute("SET lock_timeout = 1000")
    for left in range(TRIES - 1, -1, -1):
        try:
            schema_editor.execute(statement)
        except OperationalError as error:
            if left == 0 or getattr(error.__cause__, "sqlstate", None) != LOCK_NOT_AVAILABLE:
                raise
            time.sleep(1)
        else:
            break
    schema_editor.execute("SET lock_timeout = 0")
