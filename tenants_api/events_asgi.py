"""The route of a lease's events: WebSockets, server-sent events, and answers to whoever wants neither. ASGI, no Django.

It has no time limit of requests, and its streams are no requests that a stopping server waits for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from fred.edge import ROUTE, Receive, Scope, Send
from fred.limits import OPEN_STREAM
from fred.upgrade import VERSION, upgrade_fault
from tenants_api.consumers import EventsConsumer
from tenants_api.errors import ApiError, names
from tenants_api.event_frames import COMMENT, OPENING, message
from tenants_api.event_streams import ROUTE_NAME, EventStreams, Stream, TooMany, is_stopping, rendered

SERVER_SENT: Final = "text/event-stream"
_REST_OF_A_HANDSHAKE: Final = [(b"sec-websocket-version", VERSION), (b"sec-websocket-key", b"AAAAAAAAAAAAAAAAAAAAAA==")]
_OPEN_HEADERS: Final = [(b"content-type", SERVER_SENT.encode()), (b"x-accel-buffering", b"no")]


class EventsApp:
    """Serves the events of all leases in this process. Belongs to one event loop."""

    def __init__(self, streams: EventStreams) -> None:
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, or one request."""
        if scope["type"] == "websocket" or scope["method"] in {"GET", "HEAD"}:
            scope[ROUTE] = ROUTE_NAME  # the router's own 405 belongs to no route
        if scope["type"] == "websocket":
            await EventsConsumer(self._streams)(scope, receive, send)
            return
        headers = dict(reversed(scope["headers"]))
        try:
            if b"upgrade" in headers or not names(headers.get(b"accept", b"").decode("latin-1"), SERVER_SENT):
                await self._streams.let_in(scope)
                await _refuse_upgrade(scope, send)
            else:
                await self._server_sent(scope, receive, send)
        except ApiError as error:
            answer, fields = rendered(error, scope)
            await _answer(scope, send, answer.status, fields, answer.body)

    async def close(self) -> None:
        """End what serves the streams of this process."""
        await self._streams.close()

    async def _server_sent(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = await self._streams.let_in(scope, resumes=True)
        if scope["method"] == "HEAD":
            await _answer(scope, send, 200, _OPEN_HEADERS, b"")
            return
        try:
            stream = await self._streams.open(asked)
        except TooMany:
            raise ApiError(503, "too many connections", error_code="too_many_connections") from None
        try:
            scope.get(OPEN_STREAM, lambda: None)()
            await send({"type": "http.response.start", "status": 200, "headers": _OPEN_HEADERS})
            await self._tell(stream, scope, receive, send)
            await send({"type": "http.response.body", "body": b""})
        finally:
            stream.leave()

    async def _tell(self, stream: Stream, scope: Scope, receive: Receive, send: Send) -> None:
        """Tell events until the client goes, the server stops, or the stream has lived its time."""
        limits, now = self._streams.limits, asyncio.get_running_loop().time

        async def write(data: bytes) -> None:
            await send({"type": "http.response.body", "body": data, "more_body": True})

        ends = [asyncio.ensure_future(_gone(receive)), asyncio.ensure_future(is_stopping(scope).wait())]
        coming = asyncio.ensure_future(stream.subscription.next())
        try:
            async with asyncio.timeout(limits.lifetime_s):
                first = message(stream.first, gap=True) if stream.first is not None else b""
                await write(OPENING + first)
                comment_at = now() + limits.comment_s
                while not any(one.done() for one in ends):
                    await asyncio.wait({coming, *ends}, timeout=comment_at - now(), return_when=asyncio.FIRST_COMPLETED)
                    if coming.done():
                        await write(message(coming.result()))
                        coming = asyncio.ensure_future(stream.subscription.next())
                    if now() >= comment_at:
                        await write(COMMENT)
                        comment_at += limits.comment_s
        except TimeoutError:
            return
        finally:
            for one in (coming, *ends):
                one.cancel()
                with suppress(asyncio.CancelledError, OSError):
                    await one


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _refuse_upgrade(scope: Mapping[str, Any], send: Send) -> None:
    """Say what is wrong with the upgrade of whoever was let in."""
    fault = upgrade_fault(scope["headers"])
    status, text = (fault.status, fault.text) if fault else (400, "Bad Request")
    if scope["method"] == "HEAD" and _names_websocket(scope["headers"]):
        status, text = 405, "Method Not Allowed"
    body = f"{text}\n".encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        (b"sec-websocket-version", VERSION),
    ]
    if fault is not None and fault.header[0] == b"upgrade":
        headers.append(fault.header)
    await _answer(scope, send, status, headers, body)


def _names_websocket(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether these headers ask for a WebSocket, however wrong the rest of the handshake is."""
    named = [header for header in headers if header[0] in {b"connection", b"upgrade"}]
    return upgrade_fault([*named, *_REST_OF_A_HANDSHAKE]) is None


async def _answer(
    scope: Mapping[str, Any], send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes
) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
