"""One connection of an agent's server: HTTP/1.1 to ASGI and back."""

import asyncio
from collections import deque
from http import HTTPStatus
from typing import Any, Protocol

import httptools

_SMALL_BODY = 64 * 1024
_MAX_HEAD = 64 * 1024
_MAX_IGNORED = 8 * 1024 * 1024
_PHRASES = {status.value: status.phrase for status in HTTPStatus}
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_HEADS: dict[int, bytes] = {}


def _status_line(status: int) -> bytes:
    found = _HEADS.get(status)
    if found is None:
        found = _HEADS[status] = f"HTTP/1.1 {status} {_PHRASES.get(status, 'Status')}\r\n".encode()
    return found


class Server(Protocol):
    """What a connection asks of the server it belongs to; times in seconds."""

    loop: asyncio.AbstractEventLoop
    connections: "set[Connection]"
    is_stopping: bool
    read_timeout: float
    write_timeout: float
    idle_timeout: float

    def run(self, one: "Exchange") -> None:
        """Let the application answer this request."""

    def forget(self, connection: "Connection") -> None:
        """This one is gone."""


class Exchange:
    """One request and its answer."""

    __slots__ = (
        "body", "chunked", "complete", "connection", "expects", "head", "headers", "ignored", "keep_alive", "method",
        "news", "paused", "scope", "sent", "started", "status", "target", "told_end",
    )  # fmt: skip

    def __init__(self, connection: "Connection") -> None:
        self.connection = connection
        self.target = b""
        self.method = ""
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = b""
        self.scope: dict[str, Any] = {}
        self.news: asyncio.Future[None] | None = None
        self.head = b""
        self.status = 0
        self.ignored = 0
        self.started = self.complete = self.told_end = self.sent = False
        self.expects = self.paused = self.chunked = False
        self.keep_alive = True

    async def receive(self) -> dict[str, Any]:
        """See ASGI: the body, then the end of the connection."""
        connection = self.connection
        while True:
            if self.body or (self.complete and not self.told_end):
                body, self.body = self.body, b""
                self.told_end = self.complete
                if self.paused:
                    self.paused = False
                    connection.transport.resume_reading()
                return {"type": "http.request", "body": body, "more_body": not self.complete}
            if connection.is_gone:
                return {"type": "http.disconnect"}
            if self.expects:
                self.expects = False
                connection.transport.write(_CONTINUE)
            self.news = asyncio.get_running_loop().create_future()
            await self.news

    def tell(self) -> None:
        """Something has arrived, or nothing ever will."""
        if self.news is not None and not self.news.done():
            self.news.set_result(None)

    async def send(self, message: dict[str, Any]) -> None:
        """See ASGI."""
        connection = self.connection
        if connection.is_gone or self.sent:
            return
        if message["type"] == "http.response.start":
            self._start(message)
            return
        body: bytes = message.get("body", b"")
        more = message.get("more_body", False)
        if self.chunked:
            frame = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            body = frame if more else frame + b"0\r\n\r\n"
        if self.head or body:
            connection.transport.write(self.head + body)
            self.head = b""
        if more:
            await connection.drain()
        else:
            self.sent = True
            connection.answered(self)

    def _start(self, message: dict[str, Any]) -> None:
        self.status = status = message["status"]
        parts = [_status_line(status)]
        has_length = status in {204, 304}
        for name, value in message["headers"]:
            parts.append(b"%b: %b\r\n" % (name, value))
            has_length = has_length or name == b"content-length"
        if not has_length:
            self.chunked = True
            parts.append(b"transfer-encoding: chunked\r\n")
        if not self.keep_alive or self.connection.server.is_stopping:
            self.keep_alive = False
            parts.append(b"connection: close\r\n")
        parts.append(b"\r\n")
        self.head = b"".join(parts)


class Connection(asyncio.Protocol):
    """One client's connection: parses requests, answers them one after the other."""

    transport: asyncio.Transport

    def __init__(self, server: Server) -> None:
        self.server = server
        self.is_gone = False
        self.deadline = 0.0
        self._reading: Exchange | None = None
        self._answering: Exchange | None = None
        self._waiting: deque[Exchange] = deque()
        self._writable: asyncio.Future[None] | None = None
        self._head_size = 0
        self._extensions = {"agent.cut": self.cut}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        self.transport = transport  # type: ignore[assignment]
        self._parser = httptools.HttpRequestParser(self)
        self.server.connections.add(self)
        self._wait(self.server.idle_timeout)

    def connection_lost(self, _exc: Exception | None) -> None:
        """See asyncio."""
        self.is_gone = True
        self.server.forget(self)
        for one in (self._answering, self._reading):
            if one is not None:
                one.tell()
        self.resume_writing()

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            if not self.is_gone:
                self.transport.write(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
                self.transport.close()

    def pause_writing(self) -> None:
        """See asyncio."""
        self._writable = self.server.loop.create_future()

    def resume_writing(self) -> None:
        """See asyncio."""
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    async def drain(self) -> None:
        """Wait until the client takes more, no longer than the server writes."""
        if self._writable is not None:
            limit = self.server.loop.call_later(self.server.write_timeout, self.cut)
            try:
                await self._writable
            finally:
                limit.cancel()

    def cut(self) -> None:
        """End the connection without another byte."""
        self.transport.abort()

    def on_message_begin(self) -> None:
        """See httptools."""
        self._reading = Exchange(self)
        self._head_size = 0
        if self._answering is None:
            self._wait(self.server.read_timeout)

    def on_url(self, url: bytes) -> None:
        """See httptools."""
        self._grow(len(url))
        if self._reading is not None:
            self._reading.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """See httptools."""
        self._grow(len(name) + len(value))
        one = self._reading
        if one is not None:
            name = name.lower()
            one.headers.append((name, value))
            if name == b"expect" and value.lower() == b"100-continue":
                one.expects = True

    def _grow(self, size: int) -> None:
        self._head_size += size
        if self._head_size > _MAX_HEAD:
            raise httptools.HttpParserError("head too large")

    def on_headers_complete(self) -> None:
        """See httptools."""
        one = self._reading
        if one is None:
            return
        one.method = self._parser.get_method().decode("ascii")
        one.keep_alive = self._parser.should_keep_alive()
        path, _, query = one.target.partition(b"?")
        one.scope = {
            "type": "http",
            "method": one.method,
            "path": path.decode("latin-1"),
            "raw_path": path,
            "query_string": query,
            "headers": one.headers,
            "extensions": self._extensions,
        }
        sizes = [value for name, value in one.headers if name == b"content-length"]
        chunked = any(name == b"transfer-encoding" for name, _ in one.headers)
        if one.expects or chunked or (sizes and (not sizes[0].isdigit() or int(sizes[0]) > _SMALL_BODY)):
            self._begin(one)

    def on_body(self, body: bytes) -> None:
        """See httptools."""
        one = self._reading
        if one is None:
            return
        if one.sent:  # refused by its head; the client may end its sentence
            one.ignored += len(body)
            if one.ignored > _MAX_IGNORED:
                self.cut()
            return
        one.body += body
        if one.started and len(one.body) > _SMALL_BODY and not one.paused:
            one.paused = True
            self.transport.pause_reading()
        one.tell()

    def on_message_complete(self) -> None:
        """See httptools."""
        one, self._reading = self._reading, None
        if one is None:
            return
        one.complete = True
        if one.sent:
            self._next(one)
        elif one.started:
            one.tell()
        else:
            self._begin(one)

    def _begin(self, one: Exchange) -> None:
        one.started = True
        if self._answering is not None:
            self._waiting.append(one)
            return
        self._answering = one
        if one.complete:
            self.deadline = 0.0
        self.server.run(one)

    def answered(self, one: Exchange) -> None:
        """The whole answer is out."""
        if one.paused:
            one.paused = False
            self.transport.resume_reading()
        if one.complete:
            self._next(one)
        else:
            self._wait(self.server.read_timeout)

    def _next(self, one: Exchange) -> None:
        self._answering = None
        if not one.keep_alive:
            self.transport.close()
        elif self._waiting:
            self.server.loop.call_soon(self._take_waiting)
        else:
            self._wait(self.server.idle_timeout)

    def _take_waiting(self) -> None:
        if self._answering is None and self._waiting and not self.is_gone:
            one = self._waiting.popleft()
            self._answering = one
            self.server.run(one)

    def _wait(self, seconds: float) -> None:
        self.deadline = self.server.loop.time() + seconds

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being answered."""
        return self._answering is None
