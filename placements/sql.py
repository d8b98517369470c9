"""Bulk statements over operations, placements and teardowns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from django.db import connection

from placements.status import OperationState


def update_state(
    operations: Mapping[UUID, int | None],
    *,
    to: OperationState,
    from_: Sequence[OperationState],
    final: bool,
    refusal: str = "",
    error: str = "",
    errors: Mapping[UUID, str] | None = None,
    rest: bool = False,
) -> set[UUID]:
    """Guarded update of the state, locked in uuid order; see ``transitions.move``, its only caller."""
    if not operations:
        return set()
    ids = sorted(operations)
    with connection.cursor() as cursor:
        cursor.execute(
            """
            WITH wanted AS (SELECT * FROM unnest(%s::uuid[], %s::bigint[], %s::text[]) AS w(id, epoch, error)),
                 mine AS (SELECT o.id, w.error FROM placements_operation AS o JOIN wanted AS w ON w.id = o.id
                           WHERE o.state = ANY(%s) AND (w.epoch IS NULL OR w.epoch = o.epoch)
                           ORDER BY o.id FOR NO KEY UPDATE OF o)
            UPDATE placements_operation AS o
               SET state = %s, epoch = o.epoch + 1,
                   due_at = CASE WHEN %s THEN NULL ELSE o.due_at END,
                   attempts = CASE WHEN %s THEN 0 ELSE o.attempts END,
                   on_wire_until = CASE WHEN %s THEN NULL ELSE o.on_wire_until END,
                   finished_at = CASE WHEN %s THEN now() ELSE o.finished_at END,
                   refusal = CASE WHEN %s THEN %s ELSE o.refusal END,
                   error = CASE WHEN mine.error = '' THEN o.error ELSE mine.error END
              FROM mine WHERE o.id = mine.id
         RETURNING o.id
            """,
            [
                ids,
                [operations[id_] for id_ in ids],
                [(errors or {}).get(id_, error) for id_ in ids],
                [str(state) for state in from_],
                str(to),
                final or rest,
                final or rest,
                final or rest,
                final,
                bool(refusal) or rest,
                refusal,
            ],
        )
        return {row[0] for row in cursor.fetchall()}
