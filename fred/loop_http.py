"""Outgoing HTTP from the event loop: the requests of `fred.http`, driven by the loop instead of a thread."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

from fred import on_loop
from fred.http import Multi, Request, Response

CONNECTIONS: Final = 64
"""To one host; further requests wait for one, inside their time limit."""


class LoopHttp:
    """The outgoing requests of one event loop at a time; a new loop starts anew."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._multi: Multi
        self._timer: asyncio.TimerHandle | None = None
        self._is_due = False

    async def fetch(self, request: Request) -> Response:
        """Send one request; never raises for what the network does. Whoever stops waiting lets it run out unheard."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._begin(loop)
        answer: asyncio.Future[Response] = loop.create_future()
        self._multi.submit(replace(request, tag=answer), wake=False)
        if not self._is_due:  # those of one turn of the loop start together
            self._is_due = True
            loop.call_soon(self._drive)
        return await answer

    async def close(self) -> None:
        """Drop everything of this loop; nobody may wait any more."""
        if self._loop is not asyncio.get_running_loop():
            return
        self._loop.remove_reader(self._multi.fileno())
        if self._timer is not None:
            self._timer.cancel()
        self._multi.close()
        self._loop = None

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is not None and self._loop.is_closed():  # it ended without `close`
            self._multi.close()
        self._loop, self._timer, self._is_due = loop, None, False
        self._multi = Multi(max_host_connections=CONNECTIONS, kept_connections=CONNECTIONS)
        loop.add_reader(self._multi.fileno(), self._drive)

    def _drive(self) -> None:
        loop = self._loop
        if loop is None:
            return
        self._is_due = False
        for response in self._multi.poll(0.0):
            answer = response.tag
            if isinstance(answer, asyncio.Future) and not answer.done():
                answer.set_result(response)
        if self._timer is not None:
            self._timer.cancel()
        seconds = self._multi.timer
        self._timer = None if seconds is None else loop.call_later(seconds, self._drive)


requests: Final = LoopHttp()
"""Of the loop of this process."""


def fetch(request: Request) -> Response:
    """The same from a view that runs on the loop (see `fred.on_loop`)."""
    return on_loop.wait(requests.fetch(request))
