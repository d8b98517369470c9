"""The product's web process with the small reads served in other ways, to hold the way it serves them against.

`threads`: each on a thread of a pool, as every other view. `handler`: by Django's own ASGI handler, which is kept from
making a thread for each request and uses the threads of that pool. Started as `python -m fred.server
fred.bench.ways:threads`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fred.settings")
django.setup(set_prefix=False)

from django.core.handlers.asgi import ASGIHandler  # noqa: E402 - models can only be imported once Django is ready
from django.core.handlers.base import BaseHandler  # noqa: E402

from fred import web  # noqa: E402
from fred.edge import App  # noqa: E402
from fred.handler import SENT, ThreadedDjango  # noqa: E402


class PooledHandler(ASGIHandler):
    """Django's handler; its views run on the threads of `django`, without middleware as there."""

    def __init__(self, views: ThreadedDjango) -> None:
        BaseHandler.__init__(self)
        self._views = views

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request, without the context that would give it a thread of its own."""
        scope[SENT] = []
        await self.handle(scope, receive, send)

    async def get_response_async(self, request: Any) -> Any:
        """The view's answer."""
        return await self._views.aside(partial(self._views.get_response, request))


def _on_threads(views: ThreadedDjango) -> App:
    return views


_MADE: Final[dict[str, Callable[[ThreadedDjango], App]]] = {"threads": _on_threads, "handler": PooledHandler}


def __getattr__(name: str) -> App:
    if name not in _MADE:
        raise AttributeError(name)
    return web.compose(quick=_MADE[name])
