"""Statements of the sweep: its rows, inventories in, differences out."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db import connection

TAKEN_OVER_AFTER = "10 minutes"
"""A running sweep that has not ended by then died; its row is closed by the next."""
OPERATION_IS_LATE = "o.state = 'accepted' AND o.first_dispatched_at < now() - interval '2 minutes'"
"""Its report is overdue: what lists its lease as ready or failed is believed, and the lease is not left to it."""


def _run(sql: str, *params: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return cursor.fetchall() if cursor.description else []


def begin(*, take_over: bool) -> int | None:
    """Open a sweep; None while another one runs. With ``take_over`` one that seems to run is dead, and is closed."""
    _run(
        f"""
        UPDATE reconciliation_sweep SET state = 'abandoned', finished_at = now(), outcome = 'error'
         WHERE state = 'running' AND (%s OR started_at < now() - interval '{TAKEN_OVER_AFTER}')
        """,
        take_over,
    )
    found = _run(
        """
        INSERT INTO reconciliation_sweep (state, outcome, counts, started_at, heartbeat_at)
        VALUES ('running', '', '{}', clock_timestamp(), clock_timestamp()) ON CONFLICT DO NOTHING RETURNING id
        """
    )
    return int(found[0][0]) if found else None


def end(sweep: int, *, outcome: str, complete: bool, height: int | None, counts: Mapping[str, int]) -> None:
    """Close a sweep with what it found."""
    _run(
        """
        UPDATE reconciliation_sweep SET state = 'done', finished_at = now(), outcome = %s, complete = %s,
               chain_height = %s, counts = %s WHERE id = %s AND state = 'running'
        """,
        outcome,
        complete,
        height,
        json.dumps(dict(counts)),
        sweep,
    )


def begin_walk(sweep: int, backend: str) -> None:
    """Note that the reading of a backend begins now: what changes after this moment is not proven by it."""
    _run(
        """
        INSERT INTO reconciliation_sweepbackend (sweep_id, backend, started_at, provisions, retentions, complete)
        VALUES (%s, %s, clock_timestamp(), '', '', FALSE)
        """,
        sweep,
        backend,
    )


def end_walk(sweep: int, backend: str, *, provisions: str, retentions: str, complete: bool) -> None:
    """Note how the reading of a backend ended. From here on a complete one counts as evidence."""
    _run(
        """
        UPDATE reconciliation_sweepbackend SET provisions = %s, retentions = %s, complete = %s
         WHERE sweep_id = %s AND backend = %s
        """,
        provisions,
        retentions,
        complete,
        sweep,
        backend,
    )


def differing_reads(rows: Sequence[tuple[UUID, int, str]]) -> set[UUID]:
    """Those of these listed leases (uuid, state, items as text) whose row is missing or says something else."""
    found = _run(
        """
        SELECT r.uuid FROM unnest(%s::uuid[], %s::smallint[], %s::text[]) AS r(uuid, state, items)
          LEFT JOIN leases_lease AS l ON l.uuid = r.uuid
         WHERE l.uuid IS NULL OR l.chain_state IS NULL
            OR (l.chain_state < 3 AND (l.chain_state < r.state OR l.items <> r.items::jsonb))
        """,
        *[list(column) for column in zip(*rows, strict=True)],
    )
    return {row[0] for row in found}


def stored_live(*, below: int) -> list[UUID]:
    """Leases stored as PENDING or ACTIVE by a read, and with no news, from this height or before."""
    return [
        row[0]
        for row in _run(
            """
            SELECT uuid FROM leases_lease
             WHERE chain_state IN (1, 2) AND chain_height <= %s AND news_height <= %s ORDER BY uuid
            """,
            below,
            below,
        )
    ]


def store_provisions(sweep: int, backend: str, rows: Sequence[tuple[UUID, UUID | None, str, str, int]]) -> None:
    """Store rows of a complete list (lease, provider, tenant, status, failures)."""
    _run(
        """
        INSERT INTO placements_provision AS p
               (backend, lease_uuid, provider_uuid, tenant, status, fail_count, walk_id, walk_started_at)
        SELECT %s, n.lease, n.provider, n.tenant, n.status, n.fail_count, %s, s.started_at
          FROM unnest(%s::uuid[], %s::uuid[], %s::text[], %s::text[], %s::int[])
               AS n(lease, provider, tenant, status, fail_count)
          JOIN reconciliation_sweepbackend AS s ON s.sweep_id = %s AND s.backend = %s
            ON CONFLICT (backend, lease_uuid) DO UPDATE
               SET provider_uuid = excluded.provider_uuid, tenant = excluded.tenant, status = excluded.status,
                   fail_count = excluded.fail_count, walk_id = excluded.walk_id,
                   walk_started_at = excluded.walk_started_at
        """,
        backend,
        sweep,
        *[list(column) for column in zip(*rows, strict=True)],
        sweep,
        backend,
    )


def store_retentions(sweep: int, backend: str, rows: Sequence[tuple[UUID, UUID | None, str]]) -> None:
    """Store rows of a complete retention list (lease, provider, tenant)."""
    _run(
        """
        INSERT INTO placements_retention AS p
               (backend, lease_uuid, provider_uuid, tenant, status, walk_id, walk_started_at)
        SELECT %s, n.lease, n.provider, n.tenant, 'retained', %s, s.started_at
          FROM unnest(%s::uuid[], %s::uuid[], %s::text[]) AS n(lease, provider, tenant)
          JOIN reconciliation_sweepbackend AS s ON s.sweep_id = %s AND s.backend = %s
            ON CONFLICT (backend, lease_uuid) DO UPDATE
               SET walk_id = excluded.walk_id, walk_started_at = excluded.walk_started_at
        """,
        backend,
        sweep,
        *[list(column) for column in zip(*rows, strict=True)],
        sweep,
        backend,
    )


def forget_others(sweep: int, backend: str, *, kept: Collection[UUID]) -> None:
    """Delete what this complete walk of a backend did not list, but for ``kept``."""
    for table in ("placements_provision", "placements_retention"):
        _run(
            f"DELETE FROM {table} WHERE backend = %s AND walk_id <> %s AND NOT lease_uuid = ANY(%s)",
            backend,
            sweep,
            list(kept),
        )


def unknown_listed(provider: UUID, limit: int) -> list[UUID]:
    """Leases that a backend lists as ours and whose chain state is not known, those read longest ago first."""
    return [
        row[0]
        for row in _run(
            """
            SELECT p.lease_uuid FROM placements_provision AS p LEFT JOIN leases_lease AS l ON l.uuid = p.lease_uuid
             WHERE l.chain_state IS NULL AND (p.provider_uuid IS NULL OR p.provider_uuid = %s)
             GROUP BY p.lease_uuid, l.absent_height
             ORDER BY l.absent_height NULLS FIRST, md5(p.lease_uuid::text || %s) LIMIT %s
            """,
            provider,
            str(_run("SELECT COALESCE(max(id), 0) FROM reconciliation_sweep")[0][0]),
            limit,
        )
    ]


def differing() -> list[UUID]:
    """Leases whose row and whose listing do not go together; a look will say what that means.

    Only evidence newer than anything that changed for the lease counts, so a lease under way is left alone.
    """
    return [
        row[0]
        for row in _run(
            f"""
            WITH walk AS (SELECT backend, max(started_at) AS at FROM reconciliation_sweepbackend WHERE complete
                           GROUP BY backend),
                 seen AS (SELECT p.lease_uuid, p.backend, p.status FROM placements_provision AS p)
            SELECT l.uuid FROM seen AS s JOIN leases_lease AS l ON l.uuid = s.lease_uuid
              JOIN walk AS w ON w.backend = s.backend AND (l.touched_at IS NULL OR w.at > l.touched_at)
              LEFT JOIN placements_placement AS p ON p.lease_uuid = l.uuid
              LEFT JOIN placements_operation AS o ON o.lease_uuid = l.uuid AND o.settled_at IS NULL
             WHERE (l.chain_state >= 3 AND s.status <> 'deprovisioning'
                    AND NOT EXISTS (SELECT FROM placements_teardown AS t
                                     WHERE t.lease_uuid = l.uuid AND t.backend = s.backend AND t.state <> 'done'))
                OR (l.chain_state = 1 AND o.id IS NULL AND s.status IN ('ready', 'failed'))
                OR ({OPERATION_IS_LATE} AND o.backend = s.backend AND s.status IN ('ready', 'failed'))
                OR (l.chain_state = 2 AND o.id IS NULL
                    AND (p.lease_uuid IS NULL OR p.status = 'attempted' OR p.backend <> s.backend
                         OR (s.status = 'failed') <> (l.phase = 'degraded')))
             UNION
            SELECT l.uuid FROM leases_lease AS l
              JOIN placements_placement AS p ON p.lease_uuid = l.uuid
              JOIN walk AS w ON w.backend = p.backend AND (l.touched_at IS NULL OR w.at > l.touched_at)
             WHERE l.chain_state = 2 AND l.phase <> 'degraded'
               AND NOT EXISTS (SELECT FROM seen AS s WHERE s.lease_uuid = l.uuid AND s.backend = p.backend)
             UNION
            SELECT l.uuid FROM leases_lease AS l
              LEFT JOIN placements_retention AS r ON r.lease_uuid = l.uuid
             WHERE l.chain_state >= 3 AND (r.lease_uuid IS NOT NULL) <> (l.phase = 'retained')
               AND l.phase IN ('retained', 'ended') AND l.due_at IS NULL
               AND EXISTS (SELECT FROM walk AS w WHERE l.touched_at IS NULL OR w.at > l.touched_at)
            """
        )
    ]


def under_way(sweep: int) -> tuple[int, int]:
    """How many PENDING leases with an open operation this sweep leaves to it: those listed as ready, and unlisted ones.

    A lease counts as unlisted only if its backend told everything it has. One that is listed as ready for long after
    its backend took the operation is woken, and not counted.
    """
    found = _run(
        f"""
        WITH walk AS (SELECT backend FROM reconciliation_sweepbackend WHERE sweep_id = %s AND complete),
             busy AS (SELECT o.lease_uuid, o.backend,
                             {OPERATION_IS_LATE} AS is_late
                        FROM placements_operation AS o JOIN leases_lease AS l ON l.uuid = o.lease_uuid
                       WHERE o.settled_at IS NULL AND l.chain_state = 1)
        SELECT count(*) FILTER (WHERE NOT b.is_late AND EXISTS (
                      SELECT FROM placements_provision AS p JOIN walk AS w ON w.backend = p.backend
                       WHERE p.lease_uuid = b.lease_uuid AND p.status = 'ready')),
               count(*) FILTER (WHERE b.backend IN (SELECT backend FROM walk) AND NOT EXISTS (
                      SELECT FROM placements_provision AS p WHERE p.lease_uuid = b.lease_uuid))
          FROM busy AS b
        """,
        sweep,
    )
    ready, unlisted = found[0]
    return int(ready), int(unlisted)


def unreported(sweep: int) -> int:
    """How many live leases nobody told this sweep of: their backend, or without an owner any backend, was silent."""
    found = _run(
        """
        SELECT count(*) FROM leases_lease AS l LEFT JOIN placements_placement AS p ON p.lease_uuid = l.uuid
         WHERE l.chain_state IN (1, 2)
           AND EXISTS (SELECT FROM reconciliation_sweepbackend AS s WHERE s.sweep_id = %s AND NOT s.complete
                          AND (s.backend = p.backend OR p.lease_uuid IS NULL AND l.chain_state = 2))
           AND NOT EXISTS (SELECT FROM placements_provision AS s WHERE s.lease_uuid = l.uuid AND s.walk_id = %s)
        """,
        sweep,
        sweep,
    )
    return int(found[0][0])


def unguarded() -> list[UUID]:
    """Leases at rest although something of them is open: each needs a time at which it is looked at."""
    return [
        row[0]
        for row in _run(
            """
            SELECT l.uuid FROM leases_lease AS l WHERE l.due_at IS NULL AND (
                   EXISTS (SELECT FROM placements_operation AS o WHERE o.lease_uuid = l.uuid AND o.settled_at IS NULL)
                OR EXISTS (SELECT FROM placements_maintenancecommand AS m
                            WHERE m.lease_uuid = l.uuid AND m.finished_at IS NULL)
                OR EXISTS (SELECT FROM placements_teardown AS t WHERE t.lease_uuid = l.uuid AND t.state = 'open')
                OR EXISTS (SELECT FROM placements_callback AS c WHERE c.lease_uuid = l.uuid AND c.applied_at IS NULL)
                OR EXISTS (SELECT FROM leases_chainaction AS a
                            WHERE a.lease_uuid = l.uuid AND a.state IN ('queued', 'in_tx')))
            """
        )
    ]


def unconfigured_owners() -> list[tuple[str, int]]:
    """Backends that left the configuration although live leases are placed there, with how many."""
    return [
        (name, number)
        for name, number in _run(
            """
            SELECT p.backend, count(*) FROM placements_placement AS p
              JOIN leases_lease AS l ON l.uuid = p.lease_uuid AND l.chain_state IN (1, 2)
              JOIN backends_backend AS b ON b.name = p.backend AND NOT b.configured
             GROUP BY p.backend ORDER BY p.backend
            """
        )
    ]


def without_payload() -> int:
    """How many live leases can't be made for lack of a sound payload: ACTIVE and missing at their backend, or PENDING.

    A payload that a PENDING lease waits for, or that ends it, is no error.
    """
    return int(
        _run(
            """
            SELECT count(*) FROM leases_lease
             WHERE chain_state = 2 AND reason IN ('payload_missing', 'payload_corrupt')
                OR chain_state IN (1, 2) AND reason = 'payload_unreadable'
            """
        )[0][0]
    )
