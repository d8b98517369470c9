"""Rows have an end: what is old and settled is deleted, a chunk at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

import structlog
from django.conf import settings
from django.db import connection

log = structlog.get_logger(__name__)

CHUNK = 5000
MAX_CHUNKS = 200
"""A run deletes at most a million rows of a table; the next goes on."""
STUBS_FOR = timedelta(days=7)
MOST_REQUESTS = 1_000_000
"""Rows of tenants' requests, and of their keys, that are kept at most, however young; the oldest go first."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Rows of a table that are kept for a time: which of them are old (SQL over the alias ``r``), and for how long."""

    table: str
    key: str
    old: str
    age: timedelta


def kept() -> Iterator[Kept]:
    """Every table that grows with time, children before their parents."""
    house = settings.HOUSE
    news, history, settled = house.fred_retention_news, house.fred_retention_history, house.fred_retention_settled
    yield Kept("placements_callback", "id", "r.applied_at IS NOT NULL AND r.received_at < now() - %s", news)
    # Looks ask what a lease's subscribers were told last, and so do subscribers who come back late.
    yield Kept(
        "leases_statusevent",
        "id",
        "r.at < now() - %s"
        " AND EXISTS (SELECT FROM leases_statusevent AS n WHERE n.lease_uuid = r.lease_uuid AND n.id > r.id)",
        news,
    )
    yield Kept("leases_chainevent", "id", "r.seen_at < now() - %s", history)
    yield Kept("reconciliation_decisionrecord", "id", "r.at < now() - %s", history)
    yield Kept("reconciliation_sweepbackend", "id", "r.started_at < now() - %s", history)
    yield Kept(
        "reconciliation_sweep",
        "id",
        "r.state <> 'running' AND r.finished_at < now() - %s"
        " AND NOT EXISTS (SELECT FROM reconciliation_sweepbackend AS b WHERE b.sweep_id = r.id)",
        history,
    )
    yield Kept("placements_operation", "id", "r.settled_at < now() - %s", settled)
    # Those of a live lease are kept for repeats of their keys, a bounded number of them.
    yield Kept(
        "placements_maintenancecommand",
        "id",
        "r.finished_at < now() - %s"
        " AND EXISTS (SELECT FROM leases_lease AS l WHERE l.uuid = r.lease_uuid AND l.chain_state >= 3)",
        settled,
    )
    yield Kept("placements_teardown", "id", "r.state = 'done' AND r.done_at < now() - %s", settled)
    yield Kept(
        "leases_chainaction", "id", "r.state IN ('done', 'moot', 'failed') AND r.decided_at < now() - %s", settled
    )
    yield Kept(
        "leases_chaintx",
        "id",
        "r.state IN ('included', 'failed', 'dropped') AND r.decided_at < now() - %s"
        " AND NOT EXISTS (SELECT FROM leases_chainaction AS a WHERE a.tx_id = r.id)",
        history,
    )
    yield Kept("leases_payload", "id", "r.delete_after < now() - %s", timedelta())
    yield Kept("tenants_api_tenantrequest", "id", "r.at < now() - %s", history)
    # A stub that never became a lease of ours, and that nothing refers to.
    yield Kept(
        "leases_lease",
        "uuid",
        "r.chain_state IS NULL AND r.first_seen_at < now() - %s"
        + "".join(
            f" AND NOT EXISTS (SELECT FROM {table} AS x WHERE x.lease_uuid = r.uuid)"
            for table in (
                "placements_callback",
                "placements_operation",
                "placements_placement",
                "placements_teardown",
                "leases_payload",
                "leases_chainaction",
                "leases_chainevent",
                "leases_statusevent",
                "reconciliation_decisionrecord",
            )
        ),
        STUBS_FOR,
    )


def old_rows() -> dict[str, int]:
    """Delete what is older than its time; return how many rows of each table went."""
    gone: dict[str, int] = {}
    for one in kept():
        for _ in range(MAX_CHUNKS):
            deleted = _delete(one)
            gone[one.table] = gone.get(one.table, 0) + deleted
            if deleted < CHUNK:
                break
    log.info("old rows deleted", **{table: number for table, number in gone.items() if number})
    return gone


def spent_tokens() -> int:
    """Delete used tokens that have expired by themselves."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            DELETE FROM tenants_api_usedtoken WHERE key IN (
                SELECT key FROM tenants_api_usedtoken WHERE expires_at < now() LIMIT %s)
            """,
            [CHUNK * 10],
        )
        return int(cursor.rowcount)


def request_rows() -> int:
    """Delete keys of requests whose answers are no longer kept, and what there is too much of."""
    gone = 0
    with connection.cursor() as cursor:
        cursor.execute(
            """
            DELETE FROM tenants_api_idempotencykey WHERE id IN (
                SELECT id FROM tenants_api_idempotencykey WHERE expires_at < now() LIMIT %s FOR UPDATE SKIP LOCKED)
            """,
            [CHUNK * 10],
        )
        gone += cursor.rowcount
        for table in ("tenants_api_idempotencykey", "tenants_api_tenantrequest"):
            cursor.execute(
                f"DELETE FROM {table} WHERE id IN (SELECT id FROM {table}"  # noqa: S608 - constants of this module
                f" WHERE id <= (SELECT max(id) FROM {table}) - %s ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED)",
                [MOST_REQUESTS, CHUNK * 10],
            )
            gone += cursor.rowcount
    return int(gone)


def _delete(one: Kept) -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            f"DELETE FROM {one.table} WHERE {one.key} IN ("  # noqa: S608 - constants of this module
            f"SELECT r.{one.key} FROM {one.table} AS r WHERE {one.old} LIMIT {CHUNK} FOR UPDATE SKIP LOCKED)",
            [one.age],  # type: ignore[list-item]
        )
        return int(cursor.rowcount)
