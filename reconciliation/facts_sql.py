"""The reads of a look: one statement per kind of row for the whole batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection


def rows(sql: str, *params: Any) -> list[tuple[Any, ...]]:
    """Run one read; return all its rows."""
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        found: list[tuple[Any, ...]] = cursor.fetchall()
        return found


def now() -> datetime:
    """The database's time at this moment; read once per batch and passed on."""
    at: datetime = rows("SELECT clock_timestamp()")[0][0]
    return at


def leases(uuids: Sequence[UUID]) -> Iterator[tuple[Any, ...]]:
    """Lease rows of the batch."""
    yield from rows(
        """
        SELECT uuid, tenant, provider_uuid, chain_state, chain_height, absent_height,
               COALESCE(items->0->>'sku', ''), meta_hash, created_at,
               news_height, touched_at, phase, reason
          FROM leases_lease WHERE uuid = ANY(%s)
        """,
        list(uuids),
    )


def standing(claimed: Mapping[UUID, int]) -> list[UUID]:
    """Those of these leases (uuid to the epoch of their claim) to which nothing happened since, in uuid order."""
    found = rows(
        """
        SELECT l.uuid FROM unnest(%s::uuid[], %s::bigint[]) AS c(uuid, epoch)
          JOIN leases_lease AS l ON l.uuid = c.uuid AND l.epoch = c.epoch ORDER BY l.uuid
        """,
        list(claimed),
        list(claimed.values()),
    )
    return [row[0] for row in found]


def outdated(uuids: Sequence[UUID]) -> list[UUID]:
    """Those of these leases, not known to be over, whose stored chain facts are older than their news."""
    found = rows(
        """
        SELECT uuid FROM leases_lease
         WHERE uuid = ANY(%s) AND (chain_state IS NULL OR (chain_state < 3 AND chain_height < news_height))
        """,
        list(uuids),
    )
    return [row[0] for row in found]


def is_held(task: str) -> bool:
    """Whether somebody holds this periodic task now."""
    return bool(rows("SELECT 1 FROM fred_periodictask WHERE name = %s AND due_at > now()", task))


def fresh(uuids: Sequence[UUID]) -> set[UUID]:
    """Those of these leases whose stored chain facts are as new as their news."""
    found = rows(
        """
        SELECT uuid FROM leases_lease
         WHERE uuid = ANY(%s) AND chain_state IS NOT NULL AND chain_height >= news_height
        """,
        list(uuids),
    )
    return {row[0] for row in found}


KINDS = {
    "open_operations": ("placements_operation", "settled_at IS NULL"),
    "histories": ("placements_operation", "settled_at IS NOT NULL"),
    "placements": ("placements_placement", "TRUE"),
    "actions": ("leases_chainaction", "TRUE"),
    "teardowns": ("placements_teardown", "TRUE"),
    "callbacks": ("placements_callback", "applied_at IS NULL"),
    "statuses": ("leases_statusevent", "TRUE"),
    "listed": ("placements_provision", "TRUE"),
    "retained": ("placements_retention", "TRUE"),
    "commands": ("placements_maintenancecommand", "finished_at IS NULL"),
}
"""What :func:`present` tells apart: rows of which table, and which of them."""

# The array comes out of a query: its length is unknown to the planner, which goes through an index then. With its
# values in sight, or with an EXISTS for each lease, it would rather read whole tables. The leases come back as text: to
# make a UUID of each anew would cost more than the statement.
_PRESENT = f"""
    WITH wanted AS (SELECT %s::uuid[] AS leases)
    SELECT kind, string_agg(lease::text, ',') FROM ({
    " UNION ".join(
        f"SELECT '{kind}', lease_uuid FROM {table}"
        f" WHERE lease_uuid = ANY((SELECT leases FROM wanted)::uuid[]) AND {which}"
        for kind, (table, which) in KINDS.items()
    )
}) AS found(kind, lease) GROUP BY kind
"""


def present(uuids: Sequence[UUID]) -> dict[str, list[UUID]]:
    """For each kind of row, those of these leases that have any: a new lease has none, and nothing is read for it."""
    found = {kind: set(leases.split(",")) for kind, leases in rows(_PRESENT, list(uuids))}
    names = [(uuid, str(uuid)) for uuid in uuids]
    return {kind: [uuid for uuid, name in names if name in found.get(kind, ())] for kind in KINDS}


def open_operations(uuids: Sequence[UUID]) -> list[tuple[Any, ...]]:
    """The open operation of each lease that has one."""
    return rows(
        """
        SELECT lease_uuid, id, backend, state, created_at, valid_until, due_at, first_dispatched_at,
               last_dispatched_at, on_wire_until, dispatch_count, refusal, error, kind
          FROM placements_operation WHERE lease_uuid = ANY(%s) AND settled_at IS NULL
        """,
        list(uuids),
    )


def histories(uuids: Sequence[UUID]) -> list[tuple[Any, ...]]:
    """Per lease: settled operations that failed since the last success, when the last one ended, and how."""
    return rows(
        """
        SELECT o.lease_uuid,
               count(*) FILTER (WHERE o.state <> 'succeeded' AND o.settled_at > COALESCE(s.last_success, '-infinity')),
               max(o.settled_at),
               (array_agg(o.refusal ORDER BY o.settled_at DESC))[1],
               bool_or(o.state = 'succeeded')
          FROM placements_operation AS o
          LEFT JOIN LATERAL (SELECT max(settled_at) AS last_success FROM placements_operation AS p
                              WHERE p.lease_uuid = o.lease_uuid AND p.state = 'succeeded') AS s ON TRUE
         WHERE o.lease_uuid = ANY(%s) AND o.settled_at IS NOT NULL
         GROUP BY o.lease_uuid
        """,
        list(uuids),
    )


def placements(uuids: Sequence[UUID]) -> list[tuple[Any, ...]]:
    """The placement of each lease that has one."""
    return rows(
        """
        SELECT lease_uuid, backend, status, set_at, lifecycle_id FROM placements_placement
         WHERE lease_uuid = ANY(%s) AND backend IS NOT NULL
        """,
        list(uuids),
    )


def actions(uuids: Sequence[UUID]) -> list[tuple[Any, ...]]:
    """All chain actions of the leases."""
    return rows(
        """
        SELECT lease_uuid, verb, state, reason, valid_until, due_at, last_error FROM leases_chainaction
         WHERE lease_uuid = ANY(%s)
        """,
        list(uuids),
    )


def teardowns(uuids: Sequence[UUID]) -> list[tuple[Any, ...]]:
    """All teardowns of the leases."""
    return rows(
        """
        SELECT lease_uuid, backend, state, due_at, done_at, last_error FROM placements_teardown
         WHERE lease_uuid = ANY(%s)
        """,
        list(uuids),
    )


def unapplied_callbacks(uuids: Sequence[UUID]) -> list[tuple[Any, ...]]:
    """Callbacks that no look has used, oldest first."""
    return rows(
        """
        SELECT lease_uuid, id, selector_id, status, error, retained, received_at FROM placements_callback
         WHERE lease_uuid = ANY(%s) AND applied_at IS NULL ORDER BY id
        """,
        list(uuids),
    )


def commands(uuids: Sequence[UUID]) -> list[tuple[Any, ...]]:
    """Maintenance commands of which it is not known how they went, oldest first."""
    return rows(
        """
        SELECT lease_uuid, id, kind, backend, state, admitted_at, due_at, first_dispatched_at, on_wire_until,
               valid_until, refusal, payload_sha256
          FROM placements_maintenancecommand
         WHERE lease_uuid = ANY(%s) AND finished_at IS NULL ORDER BY lease_uuid, admitted_at
        """,
        list(uuids),
    )


def payloads(uuids: Iterable[UUID]) -> list[tuple[Any, ...]]:
    """Of the current payloads: digest of the bytes as they are now, size, soundness, whether that can be known.

    Never the bytes. What came without a digest of its own has to be what the lease announces.
    """
    return rows(
        """
        SELECT p.lease_uuid, sha256(p.body), length(p.body),
               NOT p.corrupt AND sha256(p.body) = CASE WHEN p.sha256 = '' THEN l.meta_hash ELSE p.sha256 END,
               length(p.sha256) IN (0, 32)
          FROM leases_payload AS p JOIN leases_lease AS l ON l.uuid = p.lease_uuid
         WHERE p.lease_uuid = ANY(%s) AND p.state = 'current'
        """,
        list(uuids),
    )


def last_statuses(uuids: Sequence[UUID]) -> list[tuple[Any, ...]]:
    """The newest status event of each lease that has any."""
    return rows(
        """
        SELECT DISTINCT ON (lease_uuid) lease_uuid, status FROM leases_statusevent
         WHERE lease_uuid = ANY(%s) ORDER BY lease_uuid, id DESC
        """,
        list(uuids),
    )


def listed(uuids: Sequence[UUID]) -> list[tuple[Any, ...]]:
    """Rows of backends' inventories about these leases, with the begin of the walk that saw them."""
    return rows(
        """
        SELECT lease_uuid, backend, status, provider_uuid, walk_started_at FROM placements_provision
         WHERE lease_uuid = ANY(%s)
        """,
        list(uuids),
    )


def retained(uuids: Sequence[UUID]) -> list[tuple[Any, ...]]:
    """Rows of backends' retention lists about these leases."""
    return rows(
        "SELECT lease_uuid, backend, walk_started_at FROM placements_retention WHERE lease_uuid = ANY(%s)", list(uuids)
    )


def backends() -> list[tuple[Any, ...]]:
    """Every backend row, a retired one as not configured, with the begin of its newest complete walk."""
    return rows(
        """
        SELECT b.name, ARRAY(SELECT jsonb_array_elements_text(b.skus)), b.is_default,
               b.configured AND b.retired_at IS NULL, b.fenced, b.drained,
               b.contract = 'v0_13' OR (b.contract = 'auto' AND b.dialect = 'v0_13'), w.started_at
          FROM backends_backend AS b
          LEFT JOIN LATERAL (SELECT max(started_at) AS started_at FROM reconciliation_sweepbackend AS s
                              WHERE s.backend = b.name AND s.complete) AS w ON TRUE
         ORDER BY b.position, b.name
        """
    )


def cursor(chain_id: str) -> tuple[Any, ...] | None:
    """Age of the watcher's head, and since when this database can be trusted (its clock, the chain's)."""
    found = rows(
        """
        SELECT clock_timestamp() - head_seen_at, trusted_from_at, trusted_block_at FROM leases_chaincursor
         WHERE chain_id = %s
        """,
        chain_id,
    )
    return found[0] if found else None


def flying() -> dict[str, int]:
    """Open operations per backend."""
    return dict(rows("SELECT backend, count(*) FROM placements_operation WHERE settled_at IS NULL GROUP BY backend"))
