"""Django's views on the event loop itself, for those that step aside wherever they wait (see `fred.on_loop`).

A thread for each request costs more than a small read does: handing it over, the way back, and the fight of the threads
for the interpreter.
"""

from __future__ import annotations

import time
from functools import partial

from fred import on_loop
from fred.edge import Receive, Scope, Send
from fred.handler import SENT, Answer, Asked, ThreadedDjango, call_all, too_late
from fred.time_limits import TimeLimit


class LoopDjango:
    """ASGI application that runs the views of `django`, and on its threads what of them blocks.

    Only for requests that read: one whose time is over is ended where it waits.
    """

    def __init__(self, django: ThreadedDjango) -> None:
        self._django = django

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        django = self._django
        asked = await django.read(scope, receive)
        with django.room.place():
            try:
                answer = await self._outcome(scope, asked)
                await answer.tell(send, keep=asked.whole)
            finally:
                call_all(scope[SENT])

    async def _outcome(self, scope: Scope, asked: Asked) -> Answer:
        django = self._django
        view = partial(django.respond, scope, asked)
        try:
            with TimeLimit(asked.budget.until - time.monotonic()):
                return await on_loop.run(view, aside=django.aside, briefly=django.briefly)
        except TimeoutError:
            return too_late(scope, nothing_done=True, started=True)
