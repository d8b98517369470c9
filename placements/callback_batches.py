"""Micro-batches: callbacks that arrive while one transaction commits are stored together by the next."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import structlog
from django.db import connection, connections

from fred import idle_links
from placements import callback_counts, callbacks
from placements.callback_request import VerifiedCallback

BATCH: Final = 500
"""The most callbacks of one transaction."""
MOST_WAITING: Final = 20_000
"""Callbacks held in memory at most; more are refused at once and come again from their senders."""
BUSY_PAUSE_S: Final = 0.02
"""Pause before callbacks whose leases were locked are tried again, when nothing else waits."""

log = structlog.get_logger(__name__)

T = TypeVar("T")
_Waiting = tuple[VerifiedCallback, "asyncio.Future[None]"]


class NotStored(Exception):
    """The callback is not committed; its sender has to keep it."""


class Batcher:
    """Stores callbacks from one event loop over one thread with one database connection."""

    def __init__(self, apply: Callable[[Sequence[VerifiedCallback]], set[VerifiedCallback]] = callbacks.apply) -> None:
        self._apply = apply
        self._waiting: deque[_Waiting] = deque()
        self._in_hand: set[asyncio.Future[None]] = set()
        self._met_lock: set[asyncio.Future[None]] = set()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="callbacks")
        self._runner: asyncio.Task[None] | None = None
        self._closed = False

    async def store(self, callback: VerifiedCallback, *, within: float) -> None:
        """Return once this callback is committed.

        Raises NotStored when that failed, took longer than ``within`` seconds, or when too many wait already. Whoever
        stops waiting takes the callback out again unless its transaction is under way.
        """
        if self._closed or len(self._waiting) >= MOST_WAITING:
            callback_counts.refused(callback, was_busy=False)
            raise NotStored
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(within, self._give_up, callback, done)
        self._waiting.append((callback, done))
        if self._runner is None or self._runner.done():
            self._runner = asyncio.create_task(self._run())
        try:
            await done
        finally:
            timer.cancel()
            self._met_lock.discard(done)

    async def call(self, function: Callable[[], T]) -> T:
        """Run this in the thread with the database connection, between two batches. Raises what it raises."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._called, function)

    @staticmethod
    def _called(function: Callable[[], T]) -> T:
        try:
            idle_links.renew()
            return function()
        except Exception:
            connection.close()
            raise

    async def close(self) -> None:
        """Store what waits, then end the thread and its connection."""
        self._closed = True
        if self._runner is not None:
            await self._runner
        await asyncio.get_running_loop().run_in_executor(self._thread, connections.close_all)
        self._thread.shutdown()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            batch = [entry for entry in self._take() if not entry[1].done()]
            if not batch:
                continue
            self._in_hand = {done for _, done in batch}
            stored, failed = await loop.run_in_executor(self._thread, self._store, [entry[0] for entry in batch])
            self._in_hand = set()
            busy = self._told(batch, stored, failed)
            if busy:
                pause = not self._waiting
                self._waiting.extendleft(reversed(busy))
                if pause:
                    await asyncio.sleep(BUSY_PAUSE_S)

    def _told(
        self, batch: Sequence[_Waiting], stored: set[VerifiedCallback], failed: set[VerifiedCallback]
    ) -> list[_Waiting]:
        """End the waits of those that were stored or failed; return the others, whose leases were locked."""
        busy = []
        for entry in batch:
            callback, done = entry
            if callback in failed:
                callback_counts.refused(callback, was_busy=False)
                if not done.done():
                    done.set_exception(NotStored())
            elif callback in stored:
                if not done.done():
                    done.set_result(None)
            elif done.done():
                callback_counts.refused(callback, was_busy=True)
            else:
                self._met_lock.add(done)
                busy.append(entry)
        return busy

    def _give_up(self, callback: VerifiedCallback, done: "asyncio.Future[None]") -> None:
        """Its time is over. One that a transaction has in hand is counted when that ends: it may be stored yet."""
        if done.done():
            return
        done.set_exception(NotStored())
        if done not in self._in_hand:
            callback_counts.refused(callback, was_busy=done in self._met_lock)

    def _take(self) -> list[_Waiting]:
        return [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]

    def _store(self, batch: Sequence[VerifiedCallback]) -> tuple[set[VerifiedCallback], set[VerifiedCallback]]:
        """Apply a batch (in the thread); return those committed and those that failed. The rest met a locked lease.

        One that breaks its transaction hurts only itself: the batch is split until it stands alone.
        """
        try:
            idle_links.renew()
            busy = self._apply(batch)
        except Exception as error:  # noqa: BLE001
            connection.close()
            if len(batch) == 1 or not callbacks.is_of_one_row(error):
                log.error("callback.not_stored", callbacks=len(batch), error=type(error).__name__)  # noqa: TRY400
                return set(), set(batch)
            middle = len(batch) // 2
            left, right = self._store(batch[:middle]), self._store(batch[middle:])
            return left[0] | right[0], left[1] | right[1]
        return {callback for callback in batch if callback not in busy}, set()
