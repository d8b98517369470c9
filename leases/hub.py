"""Live status events of this process: a topic per lease that has subscribers, a bounded queue for each of them.

What PostgreSQL tells is only that a lease has news. The hub then reads what is newer than it has seen, for all such
leases in one query, and hands it on; so an event comes once and in order, also when a notification was lost with its
connection: after that, and every 10 s, every topic is read.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

import psycopg
import structlog

from fred import metrics
from leases.event_reads import PAGE, EventReader, Kept, StatusFact, listening

QUEUE: Final = 16
"""Events that wait for one subscriber."""
_TURNS: Final = 4
"""Turns of the loop that a full queue is given: one is enough for a subscriber that takes what it gets."""
RETRY_S: Final = (0.1, 0.2, 0.5, 1.0, 2.0)
"""Waits after a lost connection."""

log = structlog.get_logger("leases.hub")


class Subscription:
    """What one subscriber has yet to get: in order, each event once.

    One that resumes misses nothing: what does not fit its queue is read again from the table when its turn comes. For
    any other such events are dropped and counted.
    """

    __slots__ = (
        "_behind",
        "_live",
        "_paged",
        "_reader",
        "_ready",
        "_size",
        "_topic",
        "after",
        "is_slow",
        "kept",
        "resumes",
    )

    def __init__(self, topic: Topic, reader: EventReader, kept: Kept, *, after: int, resumes: bool, size: int) -> None:
        self._topic, self._reader, self._size = topic, reader, size
        self.kept, self.after, self.resumes = kept, after, resumes
        self.is_slow = False
        self._behind = resumes and after < max(kept.newest_id, topic.seen)
        self._live: deque[StatusFact] = deque()
        self._paged: deque[StatusFact] = deque()
        self._ready = asyncio.Event()

    async def next(self) -> StatusFact:
        """The next event, when there is one. May be cancelled without losing any."""
        while True:
            found = self._waiting()
            if found is not None:
                return found
            if self._behind:
                await self._read()
            else:
                self._ready.clear()
                await self._ready.wait()

    @property
    def waits_for_its_turn(self) -> bool:
        """Whether its queue is full and it has had no turn of the loop to empty it."""
        return not (self.is_slow or self.resumes) and len(self._live) >= self._size

    def offer(self, event: StatusFact) -> None:
        """Take a live event, if there is room for it."""
        if event.id <= self.after or self._behind:
            return
        if len(self._live) < self._size:
            self._live.append(event)
        elif self.resumes:
            self._live.clear()
            self._behind = True
        else:
            metrics.API_EVENTS_DROPPED.inc()
        self._ready.set()

    def leave(self) -> None:
        """Want no more."""
        self._topic.subscribers.discard(self)

    def _waiting(self) -> StatusFact | None:
        for queue in (self._paged, self._live):
            while queue:
                event = queue.popleft()
                self.is_slow = False
                if event.id > self.after:
                    self.after = event.id
                    return event
        return None

    async def _read(self) -> None:
        """Read on from the table after the last event that was given out."""
        self._behind = False  # from here on what is live is queued again
        failed = 0
        while True:
            try:
                page = await self._reader.later({self._topic.lease: self.after})
                break
            except (psycopg.Error, OSError):
                await asyncio.sleep(RETRY_S[min(failed, len(RETRY_S) - 1)])
                failed += 1
            except asyncio.CancelledError:
                self._behind = True
                raise
        self._paged.extend(page)
        if len(page) == PAGE:
            self._live.clear()
            self._behind = True


@dataclass(slots=True, eq=False)
class Topic:
    """A lease with subscribers, and the newest of its events that they were offered."""

    lease: UUID
    seen: int
    subscribers: set[Subscription] = field(default_factory=set)


class Hub:
    """The topics of this process. Belongs to one event loop; starts with the first subscriber."""

    def __init__(self, *, queue: int = QUEUE) -> None:
        """`queue`: events that may wait for one subscriber."""
        self._queue = queue
        self._topics: dict[UUID, Topic] = {}
        self._dirty: set[UUID] = set()
        self._woken = asyncio.Event()
        self._live_reader, self._reader = EventReader(), EventReader()
        self._tasks: list[asyncio.Task[None]] = []

    async def subscribe(self, lease: UUID, *, since: int | None = None, resumes: bool = False) -> Subscription:
        """Subscribe to a lease's events from now on, or after the id `since`, as one that `resumes`.

        A `since` that is older than what is kept, or newer, counts as now. Raises psycopg.Error or OSError when the
        database is away, LookupError when it has no such lease.
        """
        if not self._tasks:
            # In a context of their own: what they log belongs to no request, not even to the first.
            self._tasks = [
                asyncio.create_task(work, context=contextvars.Context()) for work in (self._listen(), self._deliver())
            ]
        kept = await self._reader.kept(lease)
        after = kept.newest_id if since is None or is_gap(since, kept) else since
        topic = self._topics.get(lease)
        if topic is None:
            topic = self._topics[lease] = Topic(lease, kept.newest_id)
        resumes = resumes or since is not None
        made = Subscription(topic, self._reader, kept, after=after, resumes=resumes, size=self._queue)
        topic.subscribers.add(made)
        self._look_at([lease])  # what came since `kept` was read, while the topic may not have been there
        return made

    async def close(self) -> None:
        """Stop listening; subscribers get nothing more."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task
        await self._live_reader.close()
        await self._reader.close()

    def _look_at(self, leases: list[UUID]) -> None:
        self._dirty.update(leases)
        self._woken.set()

    async def _listen(self) -> None:
        """Hear of news for ever, whatever becomes of the connection."""
        failed = 0
        while True:
            try:
                async with listening() as told:
                    if failed:
                        log.info("events.listening")
                    failed = 0
                    self._look_at(list(self._topics))
                    async for leases in told:
                        self._look_at([lease for lease in leases or self._topics if lease in self._topics])
            except Exception as error:  # noqa: BLE001 - whatever it is, subscribers are not left without news
                if not failed:
                    log.warning("events.listen_lost", error=type(error).__name__)
            await asyncio.sleep(RETRY_S[min(failed, len(RETRY_S) - 1)])
            failed += 1
            self._look_at(list(self._topics))

    async def _deliver(self) -> None:
        """Offer news to subscribers, for all topics that have any in one query."""
        failed = 0
        while True:
            await self._woken.wait()
            self._woken.clear()
            dirty, self._dirty = self._dirty, set()
            seen = {lease: topic.seen for lease in dirty if (topic := self._in_use(lease)) is not None}
            if not seen:
                continue
            try:
                await self._offer(await self._live_reader.later(seen))
                failed = 0
            except Exception as error:  # noqa: BLE001 - what was not offered is read again
                if not failed:
                    log.warning("events.not_read", error=type(error).__name__)
                await asyncio.sleep(RETRY_S[min(failed, len(RETRY_S) - 1)])
                failed += 1
                self._look_at(list(seen))

    def _in_use(self, lease: UUID) -> Topic | None:
        """The topic of a lease; one that nobody is subscribed to any more goes."""
        topic = self._topics.get(lease)
        if topic is not None and not topic.subscribers:
            del self._topics[lease]
            return None
        return topic

    async def _offer(self, events: list[StatusFact]) -> None:
        counts: dict[UUID, int] = {}
        for event in events:
            counts[event.lease_uuid] = counts.get(event.lease_uuid, 0) + 1
            topic = self._topics.get(event.lease_uuid)
            if topic is not None and topic.seen < event.id:
                await _let_take(topic)
                topic.seen = event.id
                for subscriber in topic.subscribers:
                    subscriber.offer(event)
        self._look_at([lease for lease, number in counts.items() if number == PAGE])


async def _let_take(topic: Topic) -> None:
    """Give subscribers whose queues are full a turn: what is read at once may be more than a queue holds.

    Whoever takes nothing in it is slow, and costs no more turns until it takes something.
    """
    for _ in range(_TURNS):
        if not any(subscriber.waits_for_its_turn for subscriber in topic.subscribers):
            return
        await asyncio.sleep(0)
    for subscriber in topic.subscribers:
        subscriber.is_slow = subscriber.is_slow or subscriber.waits_for_its_turn


def is_gap(since: int, kept: Kept) -> bool:
    """Whether what is kept does not continue after this id; 0 asks for whatever is kept."""
    return since > kept.newest_id or 0 < since < kept.oldest
