"""The web process's own application, asked on the event loop or on its threads as the test chooses."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar
from typing import Any

from django.utils import timezone

from backends import targets
from fred import breaker, loop_handler
from fred.handler import ThreadedDjango
from leases.status import LeaseState
from reconciliation.sources import Sources
from tenants_api import lease_reads, throttles
from tests import asgi
from tests.database import empty_tables
from tests.factories.leases import ChainCursorFactory, LeaseFactory
from tests.tenants_api.calls import PROVIDER, bearer
from tests.tenants_api.conftest import TableChain
from tests.tenants_api.vectors import ALICE, LEASE

WAYS = ("loop", "threads")
_way: ContextVar[str] = ContextVar("way")
_OWN = {"x-request-id", "traceparent"}


class _OnTheLoop:
    """Stands for the routes that run on the loop: all of them when a request is to go that way, else none."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def __contains__(self, name: object) -> bool:
        return name in self._names and _way.get() == "loop"


class BothWays:
    """The composed application; `asked` counts the requests that Django got on each way."""

    def __init__(self, monkeypatch: Any) -> None:
        from fred import web

        self.asked = dict.fromkeys(WAYS, 0)
        monkeypatch.setattr(web, "QUICK", _OnTheLoop(web.QUICK))
        self._count(monkeypatch, loop_handler.LoopDjango, "loop")
        self._count(monkeypatch, ThreadedDjango, "threads")

    def _count(self, monkeypatch: Any, kind: Any, way: str) -> None:
        call = kind.__call__

        async def counted(one: Any, scope: Any, receive: Any, send: Any) -> None:
            self.asked[way] += 1
            await call(one, scope, receive, send)

        monkeypatch.setattr(kind, "__call__", counted)

    def run(self, work: Any) -> Any:
        """What `work(ask)` returns; `await ask(way, route)` sends one request, and says what came of it."""
        from fred.web import compose

        async def main() -> Any:
            app = compose()

            async def ask(
                way: str, route: str, *, path: str = LEASE, method: str = "GET", headers: Any = None
            ) -> asgi.Response:
                sent = bearer(lease=path) if headers is None else headers

                async def asked() -> asgi.Response:
                    _way.set(way)
                    return await asgi.request(app, method, f"/v1/leases/{path}/{route}", headers=sent)

                return await asyncio.create_task(asked())

            try:
                async with asyncio.timeout(60):
                    return await work(ask)
            finally:
                for close in app._closers:
                    await close()

        return asyncio.run(main())

    def one(self, way: str, route: str, **how: Any) -> asgi.Response:
        """One request."""
        before = self.asked[way]
        answer: asgi.Response = self.run(lambda ask: ask(way, route, **how))
        assert self.asked[way] == before + 1, f"{route} did not go over the {way}"
        return answer


def told(answer: asgi.Response) -> tuple[int, dict[str, str], bytes]:
    """All of an answer but what is another each time."""
    return answer.status, {name: value for name, value in answer.headers.items() if name not in _OWN}, answer.body


def forget() -> None:
    """What this process remembers of backends and of Valkey."""
    breaker.forget()
    targets.forget()
    throttles._buckets.cache_clear()


class Stage:
    """What a case arranges, from nothing for each way."""

    def __init__(self, backends, house, valkey, monkeypatch):
        self.backends, self.house, self._valkey, self._monkeypatch = backends, house, valkey, monkeypatch
        self._config = house.FRED
        self.held = threading.Event()

    def begin(self):
        """Nothing is there but a watcher that saw a head just now."""
        empty_tables()
        self._valkey.flushdb()
        self.house.FRED = self._config
        forget()
        for one in self.backends.all:
            one.answers.clear()
            one.calls.clear()
        self.chain = TableChain()
        self._monkeypatch.setattr(lease_reads, "sources", Sources(self.chain))
        ChainCursorFactory(head_seen_at=timezone.now())

    def release(self):
        """Let backends that are silent so far say something."""
        self.held.set()
        self.held = threading.Event()

    def lease(self, **changes):
        fields = {"uuid": LEASE, "tenant": ALICE, "provider_uuid": PROVIDER, "chain_state": LeaseState.ACTIVE}
        return LeaseFactory(**{**fields, "items": [], **changes})

    def configure(self, **changes):
        """Change the first backend's configuration."""
        first = self.house.FRED.backends[0].model_copy(update=changes)
        self.house.FRED = self.house.FRED.model_copy(update={"backends": (first, *self.house.FRED.backends[1:])})

    def limit(self, *, rps, burst):
        self.house.FRED = self.house.FRED.model_copy(
            update={"tenant_rate_limit_rps": rps, "tenant_rate_limit_burst": burst}
        )
