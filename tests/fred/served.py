"""A server of our own on a thread, and a client that sees every byte."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

from fred.server import Server, ServerConfig
from tests.waiting import wait_until

PATIENCE_S = 30.0


@contextmanager
def served(app: Any, **how: Any) -> Iterator[Serving]:
    """Serve this application on a free port until the end of the block."""
    one = Serving(Server(ServerConfig(app, **how)))
    one.start()
    try:
        yield one
    finally:
        one.stop()


@dataclass
class Serving:
    """A server and the thread it runs on."""

    server: Server
    port: int = 0
    thread: threading.Thread = field(init=False)

    def start(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        self.thread = threading.Thread(target=self.server.run, args=([listener],), daemon=True)
        self.thread.start()
        wait_until(lambda: self.server.started or not self.thread.is_alive())
        assert self.server.started

    def ask_to_stop(self) -> None:
        self.server.should_exit = True

    def stop(self) -> None:
        self.ask_to_stop()
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive(), "the server did not stop"

    def connect(self, context: ssl.SSLContext | None = None) -> Line:
        return connect(self.port, context)

    def ask(self, request: bytes) -> Answer:
        """One request on a connection of its own."""
        with self.connect() as line:
            line.send(request)
            return line.answer(head_only=request.startswith(b"HEAD"))


@dataclass(frozen=True)
class Answer:
    """Status, headers (names in lower case, as they came) and body."""

    status: int
    fields: list[tuple[str, str]]
    body: bytes

    @property
    def headers(self) -> dict[str, str]:
        """By name; a name that came twice fails."""
        found = dict(self.fields)
        assert len(found) == len(self.fields), self.fields
        return found


class Line:
    """One connection of a client."""

    def __init__(self, line: socket.socket) -> None:
        self.socket = line
        self._reader = line.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def answer(self, *, head_only: bool = False) -> Answer:
        status = int(self._reader.readline().split()[1])
        fields = []
        while (line := self._reader.readline().rstrip(b"\r\n")) != b"":
            name, _, value = line.decode("latin-1").partition(": ")
            fields.append((name.lower(), value))
        named = dict(fields)
        body = b""
        if status == 101 or head_only:
            pass
        elif "content-length" in named:
            body = self._reader.read(int(named["content-length"]))
        elif named.get("transfer-encoding") == "chunked":
            while (size := int(self._reader.readline(), 16)) > 0:
                body += self._reader.read(size)
                self._reader.readline()
            self._reader.readline()
        return Answer(status, fields, body)

    def rest(self) -> bytes:
        """What comes until the other side ends the connection; a reset is an end too."""
        found = b""
        try:
            while part := self._reader.read1(65536):
                found += part
        except ConnectionResetError:
            pass
        return found

    def frame(self) -> tuple[int, bytes]:
        """The next WebSocket frame: opcode and payload; (-1, b"") at the end of the connection."""
        head = self._reader.read(2)
        if len(head) < 2:
            return -1, b""
        length = head[1] & 127
        if length == 126:
            length = int.from_bytes(self._reader.read(2), "big")
        return head[0] & 15, self._reader.read(length)

    def send_frame(self, opcode: int, payload: bytes = b"") -> None:
        length = len(payload)
        if length < 126:
            size = bytes([128 | length])
        else:
            size = (
                bytes([254]) + length.to_bytes(2, "big") if length < 65536 else bytes([255]) + length.to_bytes(8, "big")
            )
        self.send(bytes([128 | opcode]) + size + bytes(4) + payload)


def connect(port: int, context: ssl.SSLContext | None = None) -> Line:
    """A connection to this port, over TLS with a context."""
    raw = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
    return Line(raw if context is None else context.wrap_socket(raw, server_hostname="127.0.0.1"))


KEY = b"dGhlIHNhbXBsZSBub25jZQ=="
HANDSHAKE = {
    b"Host": b"x",
    b"Connection": b"keep-alive, Upgrade",
    b"Upgrade": b"websocket",
    b"Sec-WebSocket-Version": b"13",
    b"Sec-WebSocket-Key": KEY,
}


def upgrade(target: bytes, *, method: bytes = b"GET", **changes: bytes | None) -> bytes:
    """An opening handshake; a change of None leaves the header out."""
    wanted = {**HANDSHAKE, **{name.replace("_", "-").encode(): value for name, value in changes.items()}}
    lines = b"".join(b"%b: %b\r\n" % one for one in wanted.items() if one[1] is not None)
    return b"%b %b HTTP/1.1\r\n%b\r\n" % (method, target, lines)


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answers the length of the body and the target; lives through lifespans."""
    if scope["type"] == "lifespan":
        await live(receive, send)
        return
    size = 0
    while True:
        message = await receive()
        size += len(message.get("body", b""))
        if not message.get("more_body"):
            break
    body = b"%d %b" % (size, scope["fred.raw_target"])
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


async def live(receive: Any, send: Any, *closers: Any) -> None:
    """The lifespan of an application that has nothing to start, and these to close."""
    while True:
        message = await receive()
        for close in closers if message["type"] == "lifespan.shutdown" else ():
            await close()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
