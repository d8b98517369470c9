"""Callbacks over plain HTTP, from the agent's own event loop, on kept connections.

For TLS there is `fred.http.Multi`. A callback may arrive twice, so one that a kept connection loses before a byte of an
answer is sent again at once, on a new connection. Redirects are not followed; bodies of answers are thrown away.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

import httptools

from fred.http import ErrorKind, HttpError, Request, Response

_MAX_ANSWER = 1 << 20
_IDLE_SECONDS = 90.0
_TICK_SECONDS = 0.5


@dataclass(slots=True)
class _Order:
    """A request under way; times are of the loop's clock."""

    request: Request
    raw: bytes
    place: tuple[str, int]
    begun: float
    deadline: float
    is_second_try: bool = False


class _Wire(asyncio.Protocol):
    """One connection, with at most one request on it."""

    transport: asyncio.Transport

    def __init__(self, sender: "PlainSender", place: tuple[str, int]) -> None:
        self._sender = sender
        self.place = place
        self.order: _Order | None = None
        self.deadline = 0.0
        self.was_used = False
        self._size = 0
        self._status = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        self.transport = transport  # type: ignore[assignment]

    def send(self, order: _Order) -> None:
        """Put this on the wire."""
        self.order = order
        self.deadline = order.deadline
        self._size = self._status = 0
        self._parser = httptools.HttpResponseParser(self)
        self.transport.write(order.raw)

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        self._size += len(data)
        if self.order is None or self._size > _MAX_ANSWER:
            self.fail("the answer is too long" if self.order is not None else "")
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.fail("the answer is no HTTP")

    def on_message_complete(self) -> None:
        """See httptools."""
        status = self._parser.get_status_code()
        order = self.order
        if order is None or status < 200:
            return
        self.order = None
        self.was_used = True
        keep = self._parser.should_keep_alive()
        self._sender.ended(self, order, status, keep=keep)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        order, self.order = self.order, None
        self._sender.lost(self, order, str(exc or "the connection was closed"), was_heard=self._size > 0)

    def fail(self, why: str) -> None:
        """Give the request up, and the connection."""
        order, self.order = self.order, None
        self.transport.abort()
        if order is not None:
            self._sender.failed(order, ErrorKind.AMBIGUOUS, why)


class PlainSender:
    """Sends requests to `http` URLs; `done` hears of each exactly once. Used from one event loop."""

    def __init__(self, done: Callable[[Response], None]) -> None:
        """Inside a running loop."""
        self._done = done
        self._loop = asyncio.get_running_loop()
        self._idle: dict[tuple[str, int], list[_Wire]] = {}
        self._wires: set[_Wire] = set()
        self._connecting: set[asyncio.Task[None]] = set()
        self._timer = self._loop.call_later(_TICK_SECONDS, self._tick)
        self._places: dict[str, tuple[str, int]] = {}

    def submit(self, request: Request) -> None:
        """Send this as soon as a connection is there."""
        url = request.url
        start = url.find("/", 7)
        host, target = (url[7:start], url[start:]) if start > 0 else (url[7:], "/")
        try:
            place = self._places.get(host) or self._learn(host, url)
            head = "".join([f"{name}: {value}\r\n" for name, value in request.headers])
            body = request.body or b""
            first = f"POST {target} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: fred\r\nAccept: */*\r\n{head}"
            raw = b"%b%b%d\r\n\r\n%b" % (first.encode("ascii"), b"Content-Length: ", len(body), body)
        except ValueError as error:
            broken = HttpError(ErrorKind.INVALID, type(error).__name__)
            self._loop.call_soon(self._done, Response(request.tag, None, b"", broken, 0.0))
            return
        now = self._loop.time()
        self._put(_Order(request, raw, place, now, now + request.timeout))

    def _learn(self, host: str, url: str) -> tuple[str, int]:
        parts = urlsplit(url)
        if not parts.hostname or parts.username is not None or len(self._places) > 1000:
            raise ValueError("no such host")
        place = self._places[host] = (parts.hostname, parts.port or 80)
        return place

    def _put(self, order: _Order) -> None:
        idle = self._idle.get(order.place)
        if idle and not order.is_second_try:
            idle.pop().send(order)
            return
        task = self._loop.create_task(self._connect(order))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, order: _Order) -> None:
        left = max(0.0, min(10.0, order.deadline - self._loop.time()))
        try:
            async with asyncio.timeout(left):
                _, wire = await self._loop.create_connection(lambda: _Wire(self, order.place), *order.place)
        except TimeoutError:
            self.failed(order, ErrorKind.CONNECT_TIMEOUT, "no connection in time")
            return
        except (OSError, UnicodeError) as error:
            self.failed(order, ErrorKind.REFUSED, type(error).__name__)
            return
        self._wires.add(wire)
        wire.send(order)

    def ended(self, wire: _Wire, order: _Order, status: int, *, keep: bool) -> None:
        """A request was answered."""
        if keep:
            wire.deadline = self._loop.time() + _IDLE_SECONDS
            self._idle.setdefault(wire.place, []).append(wire)
        else:
            wire.transport.close()
        self._done(Response(order.request.tag, status, b"", None, self._loop.time() - order.begun))

    def lost(self, wire: _Wire, order: _Order | None, why: str, *, was_heard: bool) -> None:
        """A connection is gone."""
        self._wires.discard(wire)
        idle = self._idle.get(wire.place, [])
        if wire in idle:
            idle.remove(wire)
        if order is None:
            return
        if wire.was_used and not was_heard and not order.is_second_try:
            order.is_second_try = True
            self._put(order)
        else:
            self.failed(order, ErrorKind.AMBIGUOUS, why)

    def failed(self, order: _Order, kind: ErrorKind, why: str) -> None:
        """A request has no answer."""
        error = HttpError(kind, why)
        self._done(Response(order.request.tag, None, b"", error, self._loop.time() - order.begun))

    def _tick(self) -> None:
        now = self._loop.time()
        for wire in [one for one in self._wires if one.deadline < now]:
            if wire.order is None:
                wire.transport.close()
            else:
                order, wire.order = wire.order, None
                wire.transport.abort()
                self.failed(order, ErrorKind.TIMEOUT, "no answer in time")
        self._timer = self._loop.call_later(_TICK_SECONDS, self._tick)

    def close(self) -> None:
        """Drop everything; what was under way is never heard of again."""
        self._timer.cancel()
        for task in self._connecting:
            task.cancel()
        for wire in list(self._wires):
            wire.order = None
            wire.transport.abort()
