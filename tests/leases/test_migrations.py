"""Migrations of tables in use: nobody is kept waiting, one that broke off is run again, no declared index is lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from django.apps import apps
from django.db import connection, connections, migrations
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader

from tests.waiting import wait_until

OURS = ("fred", "leases", "backends", "placements", "reconciliation", "tenants_api")
OLD = [
    ("backends", "0002_takes_calls"),
    ("leases", "0004_event_request_id"),
    ("placements", "0005_operation_request_id"),
    ("reconciliation", "0002_operator_action"),
]
NEW = [("leases", None), ("placements", None), ("reconciliation", None)]
ALIAS = "upgraded"
LOCKING = (
    migrations.AddIndex,
    migrations.RemoveIndex,
    migrations.AddConstraint,
    migrations.RemoveConstraint,
    migrations.AlterField,
    migrations.AlterUniqueTogether,
)
"""Of a table in use these lock it for as long as they take, or drop more than they name."""
LEASE = "01890a5d-ac96-774b-bcce-b302099a8057"
ROWS = f"""
    INSERT INTO leases_lease (uuid, epoch, attempts, chain_height, news_height, items, meta_hash, phase, reason,
                              chain_reason, last_error)
    VALUES ('{LEASE}', 0, 0, -1, -1, '[]', '', 'observed', '', '', '');
"""
WRITES = (
    (
        f"INSERT INTO leases_chainevent (chain_id, lease_uuid, type, height, tx_hash, tenant)"
        f" VALUES ('c', '{LEASE}', %s, 1, '', '')"
    ),
    f"INSERT INTO leases_statusevent (lease_uuid, status, error) VALUES ('{LEASE}', %s, '')",
    f"UPDATE leases_lease SET reason = %s WHERE uuid = '{LEASE}'",
    (
        f"INSERT INTO reconciliation_decisionrecord (lease_uuid, decision, phase, reason, detail)"
        f" VALUES ('{LEASE}', %s, '', '', '{{}}')"
    ),
    "UPDATE placements_operation SET error = %s",
    "UPDATE leases_chainaction SET last_error = %s",
)


def dsn(name: str) -> str:
    where = connections["default"].settings_dict
    return f"postgres://{where['USER']}:{where['PASSWORD']}@{where['HOST']}:{where['PORT']}/{name}"


@pytest.fixture
def upgraded(django_db_setup, django_db_blocker) -> Iterator[str]:
    """A database of an earlier version, with a lease in it; its address."""
    default = connections["default"].settings_dict
    name = f"{default['NAME']}_upgraded"
    with psycopg.connect(dsn(default["NAME"]), autocommit=True) as server:
        server.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        server.execute(f'CREATE DATABASE "{name}"')
        connections.settings[ALIAS] = {**default, "NAME": name}
        try:
            with django_db_blocker.unblock():
                migrate(OLD)
                with psycopg.connect(dsn(name), autocommit=True) as made:
                    made.execute(ROWS)
                yield dsn(name)
        finally:
            del connections.settings[ALIAS]
            server.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def migrate(targets: list[tuple[str, str | None]]) -> None:
    """Bring the upgraded database to these migrations; None is the newest."""
    try:
        executor = MigrationExecutor(connections[ALIAS])
        newest = dict(executor.loader.graph.leaf_nodes())
        executor.migrate([(app, name or newest[app]) for app, name in targets])
    finally:
        connections[ALIAS].close()
        del connections[ALIAS]


@contextmanager
def migrating(targets: list[tuple[str, str | None]]) -> Iterator[threading.Thread]:
    """The same on a thread; what it raised is raised at the end of the block."""
    failed: list[BaseException] = []

    def work() -> None:
        try:
            migrate(targets)
        except BaseException as error:  # noqa: BLE001 - raised again below
            failed.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        thread.join(60)
    if failed:
        raise failed[0]
    assert not thread.is_alive()


def lost(database: psycopg.Connection | None = None) -> set[str]:
    """Names of indexes and constraints that our models declare and the database does not have, or not whole."""
    statement = """
        SELECT relname FROM pg_class JOIN pg_index ON indexrelid = pg_class.oid WHERE indisvalid
         UNION SELECT conname FROM pg_constraint WHERE convalidated
    """
    if database is not None:
        found = {row[0] for row in database.execute(statement)}
    else:
        with connection.cursor() as cursor:
            cursor.execute(statement)
            found = {row[0] for row in cursor.fetchall()}
    models = [model for model in apps.get_models() if model._meta.app_label in {app for app, _ in NEW}]
    return {one.name for model in models for one in (*model._meta.indexes, *model._meta.constraints)} - found


@pytest.mark.django_db
def test_the_database_has_every_index_and_constraint_that_the_models_declare():
    """A unique index decides what happens once: one that a migration dropped by accident is missed by nobody else."""
    assert lost() == set()


@pytest.mark.django_db
def test_a_session_that_migrated_has_its_limits_again():
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('statement_timeout'), current_setting('lock_timeout')")
        assert cursor.fetchone() == ("15s", "2s")


def test_an_upgrade_keeps_no_reader_and_no_writer_waiting(upgraded):
    """OP-129: whoever reads for long holds the migration up, not those who write meanwhile."""
    for step in (NEW[:1], NEW):
        with psycopg.connect(upgraded) as reader, psycopg.connect(upgraded, autocommit=True) as writer:
            writer.execute("SET lock_timeout = 500")
            for table in ("lease", "chainevent", "chainaction", "statusevent"):
                reader.execute(f"SELECT count(*) FROM leases_{table}")
            for table in ("placements_operation", "placements_placement", "reconciliation_decisionrecord"):
                reader.execute(f"SELECT count(*) FROM {table}")
            with migrating(step):
                wait_until(lambda: writer.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone())
                for statement in WRITES:
                    writer.execute(statement, [f"during {step[-1][0]}"])
                reader.commit()
    with psycopg.connect(upgraded) as database:
        assert lost(database) == set()


def test_an_upgrade_that_broke_off_is_run_again(upgraded):
    """What it left half done is in nobody's way."""
    with psycopg.connect(upgraded, autocommit=True) as database:
        database.execute("CREATE INDEX operation_due_open ON placements_operation (backend)")
        database.execute("CREATE UNIQUE INDEX chain_event_once_new ON leases_chainevent (id)")
        database.execute("DROP INDEX lease_phase")
        migrate(NEW)
        assert lost(database) == set()
        rows = database.execute("SELECT indexdef FROM pg_indexes WHERE indexname LIKE 'chain_event_once%'").fetchall()
        assert [row[0].partition(" USING ")[2] for row in rows] == ["btree (lease_uuid, chain_id, type)"]


def indexes(database: psycopg.Connection) -> dict[str, str]:
    """All whole ones, with what they are over."""
    rows = database.execute(
        "SELECT indexname, indexdef FROM pg_indexes JOIN pg_index ON indexrelid = indexname::regclass"
        " WHERE indisvalid AND schemaname = 'public'"
    )
    return dict(rows.fetchall())


def test_the_way_back_leads_to_the_indexes_that_were_there_also_when_it_broke_off(upgraded):
    back = [one for one in OLD if one[0] in dict(NEW)]
    with psycopg.connect(upgraded, autocommit=True) as database:
        before = indexes(database)
        migrate(NEW)
        assert indexes(database) != before
        database.execute("CREATE INDEX lease_phase ON leases_lease (uuid)")
        database.execute("CREATE INDEX leases_statusevent_lease_uuid_896d5c45 ON leases_statusevent (id)")
        migrate(back)
        assert indexes(database) == before


def test_a_database_that_lost_unique_indexes_gets_them_back_and_one_that_cannot_have_them_says_why(upgraded):
    unique = {"chain_action_ack_xor_reject", "operation_one_open", "operation_one_restore_per_source"}
    migrate([("leases", "0007_lease_fillfactor"), ("placements", "0006_fewer_indexes")])
    with psycopg.connect(upgraded, autocommit=True) as database:
        for name in unique:
            database.execute(f"DROP INDEX {name}")
        assert lost(database) == unique
        wish = f"""
            INSERT INTO leases_chainaction (lease_uuid, verb, reason, state, last_error, epoch, attempts)
            VALUES ('{LEASE}', %s, '', 'queued', '', 0, 0)
        """
        for verb in ("ack", "reject"):
            database.execute(wish, [verb])
        with pytest.raises(Exception, match=f"(?s)chain_action_ack_xor_reject.*{LEASE}"):
            migrate(NEW)
        database.execute("DELETE FROM leases_chainaction WHERE verb = 'reject'")
        migrate(NEW)
        assert lost(database) == set()


def test_no_migration_locks_a_table_in_use():
    loader = MigrationLoader(None)
    found = []
    for (app, name), migration in sorted(loader.disk_migrations.items()):
        if app not in OURS:
            continue
        made = {one.name_lower for one in migration.operations if isinstance(one, migrations.CreateModel)}
        for one in migration.operations:
            steps = one.database_operations if isinstance(one, migrations.SeparateDatabaseAndState) else [one]
            found += [
                f"{app}/{name}: {step.describe()}"
                for step in steps
                if type(step) in LOCKING and getattr(step, "model_name", "").lower() not in made
            ]
    assert found == []
