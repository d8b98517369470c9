"""Django's views on the event loop itself, for those that step aside wherever they wait (see `fred.on_loop`).

A thread for each request costs more than a small read does: handing it over, the way back, and the fight of the threads
for the interpreter.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Container
from functools import partial
from typing import Final

from fred import on_loop
from fred.edge import App, Receive, Scope, Send
from fred.envelope import answer as error
from fred.handler import SENT, ThreadedDjango, too_late

BUSY: Final = "service temporarily unavailable"


class LoopDjango:
    """ASGI application that runs the views of `django`, and on its threads what of them blocks.

    Only for requests that read: one whose time is over is ended where it waits.
    """

    def __init__(self, django: ThreadedDjango) -> None:
        self._django = django

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        asked = await self._django.read(scope, receive)
        try:
            async with asyncio.timeout(max(0.0, asked.budget.until - time.monotonic())):
                answer = await on_loop.run(partial(self._django.respond, scope, asked), aside=self._django.aside)
        except TimeoutError:
            answer = too_late(scope, nothing_done=True, started=True)
        try:
            await answer.tell(send, keep=asked.whole)
        finally:
            for function in scope[SENT]:
                function()


def at_most(most: int, *, besides: Container[str], app: App) -> App:
    """So many requests at once, and any to the paths `besides`; who is too many is told so and waits for nothing."""
    inside = 0

    async def counted(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal inside
        if scope["path"] in besides:
            await app(scope, receive, send)
            return
        if inside >= most:
            await error(send, 503, BUSY)
            return
        inside += 1
        try:
            await app(scope, receive, send)
        finally:
            inside -= 1

    return counted
