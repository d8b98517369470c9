"""What the web process is made of: the edge, the callback route, Django's views; or the admin site alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Final

import structlog
from django.conf import settings

from fred import loop_http
from fred.address_limit import AddressLimit, Along
from fred.edge import ROUTE, App, Edge, Receive, Scope, Send
from fred.envelope import envelope, headers_of
from fred.handler import Limits, Room, ThreadedDjango
from fred.loop_handler import LoopDjango
from fred.request_ids import REQUEST_ID
from fred.upgrade import events_segment
from placements import callbacks_asgi, dispatch
from tenants_api import lease_reads, loop_reads, read_ahead, throttles
from tenants_api.errors import ApiError
from tenants_api.event_streams import EventStreams, StreamLimits
from tenants_api.events_asgi import EventsApp

THREADS: Final = 16
"""Threads for views; more only compete for the interpreter and the database pool."""
WAITING: Final = frozenset({"restart", "update", "restore"})
"""Last segments of the routes whose requests wait for what their backend answers."""
QUICK: Final = frozenset({"status", "provision", "connection"})
"""Last segments of the routes whose views run on the event loop."""
ASKING: Final = frozenset({"logs", "releases", "workloads"})
"""Last segments of the other routes that ask backends, whose answers are too big to be read on the event loop."""
WAITING_THREADS: Final = 16
"""Threads for those: each may wait ten seconds, and reads and uploads answer while all of them do."""
ASKING_THREADS: Final = 16
"""Threads for those: each may wait for a backend that says nothing, and uploads are taken while all of them do."""
RESERVED: Final = {"/health": 2, "/readyz": 2, "/metrics": 1}
"""Probes answer while every other thread waits."""
ANSWER_WITHIN_S: Final = 12.0
"""Once the body is read."""
WRITE_SHARE: Final = 0.95
"""Share of the write limit after which there is an answer in any case, so that it can still be written."""
ADMIN_ANSWER_WITHIN_S: Final = 60.0

log = structlog.get_logger(__name__)


class Web:
    """Routes a connection to the application that serves it, and closes what the process holds at its end."""

    def __init__(self, app: App, closers: Sequence[Callable[[], Awaitable[None]]]) -> None:
        """`app` answers requests and opens WebSockets; each closer runs once at shutdown, in order."""
        self._app = app
        self._closers = closers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await self._app(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                for close in self._closers:
                    try:
                        await close()
                    except Exception:
                        log.exception("web.close_failed")
                await send({"type": "lifespan.shutdown.complete"})
                return


def route_by_path(routes: dict[str, App], otherwise: App, *, events: App | None = None) -> App:
    """Exact paths first, then the events of a lease; everything else to `otherwise`, but no WebSocket."""

    async def routed(scope: Scope, receive: Receive, send: Send) -> None:
        if events is not None and events_segment(scope["raw_path"]):
            await events(scope, receive, send)
            return
        if scope["type"] == "websocket":
            await refuse_websocket(scope, receive, send)
            return
        app = routes.get(scope["path"])
        if app is None:
            await otherwise(scope, receive, send)
            return
        if scope["method"] == "POST":  # the router's own 405 belongs to no route
            scope[ROUTE] = scope["path"]
        await app(scope, receive, send)

    return routed


def apart(views: App, *, quick: App, asking: App, waiting: App) -> App:
    """Small reads to `quick`, other questions to backends to `asking`, commands to `waiting`, the rest to `views`."""

    async def chosen(scope: Scope, receive: Receive, send: Send) -> None:
        last = scope["path"].rpartition("/")[2]
        app = quick if last in QUICK else asking if last in ASKING else waiting if last in WAITING else views
        await app(scope, receive, send)

    return chosen


async def refuse_websocket(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer an upgrade on a path without a WebSocket with the 404 of the router."""
    await receive()
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1000})
        return
    body = envelope(404, "not found")
    await send({"type": "websocket.http.response.start", "status": 404, "headers": headers_of(404, body)})
    await send({"type": "websocket.http.response.body", "body": body})


def compose(*, streams: StreamLimits | None = None, quick: Callable[[ThreadedDjango], App] = LoopDjango) -> Web:
    """Build the application that this process's role asks for.

    `streams` are other limits than usual on events, `quick` another way to serve the small reads.
    """
    config = settings.FRED
    read_s = config.http_read_timeout.total_seconds()
    if settings.HOUSE.fred_role == "admin":
        limits = Limits(config.max_request_body_size, read_s, ADMIN_ANSWER_WITHIN_S)
        site = ThreadedDjango(limits, threads=4, reserved=RESERVED, middleware=True)
        return Web(Edge(route_by_path({}, site), cors_origins=(), secures=False), [_closer(site)])
    whole_s = config.http_write_timeout.total_seconds() * WRITE_SHARE
    limits = Limits(config.max_request_body_size, read_s, ANSWER_WITHIN_S, whole_s)
    room = Room()
    django_views = ThreadedDjango(limits, threads=THREADS, reserved=RESERVED, middleware=False, room=room)
    asking = ThreadedDjango(limits, threads=ASKING_THREADS, reserved={}, middleware=False, room=room)
    waiting = ThreadedDjango(limits, threads=WAITING_THREADS, reserved={}, middleware=False, room=room)
    callbacks = callbacks_asgi.CallbackEndpoint(config, barred=callbacks_asgi.barred_backends)
    dispatch.use_in_web()
    events = EventsApp(EventStreams(streams or StreamLimits()))
    ahead = partial(_read_ahead, room) if quick is LoopDjango else _nothing
    views = apart(django_views, quick=quick(django_views), asking=asking, waiting=waiting)
    routed = route_by_path({callbacks_asgi.PATH: callbacks}, views, events=events)
    edge = Edge(
        routed,
        cors_origins=config.cors_origins,
        limit=AddressLimit(rate=config.rate_limit_rps, burst=config.rate_limit_burst, ahead=ahead),
        trusts=lru_cache(maxsize=4096)(config.trusts),
        error_body=error_body,
    )
    readers = (loop_http.requests.close, throttles.close, loop_reads.close, lease_reads.rows.close)
    handlers = (_closer(one) for one in (django_views, asking, waiting))
    return Web(edge, [*handlers, callbacks.close, events.close, edge.close, *readers, _drain])


def error_body(scope: Scope, status: int, text: str, name: str) -> tuple[bytes, bytes]:
    """An error of the layers below Django, with problem details for who accepts them: media type and body."""
    accept = next((value for key, value in scope["headers"] if key == b"accept"), b"")
    found = ApiError(status, text, error_code=name).rendered(
        accept=accept.decode("latin-1"), request_id=scope[REQUEST_ID]
    )
    return found.headers["Content-Type"].encode(), found.body


def _read_ahead(room: Room, scope: Mapping[str, Any]) -> Along | None:
    """Ask for what a request will need whose view runs on the event loop."""
    is_quick = scope["type"] == "http" and scope["path"].rpartition("/")[2] in QUICK
    return read_ahead.begin(room, scope) if is_quick else None


def _nothing(_scope: Mapping[str, Any]) -> None:
    """Ask for nothing ahead."""


async def _drain() -> None:
    await asyncio.to_thread(dispatch.drain)


def _closer(handler: ThreadedDjango) -> Callable[[], Awaitable[None]]:
    async def close() -> None:
        handler.close()

    return close
