"""Answers for many askers of an event loop in batches: what is asked for while one runs goes into the next.

One task, so one batch at a time: the more come at once, the less each of them costs. Who was in one batch is likely to
be in the next, here and elsewhere, so that they stay together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from fred.per_loop import PerLoop

MOST: Final = 200
"""Questions in one batch."""

_K = TypeVar("_K")
_V = TypeVar("_V")
_K_contra = TypeVar("_K_contra", contravariant=True)
_V_co = TypeVar("_V_co", covariant=True)


class Answerer(Protocol[_K_contra, _V_co]):
    """What a batch is put to; it belongs to one loop and is closed with it."""

    async def answer(self, asked: Sequence[_K_contra], /) -> Sequence[_V_co]:
        """One answer for each question, in their order. What it raises is raised to everybody in the batch."""

    async def close(self) -> None:
        """Let go of what it holds."""


@dataclass(slots=True)
class _Queue(Generic[_K, _V]):
    """The questions of one loop, and the task that puts them."""

    loop: asyncio.AbstractEventLoop
    waiting: list[tuple[_K, asyncio.Future[_V]]]
    wake: asyncio.Event
    task: asyncio.Task[None]


class Together(Generic[_K, _V]):
    """Belongs to no loop: each that asks has a task and an answerer of its own."""

    def __init__(self, make: Callable[[], Answerer[_K, _V]], *, most: int = MOST) -> None:
        """`make` gives a loop its answerer; `most` questions are put at once."""
        self._make = make
        self._most = most
        self._queues: PerLoop[_Queue[_K, _V]] = PerLoop(self._begin)

    async def ask(self, question: _K) -> _V:
        """The answer, once its batch has run."""
        return await self.begin(question)

    def begin(self, question: _K) -> asyncio.Future[_V]:
        """The answer to come. Whoever wants it no more cancels it; then its error, too, is nobody's."""
        queue = self._queues.here()
        if queue.task.done():
            self._queues.taken()
            queue = self._queues.here()
        future: asyncio.Future[_V] = queue.loop.create_future()
        queue.waiting.append((question, future))
        queue.wake.set()
        return future

    async def close(self) -> None:
        """End this loop's task and answerer; who still waits is cancelled, whoever asks from now on begins anew.

        Raises what the answerer's `close` does.
        """
        queue = self._queues.taken()
        if queue is not None:
            queue.task.cancel()
            await asyncio.wait([queue.task])
            if not queue.task.cancelled():
                queue.task.result()

    def _begin(self) -> _Queue[_K, _V]:
        waiting: list[tuple[_K, asyncio.Future[_V]]] = []
        wake = asyncio.Event()
        loop = asyncio.get_running_loop()
        return _Queue(loop, waiting, wake, loop.create_task(self._work(self._make(), waiting, wake)))

    async def _work(
        self, answerer: Answerer[_K, _V], waiting: list[tuple[_K, asyncio.Future[_V]]], wake: asyncio.Event
    ) -> None:
        try:
            while True:
                await wake.wait()
                many = 0
                while many < len(waiting) < self._most:  # those come whose answers are here by now, one after the other
                    many = len(waiting)
                    await asyncio.sleep(0)
                wake.clear()
                while waiting:
                    # Who gave up meanwhile is not asked for.
                    batch = [one for one in waiting[: self._most] if not one[1].done()]
                    del waiting[: self._most]
                    if batch:
                        await _put(answerer, batch)
        finally:
            _leave(waiting)
            try:
                await answerer.close()
            finally:
                _leave(waiting)  # who came meanwhile


def _leave(waiting: Sequence[tuple[_K, asyncio.Future[_V]]]) -> None:
    for _, future in waiting:
        future.cancel()


async def _put(answerer: Answerer[_K, _V], batch: Sequence[tuple[_K, asyncio.Future[_V]]]) -> None:
    try:
        answers = await answerer.answer([question for question, _ in batch])
        answered = list(zip(batch, answers, strict=True))
    except asyncio.CancelledError:
        for _, future in batch:
            future.cancel()
        raise
    except Exception as error:  # noqa: BLE001 - it is raised where it was asked
        for _, future in batch:
            if not future.done():
                future.set_exception(error)
        return
    for (_, future), found in answered:
        if not future.done():
            future.set_result(found)
