"""Bulk statements of pushing: claim what is due for the backends, keep it, give it back.

A claim of an operation is the only place beside ``transitions.move`` and the insert that writes ``Operation.state``: it
has to say "in doubt" in the same statement that gives the right to push.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import connection

from fred.due import CLAIM_FOR

ANSWER_MARGIN = timedelta(seconds=5)
"""How much longer than its call's time limit a push may hold its row."""


@dataclass(frozen=True, slots=True)
class OperationRow:
    """A claimed operation, as it is pushed. ``valid_s``: seconds for which it may still be started; None: no bound."""

    id: UUID
    lease_uuid: UUID
    backend: str
    epoch: int
    attempts: int
    first: bool
    source_lease_uuid: UUID | None
    tenant: str
    provider_uuid: UUID
    items: str
    payload_sha256: bytes | None
    callback_url: str
    lifecycle_url: str
    refusal: str
    request_id: str
    valid_s: float | None
    reachable: bool = True


@dataclass(frozen=True, slots=True)
class TeardownRow:
    """A claimed teardown."""

    id: int
    lease_uuid: UUID
    backend: str
    epoch: int
    attempts: int


_OPERATION_COLUMNS = """
    o.id, o.lease_uuid, o.backend, o.epoch, o.attempts, {first}, o.source_lease_uuid, o.tenant, o.provider_uuid,
    o.items, o.payload_sha256, o.callback_url, o.lifecycle_url, o.refusal, o.request_id,
    EXTRACT(epoch FROM o.valid_until - now())::float8, {reachable}
"""

# A branch for each backend, with the number of rows as a literal: a planner that can't see it sorts the whole backlog.
_PICK_OPERATIONS = """
    SELECT * FROM (
     SELECT t.id, t.state, b.timeout_ms FROM placements_operation AS t JOIN backends_backend AS b ON b.name = t.backend
      WHERE t.due_at <= now() AND t.backend = %s AND t.settled_at IS NULL AND t.state IN ('reserved', 'in_doubt')
        AND (t.valid_until IS NULL OR t.valid_until > now()) AND b.takes_calls
      ORDER BY t.due_at LIMIT %s FOR NO KEY UPDATE OF t SKIP LOCKED) AS one
"""

_CLAIM_OPERATIONS = f"""
    WITH picked AS ({{branches}})
    UPDATE placements_operation AS o
       SET state = 'in_doubt', epoch = o.epoch + 1, attempts = o.attempts + 1, due_at = now() + %s,
           first_dispatched_at = COALESCE(o.first_dispatched_at, now()), last_dispatched_at = now(),
           dispatch_count = o.dispatch_count + 1,
           on_wire_until = now() + picked.timeout_ms * interval '1 millisecond' + %s
      FROM picked WHERE o.id = picked.id
 RETURNING {_OPERATION_COLUMNS.format(first="picked.state = 'reserved'", reachable="TRUE")}
"""

_LOAD_OPERATIONS = f"""
    SELECT {_OPERATION_COLUMNS.format(first="o.dispatch_count <= 1", reachable="b.takes_calls")}
      FROM unnest(%s::uuid[], %s::bigint[]) AS h(id, epoch)
      JOIN placements_operation AS o ON o.id = h.id AND o.epoch = h.epoch AND o.state = 'in_doubt'
      JOIN backends_backend AS b ON b.name = o.backend
     WHERE o.settled_at IS NULL
"""

_PICK_TEARDOWNS = """
    SELECT * FROM (
     SELECT t.id FROM placements_teardown AS t JOIN backends_backend AS b ON b.name = t.backend
      WHERE t.due_at <= now() AND t.backend = %s AND t.state = 'open' AND b.takes_calls
      ORDER BY t.due_at LIMIT %s FOR NO KEY UPDATE OF t SKIP LOCKED) AS one
"""

_CLAIM_TEARDOWNS = """
    WITH picked AS ({branches})
    UPDATE placements_teardown AS t
       SET epoch = t.epoch + 1, attempts = t.attempts + 1, due_at = now() + %s, sent_at = now()
      FROM picked WHERE t.id = picked.id
 RETURNING t.id, t.lease_uuid, t.backend, t.epoch, t.attempts
"""


def claim_operations(room: Mapping[str, int]) -> list[OperationRow]:
    """Claim due operations, oldest first, for each backend as ``room`` says; from now on they are in doubt.

    Commits by itself. What a backend that takes no calls (fenced, retired, not configured, in no dialect) should get
    stays due, and so does what is past its ``valid_until``.
    """
    return [OperationRow(*row) for row in _claim(_CLAIM_OPERATIONS, _PICK_OPERATIONS, room, CLAIM_FOR, ANSWER_MARGIN)]


def claim_teardowns(room: Mapping[str, int]) -> list[TeardownRow]:
    """Claim due teardowns, oldest first, at each backend as many as it has ``room`` for. Commits by itself."""
    return [TeardownRow(*row) for row in _claim(_CLAIM_TEARDOWNS, _PICK_TEARDOWNS, room, CLAIM_FOR)]


def _claim(statement: str, branch: str, room: Mapping[str, int], *intervals: timedelta) -> list[tuple[Any, ...]]:
    wanted = {name: number for name, number in room.items() if number > 0}
    if not wanted:
        return []
    params: list[Any] = [value for pair in wanted.items() for value in pair]
    params.extend(intervals)
    with connection.cursor() as cursor:
        cursor.execute(statement.format(branches="UNION ALL".join([branch] * len(wanted))), params)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows


def load_operations(claims: Sequence[tuple[UUID, int]]) -> list[OperationRow]:
    """The operations among these (id, epoch) that are still claimed so. ``reachable``: its backend takes calls."""
    with connection.cursor() as cursor:
        cursor.execute(_LOAD_OPERATIONS, [[id_ for id_, _ in claims], [epoch for _, epoch in claims]])
        return [OperationRow(*row) for row in cursor.fetchall()]


def payloads(operations: Iterable[UUID]) -> dict[UUID, bytes]:
    """The bytes that each operation was made with; an operation whose bytes are gone is missing."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT o.id, p.body FROM placements_operation AS o
              JOIN leases_payload AS p
                ON p.lease_uuid = o.lease_uuid AND p.state = 'current' AND NOT p.corrupt
               AND o.payload_sha256 = CASE WHEN p.sha256 = '' THEN sha256(p.body) ELSE p.sha256 END
             WHERE o.id = ANY(%s)
            """,
            [list(operations)],
        )
        return {id_: bytes(body) for id_, body in cursor.fetchall()}


def renew(table: str, epochs: Mapping[UUID, int], *, unposted_ms: Mapping[UUID, int]) -> set[UUID]:
    """Prolong claims on rows of this table, of operations or of commands, that are still ours; return their ids.

    ``unposted_ms`` gives the call's time limit of those whose POST has not begun: its latest possible end moves too.
    """
    if not epochs:
        return set()
    limits = [unposted_ms.get(id_) for id_ in epochs]
    params: list[Any] = [list(epochs), list(epochs.values()), limits, CLAIM_FOR, ANSWER_MARGIN]
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            WITH held AS (SELECT * FROM unnest(%s::uuid[], %s::bigint[], %s::int[]) AS h(id, epoch, ms)),
                 mine AS (SELECT t.id, held.ms FROM {table} AS t
                            JOIN held ON held.id = t.id AND held.epoch = t.epoch
                           WHERE t.due_at IS NOT NULL ORDER BY t.id FOR NO KEY UPDATE OF t SKIP LOCKED)
            UPDATE {table} AS t
               SET due_at = now() + %s,
                   on_wire_until = CASE WHEN mine.ms IS NULL THEN t.on_wire_until
                                        ELSE now() + mine.ms * interval '1 millisecond' + %s END
              FROM mine WHERE t.id = mine.id
         RETURNING t.id
            """,
            params,
        )
        return {row[0] for row in cursor.fetchall()}


def untold(ids: Iterable[UUID]) -> set[UUID]:
    """Those of these operations that are not settled: their subscribers have not heard how it ended."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT id FROM placements_operation WHERE id = ANY(%s) AND settled_at IS NULL", [list(ids)])
        return {row[0] for row in cursor.fetchall()}


def put_back(delays: Mapping[UUID, timedelta]) -> None:
    """Give reserved operations, which were never sent and whose rows are locked, the time of their next push."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE placements_operation AS o
               SET due_at = now() + d.delay, first_dispatched_at = NULL, last_dispatched_at = NULL, on_wire_until = NULL
              FROM unnest(%s::uuid[], %s::interval[]) AS d(id, delay) WHERE o.id = d.id AND o.state = 'reserved'
            """,
            [list(delays), list(delays.values())],
        )


def leave_in_doubt(epochs: Mapping[UUID, int], delays: Mapping[UUID, timedelta | None]) -> set[UUID]:
    """Note pushes that ended without an answer: due again after their delay, or (None) no more; return those changed.

    The call is over, so ``on_wire_until`` is now. Only at the epoch claimed.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """
            WITH wanted AS (SELECT * FROM unnest(%s::uuid[], %s::bigint[], %s::interval[]) AS w(id, epoch, delay)),
                 mine AS (SELECT o.id, w.delay FROM placements_operation AS o
                            JOIN wanted AS w ON w.id = o.id AND w.epoch = o.epoch
                           WHERE o.state = 'in_doubt' ORDER BY o.id FOR NO KEY UPDATE OF o)
            UPDATE placements_operation AS o
               SET epoch = o.epoch + 1, due_at = now() + mine.delay, on_wire_until = LEAST(o.on_wire_until, now()),
                   attempts = CASE WHEN mine.delay IS NULL THEN 0 ELSE o.attempts END, refusal = ''
              FROM mine WHERE o.id = mine.id
         RETURNING o.id
            """,
            [list(epochs), list(epochs.values()), [delays[id_] for id_ in epochs]],
        )
        return {row[0] for row in cursor.fetchall()}


def stale(limit: int) -> dict[UUID, UUID]:
    """Due operations that nobody may push any more, each with its lease."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT id, lease_uuid FROM placements_operation
             WHERE due_at <= now() AND valid_until <= now() AND settled_at IS NULL AND state IN ('reserved', 'in_doubt')
             ORDER BY due_at LIMIT %s
            """,
            [limit],
        )
        return dict(cursor.fetchall())


def end_stale(ids: Iterable[UUID]) -> set[UUID]:
    """Take these, whose leases are locked, out of the pushing if they are stale still; return the leases."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            WITH mine AS (SELECT id FROM placements_operation
                           WHERE id = ANY(%s) AND due_at <= now() AND valid_until <= now() AND settled_at IS NULL
                             AND state IN ('reserved', 'in_doubt')
                           ORDER BY id FOR NO KEY UPDATE SKIP LOCKED)
            UPDATE placements_operation AS o SET due_at = NULL, epoch = o.epoch + 1
              FROM mine WHERE o.id = mine.id
         RETURNING o.lease_uuid
            """,
            [list(ids)],
        )
        return {row[0] for row in cursor.fetchall()}


def finish_teardowns(ids: Iterable[int]) -> set[UUID]:
    """A backend removed what it held: done, at any epoch; return the leases for which that was new."""
    return _leases(
        """
        WITH mine AS (SELECT id FROM placements_teardown WHERE id = ANY(%s) AND state <> 'done'
                       ORDER BY id FOR NO KEY UPDATE)
        UPDATE placements_teardown AS t
           SET state = 'done', done_at = now(), due_at = NULL, epoch = t.epoch + 1, attempts = 0, last_error = ''
          FROM mine WHERE t.id = mine.id
     RETURNING t.lease_uuid
        """,
        [list(ids)],
    )


def put_off_teardowns(rows: Iterable[tuple[int, int, timedelta, str]]) -> set[UUID]:
    """Note failed tries, each (id, epoch claimed, delay, error): due again after it; return the leases changed."""
    columns = list(zip(*rows, strict=True))
    return _leases(
        """
        WITH wanted AS (SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::interval[], %s::text[])
                                    AS w(id, epoch, delay, error)),
             mine AS (SELECT t.id, w.delay, w.error FROM placements_teardown AS t
                        JOIN wanted AS w ON w.id = t.id AND w.epoch = t.epoch
                       WHERE t.state = 'open' ORDER BY t.id FOR NO KEY UPDATE OF t)
        UPDATE placements_teardown AS t
           SET due_at = now() + mine.delay, epoch = t.epoch + 1,
               last_error = CASE WHEN mine.error = '' THEN t.last_error ELSE mine.error END
          FROM mine WHERE t.id = mine.id
     RETURNING t.lease_uuid
        """,
        [list(column) for column in columns],
    )


def _leases(statement: str, params: list[Any]) -> set[UUID]:
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return {row[0] for row in cursor.fetchall()}
