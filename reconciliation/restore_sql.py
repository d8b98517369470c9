"""Statements that admit a tenant's restore and undo one that was refused. They run with the lease rows locked."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from django.db import connection

from fred.due import CLAIM_FOR
from placements.push_sql import ANSWER_MARGIN


@dataclass(frozen=True, slots=True)
class RestoreLeases:
    """The two leases of a restore. The placement and its backend are those of the source."""

    state: int | None
    tenant: str
    provider_uuid: UUID | None
    target_is_taken: bool
    source_is_owned: bool
    source_attempt_is_open: bool
    placement: str
    backend: str
    takes_calls: bool
    timeout_ms: int


_LEASES: Final = """
    SELECT t.chain_state, COALESCE(t.tenant, ''), t.provider_uuid,
           EXISTS (SELECT FROM placements_placement WHERE lease_uuid = t.uuid)
           OR EXISTS (SELECT FROM placements_operation WHERE lease_uuid = t.uuid AND settled_at IS NULL)
           OR EXISTS (SELECT FROM placements_maintenancecommand WHERE lease_uuid = t.uuid AND settled_at IS NULL)
           OR EXISTS (SELECT FROM placements_teardown WHERE lease_uuid = t.uuid AND state <> 'done')
           OR EXISTS (SELECT FROM leases_chainaction WHERE lease_uuid = t.uuid AND state IN ('queued', 'in_tx')),
           EXISTS (SELECT FROM placements_operation
                    WHERE source_lease_uuid = p.lease_uuid AND settled_at IS NULL AND lease_uuid <> t.uuid)
           OR EXISTS (SELECT FROM placements_maintenancecommand
                       WHERE lease_uuid = p.lease_uuid AND settled_at IS NULL)
           OR EXISTS (SELECT FROM placements_teardown WHERE lease_uuid = p.lease_uuid AND state <> 'done')
           OR s.chain_state < 3
           OR (s.due_at IS NOT NULL  -- its end is news: the removal there has yet to be asked for
               AND NOT EXISTS (SELECT FROM placements_teardown
                                WHERE lease_uuid = p.lease_uuid AND backend = p.backend)),
           EXISTS (SELECT FROM placements_operation WHERE lease_uuid = p.lease_uuid AND settled_at IS NULL),
           COALESCE(p.status, ''), COALESCE(p.backend, ''), COALESCE(b.takes_calls, FALSE), COALESCE(b.timeout_ms, 0)
      FROM leases_lease AS t
      LEFT JOIN placements_placement AS p ON p.lease_uuid = %s
      LEFT JOIN leases_lease AS s ON s.uuid = p.lease_uuid
      LEFT JOIN backends_backend AS b ON b.name = p.backend
     WHERE t.uuid = %s
"""


def leases_of(target: UUID, source: UUID) -> RestoreLeases | None:
    """How the two leases stand; None when the target was never read."""
    found = _rows(_LEASES, source, target)
    return RestoreLeases(*found[0]) if found else None


@dataclass(frozen=True, slots=True)
class Earlier:
    """A restore that was admitted before under the same id."""

    lease_uuid: UUID
    source_lease_uuid: UUID | None
    state: str
    refusal: str
    error: str


def earlier(operation: UUID) -> Earlier | None:
    """The operation with this id, if there is one already."""
    found = _rows(
        "SELECT lease_uuid, source_lease_uuid, state, refusal, error FROM placements_operation WHERE id = %s", operation
    )
    return Earlier(*found[0]) if found else None


def insert(
    operation: UUID,
    target: UUID,
    source: UUID,
    *,
    backend: str,
    urls: tuple[str, str],
    request_id: str,
    valid: timedelta,
) -> int:
    """Insert a restore in doubt and claimed, as its first push, and the attempt as placement; return its epoch."""
    found = _rows(
        """
        WITH made AS (
            INSERT INTO placements_operation
                   (id, lease_uuid, kind, source_lease_uuid, backend, tenant, provider_uuid, items, callback_url,
                    lifecycle_url, request_id, state, refusal, error, dispatch_count, first_dispatched_at,
                    last_dispatched_at, on_wire_until, due_at, epoch, attempts, valid_until)
            SELECT %s, l.uuid, 'restore', %s, b.name, l.tenant, l.provider_uuid, l.items, %s, %s, %s, 'in_doubt', '',
                   '', 1, c.now, c.now, c.now + b.timeout_ms * interval '1 millisecond' + %s, c.now + %s, 1, 1,
                   c.now + %s
              FROM leases_lease AS l CROSS JOIN backends_backend AS b CROSS JOIN (SELECT clock_timestamp() AS now) AS c
             WHERE l.uuid = %s AND b.name = %s
         RETURNING lease_uuid, backend, epoch
        ), placed AS (
            INSERT INTO placements_placement (lease_uuid, backend, status, candidates, revision, set_at)
            SELECT lease_uuid, backend, 'attempted', '{}', 1, now() FROM made
        )
        SELECT epoch FROM made
        """,
        operation,
        source,
        *urls,
        request_id,
        ANSWER_MARGIN,
        CLAIM_FOR,
        valid,
        target,
        backend,
    )
    epoch: int = found[0][0]
    return epoch


def settle_unmade(operation: UUID) -> tuple[UUID, str, float | None] | None:
    """Close a restore of which nothing was made, and forget the placement that only it made.

    Return its lease, its backend and the seconds since its first push; None when it is closed already, or was made.
    """
    found = _rows(
        """
        WITH closed AS (
            UPDATE placements_operation AS o
               SET settled_at = now(), due_at = NULL, on_wire_until = NULL, epoch = o.epoch + 1
             WHERE o.id = %s AND o.kind = 'restore' AND o.settled_at IS NULL AND o.state IN ('refused', 'ended')
         RETURNING o.lease_uuid, o.backend, EXTRACT(epoch FROM o.finished_at - o.first_dispatched_at)::float8
        ), gone AS (
            DELETE FROM placements_placement AS p USING closed AS c
             WHERE p.lease_uuid = c.lease_uuid AND p.status = 'attempted'
        )
        SELECT * FROM closed
        """,
        operation,
    )
    return found[0] if found else None


def _rows(sql: str, *params: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows
