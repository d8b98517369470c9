"""Django's synchronous views inside an ASGI server: a bounded pool of threads that live as long as the process.

Django's own ASGI handler starts and joins a thread for each request, which costs more than most of our views.
"""

from __future__ import annotations

import asyncio
import io
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import IO, Any, Final, TypeVar

import structlog
from django.core import signals
from django.core.handlers.asgi import ASGIRequest
from django.core.handlers.base import BaseHandler
from django.db import DEFAULT_DB_ALIAS, connections
from django.http import HttpRequest
from django.urls import set_script_prefix

from fred import on_loop, request_ids
from fred.budget import Budget, spending
from fred.edge import ROUTE, Busy, Receive, Scope, Send
from fred.envelope import envelope, headers_of
from fred.straight import Straight
from fred.time_limits import TimeLimit

_CONVERTER: Final = re.compile(r"<(?:[^:>]+:)?([^>]+)>")
_READ_ONLY: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_SPARE_S: Final = 1.0
MOST: Final = 1000
"""Requests that are in work at once; who comes beside them is told so."""
MOMENT_THREADS: Final = 4
ASIDE_THREADS: Final = 16
"""Threads for what requests of the loop wait for and have no form for a loop for."""
MOST_ASIDE: Final = 200
"""So many of them have such a thread or wait for one; the rest of `MOST` is for those who need none."""
_T = TypeVar("_T")

log = structlog.get_logger(__name__)

SENT: Final = "fred.sent"
"""Scope key of a list: what a view puts there is called once its answer was written, or can't be any more."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request may take: bytes of body, seconds to read it, to answer once it is read, and for both."""

    body_bytes: int
    read_s: float
    answer_s: float
    whole_s: float = float("inf")

    @property
    def reading_s(self) -> float:
        """Seconds to read a body, of which enough is left to say that it could not be read."""
        return min(self.read_s, self.whole_s - min(_SPARE_S, self.whole_s / 2))


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole response, ready to send."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes

    async def tell(self, send: Send, *, keep: bool) -> None:
        """Send it; without `keep` the connection ends with it."""
        headers = self.headers if keep else [*self.headers, (b"connection", b"close")]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that was read: its body, whether that is `whole`, and the time that is left for it."""

    body: IO[bytes]
    whole: bool
    budget: Budget


class UnreadableBody(io.BytesIO):
    """The body of a request that was cut, too slow or over the cap: whoever reads it gets an OSError."""

    def read(self, size: int | None = -1, /) -> bytes:  # noqa: ARG002 - whatever is asked for
        """Raises OSError."""
        raise OSError("the request's body could not be read")


class Room:
    """How many requests may be in work at once, in all handlers that share it. For one event loop."""

    def __init__(self, places: int = MOST) -> None:
        self._free = places

    @property
    def is_full(self) -> bool:
        """Whether the next request would be told so."""
        return self._free <= 0

    @contextmanager
    def place(self) -> Iterator[None]:
        """A place for one request whose body is there; raises Busy when there is none."""
        if self.is_full:
            raise Busy
        self._free -= 1
        try:
            yield
        finally:
            self._free += 1


class ThreadedDjango(BaseHandler):
    """ASGI application that runs Django's views on its own threads.

    `routes` names the threads of a path: what must answer while the others are all busy has threads of its own.
    Without `middleware` a request goes straight to its view: no session, no cookie, no header of Django's.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        threads: int,
        reserved: Mapping[str, int],
        middleware: bool,
        room: Room | None = None,
    ) -> None:
        """`reserved` maps a path to the number of threads that serve it and nothing else; all others need `room`."""
        super().__init__()
        self._limits = limits
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="django")
        self._reserved = {
            path: ThreadPoolExecutor(number, thread_name_prefix=path.strip("/")) for path, number in reserved.items()
        }
        self._moments = ThreadPoolExecutor(MOMENT_THREADS, thread_name_prefix="moments")
        self._aside = ThreadPoolExecutor(ASIDE_THREADS, thread_name_prefix="aside")
        self._places_aside = MOST_ASIDE
        self.room = room or Room()
        self._straight = None if middleware else Straight()
        if middleware:
            self.load_middleware(is_async=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        asked = await self.read(scope, receive)
        reserved = self._reserved.get(scope["path"])
        if reserved is not None:
            await self._answer(reserved, scope, asked, send)
            return
        with self.room.place():
            await self._answer(self._pool, scope, asked, send)

    async def _answer(self, pool: ThreadPoolExecutor, scope: Scope, asked: Asked, send: Send) -> None:
        future = pool.submit(self.respond, scope, asked)
        try:
            answer = await self._outcome(scope, future, asked.budget)
            await answer.tell(send, keep=asked.whole)
        finally:
            future.add_done_callback(lambda _: call_all(scope[SENT]))

    async def read(self, scope: Scope, receive: Receive) -> Asked:
        """Read a request to its end, which its time begins with."""
        ends_at = time.monotonic() + self._limits.whole_s
        body, whole = await self._read(receive)
        scope[SENT] = []
        seconds = min(self._limits.answer_s, ends_at - time.monotonic())
        return Asked(body, whole, Budget(seconds, changes=scope["method"] not in _READ_ONLY))

    def aside(self, function: Callable[[], _T]) -> asyncio.Future[_T]:
        """Run something of a request of the loop on a thread that no view has. Raises NoRoom when too many wait."""
        if self._places_aside <= 0:
            raise on_loop.NoRoom
        self._places_aside -= 1
        begun = asyncio.wrap_future(self._aside.submit(_and_release, function))
        begun.add_done_callback(self._came_back)
        return begun

    def briefly(self, function: Callable[[], _T]) -> asyncio.Future[_T]:
        """The same for what takes moments: on threads that nothing else has."""
        return asyncio.wrap_future(self._moments.submit(_and_release, function))

    def _came_back(self, _: asyncio.Future[Any]) -> None:
        self._places_aside += 1

    def close(self) -> None:
        """Take no more requests; those that have a thread end in their own time."""
        for pool in (self._pool, self._moments, self._aside, *self._reserved.values()):
            pool.shutdown(wait=False, cancel_futures=True)

    async def _outcome(self, scope: Scope, future: Future[Answer], budget: Budget) -> Answer:
        # What `wrap_future` and `wait` do, at a third of their cost: they were a tenth of a short request.
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[Answer | None] = loop.create_future()
        future.add_done_callback(lambda done: _hand_over(done, waiting, loop))
        timer = loop.call_later(budget.until - time.monotonic(), _give_up, waiting)
        try:
            answer = await waiting
        finally:
            timer.cancel()
        if answer is not None:
            return answer
        # The view goes on; what a write has done by now nobody knows, unless it never got a thread or kept it in.
        nothing_done = future.cancel() or budget.end()
        return too_late(scope, nothing_done=nothing_done, started=not future.cancelled())

    async def _read(self, receive: Receive) -> tuple[IO[bytes], bool]:
        parts: list[bytes] = []
        size = 0
        try:
            with TimeLimit(self._limits.reading_s):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return UnreadableBody(), False
                    part = message.get("body", b"")
                    size += len(part)
                    if size > self._limits.body_bytes:
                        return UnreadableBody(), False
                    parts.append(part)
                    if not message.get("more_body", False):
                        return io.BytesIO(b"".join(parts)), True
        except TimeoutError:
            return UnreadableBody(), False

    def get_response(self, request: HttpRequest) -> Any:
        """The answer of the view, with what middleware there is around it."""
        return super().get_response(request) if self._straight is None else self._straight.response(request)

    def respond(self, scope: Scope, asked: Asked) -> Answer:
        """Run the view, in a thread of the pool or where `on_loop.is_here`."""
        structlog.contextvars.clear_contextvars()
        request_ids.adopt(scope)
        if self._straight is None:
            set_script_prefix("/")
            signals.request_started.send(sender=type(self), scope=scope)
        request = ASGIRequest(scope, asked.body)
        with spending(asked.budget):
            response: Any = self.get_response(request)
        try:
            status = response.status_code
            if request.resolver_match is not None and status != 405:
                scope[ROUTE] = template_of(request.resolver_match.route)
            content = b"".join(response)
            headers = [(name.encode("ascii").lower(), value.encode("latin-1")) for name, value in response.items()]
            headers += [
                (b"set-cookie", cookie.output(header="").strip().encode()) for cookie in response.cookies.values()
            ]
            if not response.has_header("Content-Length"):
                headers.append((b"content-length", str(len(content)).encode()))
            return Answer(status, headers, content)
        finally:
            if self._straight is None:
                response.close()
            elif not on_loop.is_here():
                _release_connection()


_own: Final = threading.local()


def _release_connection() -> None:
    """Give this thread's connection back to the pool: all of `request_finished` that a view without middleware needs.

    The signal's receivers look up every connection several times, which costs more than giving one back.
    """
    try:
        connection = _own.connection
    except AttributeError:
        connection = _own.connection = connections[DEFAULT_DB_ALIAS]
    if connection.connection is not None:
        connection.close_if_unusable_or_obsolete()


def _and_release(function: Callable[[], _T]) -> _T:
    try:
        return function()
    finally:
        _release_connection()


def _hand_over(done: Future[Answer], waiting: asyncio.Future[Answer | None], loop: asyncio.AbstractEventLoop) -> None:
    """Called in the view's thread."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(_settle, done, waiting)


def _settle(done: Future[Answer], waiting: asyncio.Future[Answer | None]) -> None:
    if waiting.done():
        return
    if done.cancelled():
        waiting.cancel()
    elif (error := done.exception()) is not None:
        waiting.set_exception(error)
    else:
        waiting.set_result(done.result())


def _give_up(waiting: asyncio.Future[Answer | None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


def call_all(functions: list[Callable[[], None]]) -> None:
    """Call what a view put into `SENT`."""
    for function in functions:
        function()


@cache
def template_of(route: str) -> str:
    """A route of Django's as the template that stands in metrics: `/v1/leases/{lease_uuid}/status`."""
    return "/" + _CONVERTER.sub(r"{\1}", route)


def too_late(scope: Scope, *, nothing_done: bool, started: bool) -> Answer:
    """What is told when the time of a request is over; `started` for the log: whether its view had begun."""
    log.warning("api.request_timeout", method=scope["method"], path=scope["path"], started=started)
    return _error(503, "request timeout", line_feed=False) if nothing_done else _error(500, "internal server error")


def _error(status: int, text: str, *, line_feed: bool = True) -> Answer:
    body = envelope(status, text)
    body = body if line_feed else body.rstrip(b"\n")
    return Answer(status, headers_of(status, body), body)
