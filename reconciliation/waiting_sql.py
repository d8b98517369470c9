"""Leases that wait because the chain gave no usable answer: looked at again soon after it gives one.

How long such a lease waits is no forecast of when the trouble ends. So each new block sends one *scout* of each kind:
the lease that was looked at longest ago is due at once. When its look, or that of any lease that waited so, is given an
answer, a batch of the others is due, and each look among them wakes the next batch. While the trouble lasts that costs
one look for a block, and after it never more at once than one claim takes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from django.db import connection

from fred.due import BATCH
from fred.tasks import LOOK, hint

WAITS: Final = frozenset({"chain_silent", "chain_stale", "chain_suspect", "chain_unknown"})
"""Reasons that end when the chain answers; a lease's own errors are put off by its own failures. While the chain is
suspect no block counts. Who ends that wakes all, but not the lease whose look began before and ends after it."""

# A claimed row has an attempt on it until its look is finished: to wake it would only make that look void. What nobody
# ever announced or read has no answer to wait for.
_WAITING = """
    l.due_at > now() AND l.attempts = 0 AND l.reason = ANY(%s)
    AND (l.reason <> 'chain_unknown' OR l.news_height >= 0 OR l.chain_state IS NOT NULL)
"""


def scout() -> int:
    """A block was made: have one waiting lease of each kind looked at now; return how many."""
    woken = _wake(
        f"""
        SELECT DISTINCT ON (l.reason) l.uuid FROM leases_lease AS l WHERE {_WAITING}
         ORDER BY l.reason, l.looked_at
        """,
        [sorted(WAITS)],
    )
    if woken:
        hint.send(LOOK)
    return woken


def wake_others(reasons: Iterable[str]) -> int:
    """The chain answered for leases that waited for these reasons: look at others that do; return how many."""
    over = sorted(WAITS.intersection(reasons))
    if not over:
        return 0
    woken = _wake(f"SELECT l.uuid FROM leases_lease AS l WHERE {_WAITING} ORDER BY l.due_at LIMIT %s", [over, BATCH])
    if woken:
        hint.send(LOOK)
    return woken


def _wake(chosen: str, values: list[Any]) -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            WITH chosen AS ({chosen}),
                 mine AS (SELECT l.uuid FROM leases_lease AS l JOIN chosen ON chosen.uuid = l.uuid
                           WHERE l.due_at > now() AND l.attempts = 0
                           ORDER BY l.uuid FOR NO KEY UPDATE OF l SKIP LOCKED)
            UPDATE leases_lease AS l SET due_at = now(), epoch = l.epoch + 1 FROM mine WHERE l.uuid = mine.uuid
            """,
            values,
        )
        return int(cursor.rowcount)
