"""A WebSocket on one connection: pings with a deadline, messages of 512 bytes, and an end that says nothing.

The handshake was judged before (`fred.upgrade`): nothing here answers one in its own words, and nothing logs the
target, which may hold a token.
"""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop
from asyncio.transports import BaseTransport
from typing import TYPE_CHECKING, Any, Final

from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.frames import CloseCode, Frame
from websockets.http11 import Request
from websockets.server import ServerProtocol

from fred import limits

if TYPE_CHECKING:
    from fred.server import ServerConfig

_NEVER: Final = float("inf")
_FAREWELL_S: Final = 1.0
"""How long a client has to answer a close frame that it did not cause by an orderly close of the application."""
_HANDSHAKE: Final = (
    b"GET / HTTP/1.1\r\nHost: -\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: %b\r\n\r\n"
)

_log = logging.getLogger("fred.ws_protocol")
_log.setLevel(logging.WARNING)  # the libraries tell every handshake, with headers and targets


class _Frames(ServerProtocol):
    """The protocol without input and output; a failure closes with its code alone."""

    def fail(self, code: CloseCode | int, reason: str = "") -> None:  # noqa: ARG002 - clients are told the code
        super().fail(code)


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """One connection that was upgraded."""

    config: ServerConfig

    def __init__(
        self,
        config: ServerConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.logger = _log
        self.conn = _Frames(max_size=config.ws_max_size, logger=_log)
        self._times = config.times
        self._asked: dict[str, Any] = {}
        self._answer_until = self.loop.time() + self._times.write_s
        self._alive_until = self._ping_at = self._stalled_at = self._gone_until = _NEVER

    @property
    def is_answering(self) -> bool:
        """Whether the upgrade still waits for its answer."""
        return not self.handshake_complete

    def open(self, scope: dict[str, Any], key: bytes) -> None:
        """Begin with the scope of the HTTP request that asked for it, whose handshake has no fault."""
        self._asked = scope
        self.conn.receive_data(_HANDSHAKE % key)
        self.handle_events()

    def handle_connect(self, event: Request) -> None:
        """Start the application."""
        self.request = event
        self.response = self.conn.accept(event)
        self.handshake_initiated = True
        self.scope = {
            **self._asked,  # type: ignore[typeddict-item]  # of any keys
            "type": "websocket",
            "asgi": {"version": self.asgi_version, "spec_version": "2.4"},
            "scheme": self.scheme,
            "subprotocols": [],
            "extensions": {"websocket.http.response": {}},
        }
        self.queue.put_nowait({"type": "websocket.connect"})
        task = self.loop.create_task(self.run_asgi())
        task.add_done_callback(self.on_task_complete)
        self.tasks.add(task)

    def connection_made(self, transport: BaseTransport) -> None:
        """The connection is ours; a slow client makes its writers wait early."""
        super().connection_made(transport)
        self.transport.set_write_buffer_limits(high=limits.SOCKET_BUFFER_BYTES)

    def tick(self, now: float) -> None:
        """Send a ping that is due; cut the connection if it is late, by the loop's clock."""
        if self.transport.is_closing():
            self._gone_until = min(self._gone_until, now + self._times.stall_s)
            if now > self._gone_until:
                self.transport.abort()
        elif not self.handshake_complete:
            if now > self._answer_until:
                self.transport.abort()
        elif now > self._alive_until or now - self._stalled_at > self._times.stall_s:
            self.transport.abort()
        elif now >= self._ping_at and not self.close_sent:
            self._ping_at += self._times.ping_s
            self.conn.send_ping(b"")
            self._flush()

    def data_received(self, data: bytes) -> None:
        """Read frames; after our own close only the client's answer to it counts."""
        if self.close_sent and self.conn.parser_exc is not None:
            return
        super().data_received(data)

    def handle_text(self, event: Frame) -> None:
        """Take text as bytes: whatever a client says is one too many, also what is no UTF-8."""
        self.handle_bytes(event)

    def handle_ping(self) -> None:
        """Answer, unless the client does not read its answers."""
        output = b"".join(self.conn.data_to_send())
        if self.writable.is_set():
            self.transport.write(output)

    def handle_pong(self, event: Frame) -> None:  # noqa: ARG002 - whatever it holds, the client lives
        """It lives."""
        self._alive_until = self.loop.time() + self._times.pong_s

    def start_keepalive(self) -> None:
        """Called when the upgrade was accepted."""
        now = self.loop.time()
        self._alive_until, self._ping_at = now + self._times.pong_s, now + self._times.ping_s

    def stop_keepalive(self) -> None:
        """Expect nothing more."""
        self._alive_until = self._ping_at = self._stalled_at = _NEVER

    def handle_parser_exception(self) -> None:
        """Close with the code of the fault; what still comes is read for a moment, else the code would get lost."""
        close = self.conn.close_sent
        self.queue.put_nowait({"type": "websocket.disconnect", "code": close.code if close else 1006, "reason": ""})
        self._say_farewell()

    def go_away(self) -> None:
        """Close with 1001: the server stops."""
        if self.close_sent:
            return
        self.queue.put_nowait({"type": "websocket.disconnect", "code": 1001, "reason": ""})
        self.conn.send_close(1001)
        self._say_farewell()

    def pause_writing(self) -> None:
        """The client does not take what is written."""
        self._stalled_at = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """It does again."""
        self._stalled_at = _NEVER
        super().resume_writing()

    async def send(self, message: Any) -> None:
        """Take one message of the application. Raises ClientDisconnected, an OSError, when nobody is there."""
        if self.handshake_complete and self.close_sent and self.initial_response is None:
            raise ClientDisconnected
        await super().send(message)

    def _say_farewell(self) -> None:
        self.stop_keepalive()
        self._flush()
        self.close_sent = True
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()
        self.close_timer = self.loop.call_later(_FAREWELL_S, self.transport.close)

    def _flush(self) -> None:
        self.transport.write(b"".join(self.conn.data_to_send()))
