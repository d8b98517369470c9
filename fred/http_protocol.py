"""HTTP/1.1 on one connection: what uvicorn's protocol lacks are limits on time and size, and the raw target.

Deadlines are plain numbers that the server looks at ten times a second: a timer for each request would cost more than
the rest of a small one.
"""

from __future__ import annotations

import urllib.parse
from asyncio import AbstractEventLoop, Transport
from typing import TYPE_CHECKING, Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from fred import envelope, limits
from fred.upgrade import upgrade_fault, websocket_key
from fred.ws_protocol import WebSocketProtocol

if TYPE_CHECKING:
    from fred.server import ServerConfig

_AUTHORIZATION = b"authorization"
_CONNECTION = b"connection"
_EXPECT = b"expect"
_UPGRADE = b"upgrade"
_BLANKS = b" \t"
_NEVER = float("inf")


class HttpProtocol(HttpToolsProtocol):
    """One connection of a client; becomes a WebSocket where the configuration says so."""

    config: ServerConfig

    def __init__(
        self,
        config: ServerConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.access_log = False  # the application has its own
        self._times = config.times
        self._head_until = _NEVER
        self._head_bytes = 0
        self._fields_bytes = 0
        self._body_until = _NEVER
        self._drained = 0
        self._write_until = _NEVER
        self._stalled_at = _NEVER
        self._gone_until = _NEVER
        self._linger_until = _NEVER
        self._idle_until = _NEVER
        self._fault = 400
        self._opens_socket = False
        self._head_again = b""
        self._gentle: _Gentle | None = None
        self.is_stream = False

    @property
    def is_answering(self) -> bool:
        """Whether a request waits for its answer, or for the end of it. A stream is none: it has no end of its own."""
        return self._is_busy and not self.is_stream

    @property
    def _is_busy(self) -> bool:
        cycle = self._last_cycle
        return cycle is not None and not cycle.response_complete

    @property
    def _last_cycle(self) -> RequestResponseCycle | None:
        return self.cycle  # None before the first request

    def tick(self, now: float) -> None:
        """Cut the connection if it is late, by the loop's clock."""
        if self.transport.is_closing():
            self._gone_until = min(self._gone_until, now + self._times.stall_s)
            if now > self._gone_until:
                self.transport.abort()
        elif now > min(self._head_until, self._idle_until, self._linger_until) or (
            now > self._body_until and not self.is_answering
        ):
            self.transport.close()
        elif now > self._write_until or (self.is_stream and now - self._stalled_at > self._times.stall_s):
            self.transport.abort()

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Headers have to be there within their limit from now."""
        super().connection_made(transport)
        self._head_until = self.loop.time() + self._times.head_s

    def data_received(self, data: bytes) -> None:
        """Feed the parser; whoever sends nothing but line feeds between requests is idle."""
        if self._linger_until != _NEVER:
            return
        in_head = self._head_until != _NEVER
        self._idle_until = _NEVER
        self._feed(data)
        if self.transport.is_closing() or self.parser is None:
            return
        if self._is_handed_over:
            return
        if self._head_until == _NEVER:
            if not self.is_answering and not self.is_stream:
                self._wait_for_the_next()
            return
        self._head_bytes = self._head_bytes + len(data) if in_head else len(data)
        if self._head_bytes > limits.MAX_HEAD_BYTES:
            self._fault = 431
            self.send_400_response("")

    def _feed(self, data: bytes) -> None:
        rest: bytes | memoryview = data
        while rest:
            rest = self._parsed(rest)

    def _parsed(self, data: bytes | memoryview) -> bytes | memoryview:
        """Parse this; return what the parser left of it for a protocol that nobody here speaks: it is HTTP, too."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.send_400_response("")
        except httptools.HttpParserUpgrade as stopped:
            if self._opens_socket:
                self.handle_websocket_upgrade()
            elif self._head_again:
                (read,) = stopped.args
                head, self._head_again = self._head_again, b""
                self.parser = _new_parser(self)
                self._parsed(head)
                return memoryview(data)[read:]
        return b""

    @property
    def _is_handed_over(self) -> bool:
        """Whether a WebSocket has the connection now, with time limits of its own."""
        return self.transport.get_protocol() is not self

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        super().on_message_begin()
        self._drained = self._fields_bytes = 0
        if self._head_until == _NEVER:
            self._head_until = self.loop.time() + self._times.head_s

    def on_header(self, name: bytes, value: bytes) -> None:
        """Blanks around a value are no part of it; of several Authorization headers the first counts."""
        name, value = name.lower(), value.strip(_BLANKS)
        if name == _AUTHORIZATION and any(known == _AUTHORIZATION for known, _ in self.headers):
            return
        if name == _EXPECT and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self._fields_bytes += len(name) + len(value) + 4
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Start the application, with the target as it came."""
        self._head_until, self._head_bytes = _NEVER, 0
        self._body_until = self.loop.time() + self._times.read_s
        if len(self.url) + self._fields_bytes > limits.MAX_HEAD_BYTES:
            self._fault = 431
            raise ValueError("request line and headers are too long")
        scope: dict[str, Any] = self.scope  # type: ignore[assignment]
        scope[limits.RAW_TARGET] = _target(self.url)
        scope[limits.OPEN_STREAM] = self._open_stream
        wants_upgrade = self.parser.should_upgrade()
        self._opens_socket = wants_upgrade and self._is_handshake()
        if wants_upgrade and not self._opens_socket and self._has_body_to_read():
            self._head_again = self._head_without_upgrade()
            return
        super().on_headers_complete()
        if wants_upgrade and not self._opens_socket:
            # The parser stops after this request: whatever follows is the other protocol, which nobody speaks here.
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """Keep what the application may read, drain what nobody will."""
        if not self._is_busy:
            self._drained += len(body)
            if self._drained > limits.MAX_DRAINED_BYTES:
                self.transport.close()
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The whole request is here, unless its body is yet to be read."""
        if self._head_again:
            return
        self._body_until = _NEVER
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """The answer is written; the next request may start."""
        if self._gentle is not None:
            self._gentle.flush()
        self._write_until = _NEVER
        self.is_stream = False
        if self.expect_100_continue and self.cycle.more_body:
            # Nobody asked for the body. Whether it comes all the same cannot be told from the next request.
            self.end()
        if self._linger_until != _NEVER:
            return
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        else:
            self._wait_for_the_next()

    def pause_writing(self) -> None:
        """The client does not take what is written."""
        self._stalled_at = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """It does again."""
        self._stalled_at = _NEVER
        super().resume_writing()

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over to a WebSocket."""
        self.connections.discard(self)
        scope: dict[str, Any] = self.scope  # type: ignore[assignment]
        _locate(scope, self.url)
        protocol = WebSocketProtocol(self.config, self.server_state, self.app_state, self.loop)
        self.transport.set_protocol(protocol)
        protocol.connection_made(self.transport)
        protocol.open(scope, websocket_key(self.headers))

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - the library's word for what was wrong
        """Answer what is no HTTP request, unless an earlier request still waits for its own answer."""
        cycle = self._last_cycle
        if cycle is not None and not cycle.response_complete:
            cycle.keep_alive = False
            if not cycle.more_body or cycle.response_started:
                self._head_until = self._body_until = _NEVER
                self.flow.pause_reading()
                return
            # Its own body is what is broken: it never comes, and the application can write to nobody.
            cycle.disconnected = True
            cycle.message_event.set()
        self.transport.write(envelope.raw_response(self._fault, self.server_state.default_headers))
        self._linger()

    def end(self) -> None:
        """Close the connection, but not before a client that is still sending could read its answer."""
        if self._body_until == _NEVER:
            self.transport.close()
        else:
            self._linger()

    def _linger(self) -> None:
        """Say that nothing more is written, and take no notice of what comes for a moment.

        To close at once would answer what still comes with a reset, which takes an unread answer away.
        """
        self._head_until = self._body_until = self._write_until = self._idle_until = _NEVER
        self._linger_until = self.loop.time() + limits.LINGER_S
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._gentle = _Gentle(self.transport, self)
        cycle.transport = self._gentle  # type: ignore[assignment]
        self._write_until = self.loop.time() + self._times.write_s
        self.is_stream = False
        super()._start_asgi_task(cycle, app)

    def _open_stream(self) -> None:
        self.is_stream = True
        self._write_until = _NEVER

    def _should_upgrade(self) -> bool:
        return self._opens_socket

    def _has_body_to_read(self) -> bool:
        """Whether a body follows headers that offer another protocol: the parser would take it for that protocol."""
        named = dict(self.headers)
        has_body = b"transfer-encoding" in named or named.get(b"content-length", b"0").strip(b"0") != b""
        return _UPGRADE in named and has_body

    def _head_without_upgrade(self) -> bytes:
        """The head of this request without the offer."""
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (method, self.url, version)]
        for name, value in self.headers:
            if name == _CONNECTION:
                lines.append(b"%b: %b" % (name, b", ".join(one for one in _tokens(value) if one != _UPGRADE)))
            elif name != _UPGRADE:
                lines.append(b"%b: %b" % (name, value))
        return b"\r\n".join([*lines, b"", b""])

    def _is_handshake(self) -> bool:
        if self._is_busy:
            return False
        is_get = self.parser.get_method() == b"GET" and self.parser.get_http_version() == "1.1"
        return is_get and self.config.opens_socket(_target(self.url)) and upgrade_fault(self.headers) is None

    def _wait_for_the_next(self) -> None:
        self._idle_until = self.loop.time() + self._times.idle_s


class _Gentle:
    """The transport as an answer sees it: its end is the protocol's to make.

    What is written first, the head, waits for what follows within the same turn of the loop: one system call for both,
    and one packet.
    """

    __slots__ = ("_held", "_protocol", "_transport", "is_closing")

    def __init__(self, transport: Transport, protocol: HttpProtocol) -> None:
        self.is_closing = transport.is_closing
        self._transport = transport
        self._protocol = protocol
        self._held: bytes | None = None

    def write(self, data: bytes) -> None:
        if self._held is None:
            self._held = data
            self._protocol.loop.call_soon(self.flush)
        else:
            self._transport.write(self._held + data)
            self._held = b""

    def flush(self) -> None:
        if self._held and not self.is_closing():
            self._transport.write(self._held)
        self._held = b""

    def close(self) -> None:
        self.flush()
        self._protocol.end()


def _new_parser(protocol: HttpProtocol) -> httptools.HttpRequestParser:
    """A parser as the library makes it: what follows a request that ends its connection is no fault of it."""
    parser = httptools.HttpRequestParser(protocol)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


def _tokens(value: bytes) -> list[bytes]:
    return [token.strip().lower() for token in value.split(b",")]


def _target(url: bytes) -> bytes:
    """Path and query of a request line, undecoded, also of one that names scheme and host."""
    if url.startswith(b"/"):
        return url
    parsed = httptools.parse_url(url)
    path: bytes = parsed.path or b"/"
    start = url.find(path, url.find(b"//") + 2)
    return url[start:] if start >= 0 else path


def _locate(scope: dict[str, Any], url: bytes) -> None:
    parsed = httptools.parse_url(url)
    scope["path"] = urllib.parse.unquote(parsed.path.decode("ascii"))
    scope["raw_path"] = parsed.path
    scope["query_string"] = parsed.query or b""
