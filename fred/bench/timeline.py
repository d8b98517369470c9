"""How far the leases of a burst had come when: read from the rows that each step leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

STEPS = ("event stored", "operation made", "sent", "reported", "wish made", "signed", "decided", "settled")
_ROWS = """
    SELECT e.seen_at, o.created_at, o.first_dispatched_at, c.received_at, a.created_at, t.created_at, t.decided_at,
           o.settled_at
      FROM unnest(%s::uuid[]) AS n(lease)
      JOIN leases_chainevent AS e ON e.lease_uuid = n.lease AND e.type = 'lease_created'
      JOIN placements_operation AS o ON o.lease_uuid = n.lease
      JOIN placements_callback AS c ON c.lease_uuid = n.lease
      JOIN leases_chainaction AS a ON a.lease_uuid = n.lease AND a.verb = 'ack'
      JOIN leases_chaintx AS t ON t.id = a.tx_id
"""


@dataclass(frozen=True, slots=True)
class Span:
    """When the first, the middle and the last lease reached a step, in seconds after the first event was stored."""

    first: float
    middle: float
    last: float


def read(database: psycopg.Connection[tuple[Any, ...]], leases: Sequence[str]) -> Mapping[str, Span]:
    """The steps of these settled leases, in order."""
    rows = database.execute(_ROWS, [list(leases)]).fetchall()
    if not rows:
        return {}
    columns = [sorted(at.timestamp() for at in column) for column in zip(*rows, strict=True)]
    start = columns[0][0]
    return {
        step: Span(column[0] - start, column[len(column) // 2] - start, column[-1] - start)
        for step, column in zip(STEPS, columns, strict=True)
    }
