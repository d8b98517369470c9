"""Outgoing HTTP from the event loop: the requests of `fred.http`, driven by the loop instead of a thread."""

from __future__ import annotations

import asyncio
import contextvars
import math
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, cast

from msgspec.structs import replace as changed

from fred import on_loop
from fred.http import Multi, Request, Response
from fred.per_loop import PerLoop

CONNECTIONS: Final = 64
"""To one host; further requests wait for one, inside their time limit."""


class LoopHttp:
    """The outgoing requests of event loops: each loop has connections of its own."""

    def __init__(self) -> None:
        self._drivers = PerLoop(_Driver, drop=_Driver.close)

    async def fetch(self, request: Request) -> Response:
        """Send one request; never raises for what the network does. Whoever stops waiting lets it run out unheard."""
        return await self._drivers.here().begin(request)

    def begin_each(self, asked: Iterable[Request]) -> Batch:
        """Send some requests at once."""
        return Batch(self._drivers.here(), asked)

    async def close(self) -> None:
        """Drop everything of this loop; nobody may wait any more."""
        driver = self._drivers.taken()
        if driver is not None:
            driver.close()


class _Driver:
    """The requests of one loop."""

    def __init__(self) -> None:
        self._loop = loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = math.inf
        self._context = contextvars.copy_context()  # not that of whoever sets the timer
        self._is_due = self._is_closed = False
        self._multi = Multi(max_host_connections=CONNECTIONS, kept_connections=CONNECTIONS)
        loop.add_reader(self._multi.fileno(), self._drive)

    def begin(self, request: Request) -> asyncio.Future[Response]:
        """Send a request with the others of this turn of the loop."""
        answer: asyncio.Future[Response] = self._loop.create_future()
        self._multi.submit(request, wake=False, hears=partial(_answer, answer))
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._drive)
        return answer

    def break_off(self, chosen: Callable[[object], bool]) -> None:
        """End the requests under way whose tag is chosen."""
        if not self._is_closed:
            self._multi.break_off(chosen, reason="its answer is no longer wanted")
            self._drive()

    def close(self) -> None:
        """Drop everything; also once the loop has ended."""
        self._is_closed = True
        if not self._loop.is_closed():
            self._loop.remove_reader(self._multi.fileno())
        if self._timer is not None:
            self._timer.cancel()
        self._multi.close()

    def _drive(self) -> None:
        if self._is_closed:
            return
        self._is_due = False
        self._multi.poll(0.0)
        due_at = self._multi.due_at
        if due_at is not None and due_at < self._rings_at:  # a timer that rings too early does no harm
            if self._timer is not None:
                self._timer.cancel()
            self._rings_at, seconds = due_at, max(0.0, due_at - time.monotonic())
            self._timer = self._loop.call_later(seconds, self._ring, context=self._context)

    def _ring(self) -> None:
        self._timer, self._rings_at = None, math.inf
        self._drive()


class Batch:
    """Some requests that were sent at once. Its tags hold those of its requests."""

    def __init__(self, driver: _Driver, asked: Iterable[Request]) -> None:
        self._driver = driver
        self._waiting = {driver.begin(changed(one, tag=(self, one.tag))) for one in asked}

    def __bool__(self) -> bool:
        """Whether some of its responses are not there yet."""
        return bool(self._waiting)

    async def next(self) -> list[Response]:
        """The responses that are there, at least one; each comes once."""
        done, self._waiting = await asyncio.wait(self._waiting, return_when=asyncio.FIRST_COMPLETED)
        return [self._untagged(one.result()) for one in done]

    def break_off(self) -> None:
        """End those that are still under way."""
        if self._waiting:
            self._driver.break_off(lambda tag: isinstance(tag, tuple) and tag[0] is self)

    def _untagged(self, response: Response) -> Response:
        _, tag = cast("tuple[Batch, object]", response.tag)
        return replace(response, tag=tag)


def _answer(answer: asyncio.Future[Response], response: Response) -> None:
    if not answer.done():  # else nobody waits any more
        answer.set_result(response)


requests: Final = LoopHttp()
"""Of this process."""


def fetch(request: Request) -> Response:
    """The same from a view that runs on the loop (see `fred.on_loop`)."""
    return on_loop.wait(requests.fetch(request))


def fetch_each(asked: Sequence[Request]) -> Generator[Response]:
    """The same for some at once: yields each response as soon as it is there, known by its request's tag.

    Whoever stops listening breaks off what still runs.
    """
    batch = requests.begin_each(asked)
    try:
        while batch:
            yield from on_loop.wait(batch.next())
    finally:
        batch.break_off()
