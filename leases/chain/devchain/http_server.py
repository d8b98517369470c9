"""A small HTTP/1.1 server on asyncio streams: enough for JSON, with a door for WebSocket upgrades."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import orjson

MAX_BODY = 64 * 1024 * 1024
_CORS = (
    b"access-control-allow-origin: *\r\n"
    b"access-control-allow-methods: GET, POST, OPTIONS\r\n"
    b"access-control-allow-headers: content-type\r\n"
)


@dataclass(slots=True)
class Request:
    """A parsed request; `head` is its raw text up to the empty line."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    head: bytes
    body: bytes = b""

    def json(self) -> Any:
        """The body as JSON; an empty body is an empty object. Numbers keep all their digits. Raises ValueError."""
        return json.loads(self.body) if self.body.strip() else {}


@dataclass(slots=True)
class Response:
    """A status and a JSON body (or ready bytes)."""

    status: int = 200
    body: Any = None
    raw: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)

    def encode(self, *, cors: bool, keep_alive: bool) -> bytes:
        """The bytes on the wire."""
        body = self.raw if self.raw is not None else _dumps(self.body)
        connection = "keep-alive" if keep_alive else "close"
        head = (
            f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: {connection}\r\n"
        ) + "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())
        return head.encode() + (_CORS if cors else b"") + b"\r\n" + body


def _dumps(value: Any) -> bytes:
    """JSON; the slower writer where a number has more than 64 bits."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value).encode()


Answer = Callable[[Request], Awaitable[Response | None]]
Upgrade = Callable[[Request, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class HttpServer:
    """Serves one handler; a handler that answers None drops the connection without a word."""

    def __init__(self, answer: Answer, *, upgrade: Upgrade | None = None, cors: bool = False) -> None:
        self._answer = answer
        self._upgrade = upgrade
        self._cors = cors
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int) -> int:
        """Listen; the port that was taken comes back."""
        self._server = await asyncio.start_server(self._accept, host, port, limit=1024 * 1024)
        taken: int = self._server.sockets[0].getsockname()[1]
        return taken

    async def close(self) -> None:
        """Stop listening and end every connection."""
        if self._server is not None:
            self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._guarded(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _guarded(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                await self._serve(reader, writer)
        except asyncio.CancelledError:
            pass  # the server closes; the stream's own callback would log a re-raise
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            request = parse_head(head)
            if request is None:
                writer.write(Response(400, {"error": "bad request"}).encode(cors=self._cors, keep_alive=False))
                await writer.drain()
                return
            if self._upgrade is not None and request.headers.get("upgrade", "").lower() == "websocket":
                await self._upgrade(request, reader, writer)
                return
            length = int(request.headers.get("content-length", "0") or 0)
            if length > MAX_BODY:
                return
            request.body = await reader.readexactly(length)
            keep_alive = request.headers.get("connection", "").lower() != "close"
            response = Response(204, raw=b"") if request.method == "OPTIONS" else await self._answer(request)
            if response is None:
                return
            writer.write(response.encode(cors=self._cors, keep_alive=keep_alive))
            await writer.drain()
            if not keep_alive:
                return


def parse_head(head: bytes) -> Request | None:
    """Request line and headers; None when they are broken."""
    lines = head.decode("latin-1").split("\r\n")
    parts = lines[0].split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1"):
        return None
    headers = {}
    for line in lines[1:]:
        name, separator, value = line.partition(":")
        if separator:
            headers[name.strip().lower()] = value.strip()
    target = urlsplit(parts[1])
    query = dict(parse_qsl(target.query, keep_blank_values=True))
    return Request(parts[0], unquote(target.path), query, headers, head)
