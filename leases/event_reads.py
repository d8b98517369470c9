"""Reading status events on the event loop, beside Django: a connection for asking and one for listening."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, LiteralString
from uuid import UUID

import psycopg

from fred.loop_database import LoopConnection, connect
from leases.events import CHANNEL

PAGE: Final = 100
"""Events of one lease that are read at once."""
_WAIT_S: Final = 10.0
"""So long a silent channel is believed; then its connection is tried."""
_TRY_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class StatusFact:
    """One status event, as subscribers get it."""

    id: int
    lease_uuid: UUID
    status: str
    error: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept of a lease's events: the oldest and the newest id (0: none), the newest event, what it is called."""

    oldest: int
    newest: StatusFact | None
    phase: str
    now: datetime

    @property
    def newest_id(self) -> int:
        """The id after which everything is new."""
        return self.newest.id if self.newest else 0


_KEPT: Final[LiteralString] = """
    SELECT COALESCE((SELECT min(id) FROM leases_statusevent WHERE lease_uuid = l.uuid), 0), l.phase, now(),
           n.id, n.status, n.error, n.at
      FROM leases_lease AS l
      LEFT JOIN LATERAL (SELECT id, status, error, at FROM leases_statusevent
                          WHERE lease_uuid = l.uuid ORDER BY id DESC LIMIT 1) AS n ON TRUE
     WHERE l.uuid = %s
"""
_LATER: Final[LiteralString] = """
    SELECT e.id, e.lease_uuid, e.status, e.error, e.at
      FROM unnest(%s::uuid[], %s::bigint[]) AS t(lease, seen)
     CROSS JOIN LATERAL (SELECT id, lease_uuid, status, error, at FROM leases_statusevent
                          WHERE lease_uuid = t.lease AND id > t.seen ORDER BY id LIMIT %s) AS e
     ORDER BY e.id
"""


class EventReader:
    """Asks for events over one connection, one question at a time; opens it when it is needed and after a loss."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._connection = LoopConnection()

    async def kept(self, lease: UUID) -> Kept:
        """What is kept of a lease. Raises psycopg.Error or OSError when the database is away."""
        rows = await self._rows(_KEPT, [lease])
        if not rows:
            raise LookupError(lease)
        oldest, phase, now, *newest = rows[0]
        found = StatusFact(newest[0], lease, *newest[1:]) if newest[0] is not None else None
        return Kept(oldest, found, phase, now)

    async def later(self, seen: Mapping[UUID, int]) -> list[StatusFact]:
        """Events of these leases with greater ids, in order of id: of each lease the next page. Raises as `kept`."""
        return [StatusFact(*row) for row in await self._rows(_LATER, [list(seen), list(seen.values()), PAGE])]

    async def close(self) -> None:
        """Close the connection."""
        async with self._lock:
            await self._connection.close()

    async def _rows(self, query: LiteralString, params: Sequence[Any]) -> list[tuple[Any, ...]]:
        # Who asked may go away in the middle; the connection is then still in order for the next.
        asking = asyncio.ensure_future(self._ask(query, params))
        asking.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(asking)

    async def _ask(self, query: LiteralString, params: Sequence[Any]) -> list[tuple[Any, ...]]:
        async with self._lock:
            return await self._connection.rows(query, params)


@asynccontextmanager
async def listening() -> AsyncIterator[AsyncIterator[set[UUID]]]:
    """A connection that listens: leases that have new events, as they are told of; now and then nothing, in silence.

    Leaving out nothing but what was committed before it was entered. Raises psycopg.Error, OSError or TimeoutError when
    the connection is lost.
    """
    opened = await connect()
    try:
        await opened.execute(f"LISTEN {CHANNEL}")
        yield _told(opened)
    finally:
        await opened.close()


async def _told(opened: psycopg.AsyncConnection[Any]) -> AsyncIterator[set[UUID]]:
    while True:
        found: set[UUID] = set()
        async for note in opened.notifies(timeout=_WAIT_S, stop_after=1):
            found.update(UUID(text) for text in note.payload.split(","))
        yield found
        if not found:
            async with asyncio.timeout(_TRY_S):
                await opened.execute("SELECT")
