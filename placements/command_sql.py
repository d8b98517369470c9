"""Bulk statements of maintenance commands: claim, mark as sent, and the guarded change of their state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import connection

from fred.due import CLAIM_FOR
from placements.command_status import CommandKind, CommandState
from placements.push_sql import ANSWER_MARGIN

MOST_ERROR_BYTES = 4096


@dataclass(frozen=True, slots=True)
class CommandRow:
    """A claimed command, from now on in doubt. ``valid_s``: seconds for which it may be sent; None: no bound."""

    id: UUID
    lease_uuid: UUID
    backend: str
    epoch: int
    attempts: int
    kind: str
    keyed: bool
    callback_url: str
    payload_id: int | None
    valid_s: float | None
    request_id: str


@dataclass(frozen=True, slots=True)
class Moved:
    """A command whose state changed."""

    id: UUID
    lease_uuid: UUID
    kind: CommandKind
    payload_id: int | None
    request_id: str


_SEND = f"""
    UPDATE placements_maintenancecommand AS c
       SET state = 'in_doubt', epoch = c.epoch + 1, attempts = c.attempts + {{counted}}, due_at = now() + %s,
           first_dispatched_at = now(), refusal = '', error = '',
           on_wire_until = now() + picked.timeout_ms * interval '1 millisecond' + interval '{ANSWER_MARGIN.seconds} s'
      FROM picked WHERE c.id = picked.id
 RETURNING c.id, c.lease_uuid, c.backend, c.epoch, c.attempts, c.kind, c.keyed, c.callback_url, c.payload_id,
           EXTRACT(epoch FROM c.valid_until - now())::float8, c.request_id
"""

_PICK = """
    SELECT * FROM (
     SELECT t.id, b.timeout_ms
       FROM placements_maintenancecommand AS t JOIN backends_backend AS b ON b.name = t.backend
       JOIN leases_lease AS l ON l.uuid = t.lease_uuid
      WHERE t.due_at <= now() AND t.backend = %s AND t.state = 'reserved' AND b.takes_calls AND l.chain_state = 2
        AND (t.valid_until IS NULL OR t.valid_until > now())
      ORDER BY t.due_at LIMIT %s FOR NO KEY UPDATE OF t SKIP LOCKED) AS one
"""

_PICK_HANDED = """
    SELECT t.id, b.timeout_ms
      FROM unnest(%s::uuid[], %s::bigint[]) AS h(id, epoch)
      JOIN placements_maintenancecommand AS t ON t.id = h.id AND t.epoch = h.epoch AND t.state = 'reserved'
      JOIN backends_backend AS b ON b.name = t.backend
     WHERE b.takes_calls ORDER BY t.id FOR NO KEY UPDATE OF t
"""


def claim(room: Mapping[str, int]) -> list[CommandRow]:
    """Claim commands that are due to be sent, for each backend as ``room`` says; from now on they are in doubt.

    Commits by itself. A command that may have been sent once is never among them.
    """
    wanted = {name: number for name, number in room.items() if number > 0}
    if not wanted:
        return []
    picked = " UNION ALL ".join([_PICK] * len(wanted))
    params: list[Any] = [value for pair in wanted.items() for value in pair]
    return _rows(f"WITH picked AS ({picked}) {_SEND.format(counted=1)}", [*params, CLAIM_FOR])


def take(claims: Sequence[tuple[UUID, int]]) -> list[CommandRow]:
    """Those of these claimed commands (id, epoch) that are still claimed so and may be sent: now in doubt.

    Commits by itself. Until this nothing has left: whoever claimed one and was killed has lost nothing.
    """
    params = [[id_ for id_, _ in claims], [epoch for _, epoch in claims], CLAIM_FOR]
    return _rows(f"WITH picked AS ({_PICK_HANDED}) {_SEND.format(counted=0)}", params)


def _rows(statement: str, params: Sequence[Any]) -> list[CommandRow]:
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return [CommandRow(*row) for row in cursor.fetchall()]


def update_state(
    commands: Mapping[UUID, int | None],
    *,
    to: CommandState,
    from_: Sequence[CommandState],
    is_open: bool,
    is_final: bool,
    refusal: str,
    errors: Mapping[UUID, str],
    delays: Mapping[UUID, timedelta],
) -> list[Moved]:
    """Guarded update of the state; see ``command_transitions.move``, its only caller."""
    if not commands:
        return []
    ids = sorted(commands)
    with connection.cursor() as cursor:
        cursor.execute(
            """
            WITH wanted AS (SELECT * FROM unnest(%s::uuid[], %s::bigint[], %s::text[], %s::interval[])
                                       AS w(id, epoch, error, delay)),
                 mine AS (SELECT c.id, w.error, w.delay FROM placements_maintenancecommand AS c
                            JOIN wanted AS w ON w.id = c.id
                           WHERE c.state = ANY(%s) AND (w.epoch IS NULL OR w.epoch = c.epoch)
                           ORDER BY c.id FOR NO KEY UPDATE OF c)
            UPDATE placements_maintenancecommand AS c
               SET state = %s, epoch = c.epoch + 1, due_at = now() + mine.delay, on_wire_until = NULL,
                   first_dispatched_at = CASE WHEN %s THEN NULL ELSE c.first_dispatched_at END,
                   attempts = CASE WHEN %s THEN c.attempts ELSE 0 END,
                   refusal = %s, error = mine.error,
                   settled_at = CASE WHEN %s THEN NULL ELSE COALESCE(c.settled_at, now()) END,
                   finished_at = CASE WHEN %s THEN now() END
              FROM mine WHERE c.id = mine.id
         RETURNING c.id, c.lease_uuid, c.kind, c.payload_id, c.request_id
            """,
            [
                ids,
                [commands[id_] for id_ in ids],
                [_cut(errors.get(id_, "")) for id_ in ids],
                [delays.get(id_) for id_ in ids],
                [str(state) for state in from_],
                str(to),
                is_open,
                is_open,
                refusal,
                is_open,
                is_final,
            ],
        )
        return [
            Moved(id_, lease, CommandKind(kind), payload_id, request_id)
            for id_, lease, kind, payload_id, request_id in cursor.fetchall()
        ]


def _cut(text: str) -> str:
    return text.encode()[:MOST_ERROR_BYTES].decode(errors="ignore")


def leave_in_doubt(epochs: Mapping[UUID, int], *, refusal: str) -> dict[UUID, UUID]:
    """Note calls that proved nothing: nothing is sent any more, the look watches. Return those changed, with leases.

    The call is over, so ``on_wire_until`` is now. Only at the epoch claimed.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """
            WITH mine AS (SELECT c.id FROM placements_maintenancecommand AS c
                            JOIN unnest(%s::uuid[], %s::bigint[]) AS w(id, epoch)
                              ON w.id = c.id AND w.epoch = c.epoch
                           WHERE c.state = 'in_doubt' ORDER BY c.id FOR NO KEY UPDATE OF c)
            UPDATE placements_maintenancecommand AS c
               SET epoch = c.epoch + 1, due_at = NULL, on_wire_until = LEAST(c.on_wire_until, now()), refusal = %s
              FROM mine WHERE c.id = mine.id
         RETURNING c.id, c.lease_uuid
            """,
            [list(epochs), list(epochs.values()), refusal],
        )
        return dict(cursor.fetchall())


def make_due(ids: Sequence[UUID], *, valid_for: timedelta) -> None:
    """Let commands that were never sent be sent for so much longer; their back-off stays."""
    params: list[Any] = [valid_for, list(ids)]
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE placements_maintenancecommand AS c
               SET due_at = COALESCE(c.due_at, now()), valid_until = now() + %s
             WHERE c.id IN (SELECT id FROM placements_maintenancecommand WHERE id = ANY(%s) AND state = 'reserved'
                             ORDER BY id FOR NO KEY UPDATE)
            """,
            params,
        )


def finish_unheard(leases: Sequence[UUID]) -> None:
    """Nothing more is expected of accepted commands of these leases; the answer that they gave stays."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE placements_maintenancecommand SET finished_at = now(), epoch = epoch + 1
             WHERE id IN (SELECT id FROM placements_maintenancecommand
                           WHERE lease_uuid = ANY(%s) AND state = 'accepted' AND finished_at IS NULL
                           ORDER BY id FOR NO KEY UPDATE)
            """,
            [list(leases)],
        )
