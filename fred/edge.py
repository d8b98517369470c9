"""What every request passes on its way in and every answer on its way out, whoever makes it.

Outermost first: ids of the request, CORS, security headers, the limit of its client's address, access log and metrics,
the form of its path. One ASGI application around the others, one pass over the headers, one over each message.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

import structlog

from fred import request_ids
from fred.access import ROUTE, UNMATCHED, Records
from fred.address_limit import HEALTH, OVER_LIMIT, TOO_MANY, AddressLimit
from fred.clients import CLIENT_IP, client_ip
from fred.cors import Cors
from fred.envelope import SECURITY_HEADERS, Headers, envelope, headers_of
from fred.request_ids import REQUEST_ID, TRACEPARENT

__all__ = ["ROUTE", "SECURITY_HEADERS", "UNMATCHED", "App", "Edge", "Receive", "Scope", "Send", "plain_error"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
ErrorBody = Callable[[Scope, int, str, str], tuple[bytes, bytes]]
"""Makes media type and body of an error from scope, status, text and the stable name for problem details."""

BUSY: Final = "service temporarily unavailable"
_STARTS: Final = frozenset({"http.response.start", "websocket.http.response.start"})

log = structlog.get_logger(__name__)


def plain_error(_scope: Scope, status: int, text: str, _name: str) -> tuple[bytes, bytes]:
    """The envelope, whatever the caller would like better."""
    return b"application/json", envelope(status, text)


class Busy(Exception):
    """As many requests as may be are in work; of this one nothing was done."""


class Edge:
    """The outermost ASGI application of HTTP and WebSockets; other kinds of connections pass untouched."""

    def __init__(
        self,
        app: App,
        *,
        cors_origins: Sequence[str],
        secures: bool = True,
        limit: AddressLimit | None = None,
        trusts: Callable[[str], bool] = lambda _: False,
        error_body: ErrorBody = plain_error,
    ) -> None:
        """`cors_origins` as configured: empty means no CORS at all, `*` means every origin.

        `secures` False leaves the security headers to the application. `trusts` says of an address whether it is a
        proxy of ours, whose forwarding headers count.
        """
        self._app = app
        self._security = SECURITY_HEADERS if secures else []
        self._cors = Cors(cors_origins) if cors_origins else None
        self._limit = limit
        self._trusts = trusts
        self._error_body = error_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one connection."""
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        asked = _Asked(scope)
        ids = _identify(scope, asked)
        scope[CLIENT_IP] = client_ip(scope, self._trusts)
        method: str = scope.get("method", "GET")
        if self._cors is not None and method == "OPTIONS" and asked.wanted_method:
            allowed = self._cors.preflight(asked.origin, method=asked.wanted_method, headers=asked.wanted_headers)
            await send({"type": "http.response.start", "status": 204, "headers": [*allowed, *ids]})
            await send({"type": "http.response.body", "body": b""})
            return
        cors = self._cors.simple(asked.origin, method=method) if self._cors is not None else []
        answer = _Answer(send, [*cors, *self._security, *ids], ids)
        if self._limit is not None and not await self._limit.admits(scope, scope[CLIENT_IP]):
            if scope["path"] != HEALTH or method not in {"GET", "HEAD"}:
                await self._refuse(scope, answer, 429, TOO_MANY, "rate_limited_ip", self._limit.retry_after_s)
                return
            scope[OVER_LIMIT] = True
        await self._observed(scope, receive, answer)

    async def close(self) -> None:
        """Let go of what it holds."""
        if self._limit is not None:
            await self._limit.close()

    async def _observed(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        started = time.perf_counter()
        scope[ROUTE] = UNMATCHED
        try:
            path = canonical_path(scope["path"], scope.get("raw_path") or b"")
            if path is None:
                await self._refuse(scope, answer, 404, "not found", "not_found")
                return
            scope["path"] = path
            request_ids.adopt(scope)
            await self._app(scope, receive, answer.send)
        except asyncio.CancelledError:
            raise
        except Busy:
            await self._refuse(scope, answer, 503, BUSY, "store_unavailable")
        except Exception as error:
            if answer.status or isinstance(error, OSError):  # too late, or nobody is there any more
                raise
            log.exception("api.failed")
            await self._refuse(scope, answer, 500, "internal server error", "internal")
        finally:
            _records.add(scope, answer.status or 500, time.perf_counter() - started)

    async def _refuse(
        self, scope: Scope, answer: _Answer, status: int, text: str, name: str, retry_after_s: int | None = None
    ) -> None:
        kind, body = self._error_body(scope, status, text, name)
        extra = [] if retry_after_s is None else [(b"retry-after", str(retry_after_s).encode())]
        headers = [(b"content-type", kind), *headers_of(status, body, extra)[1:]]
        prefix = "http" if scope["type"] == "http" else "websocket.http"
        await answer.send({"type": f"{prefix}.response.start", "status": status, "headers": headers})
        await answer.send({"type": f"{prefix}.response.body", "body": body})


class _Answer:
    """Adds headers to the start of an answer and remembers its status; 101 for an accepted WebSocket."""

    __slots__ = ("_ids", "_own", "_send", "status")

    def __init__(self, send: Send, own: Headers, ids: Headers) -> None:
        self._send = send
        self._own = own
        self._ids = ids
        self.status = 0

    async def send(self, message: Message) -> None:
        if message["type"] in _STARTS:
            self.status = message["status"]
            message["headers"] = [*message.get("headers", ()), *self._own]
        elif message["type"] == "websocket.accept":
            self.status = 101
            message["headers"] = [*message.get("headers", ()), *self._ids]
        await self._send(message)


class _Asked:
    """The headers that matter here."""

    __slots__ = ("origin", "request_ids", "traceparents", "wanted_headers", "wanted_method")

    def __init__(self, scope: Scope) -> None:
        self.origin = self.wanted_method = self.wanted_headers = b""
        self.request_ids: list[bytes] = []
        self.traceparents: list[bytes] = []
        for name, value in scope["headers"]:
            if name == b"origin":
                self.origin = value
            elif name == b"x-request-id":
                self.request_ids.append(value)
            elif name == b"traceparent":
                self.traceparents.append(value)
            elif name == b"access-control-request-method":
                self.wanted_method = value
            elif name == b"access-control-request-headers":
                self.wanted_headers = value


def canonical_path(path: str, raw: bytes) -> str | None:
    """The decoded path that routes are matched by; None when no route can have it.

    Each segment is decoded by itself, so an encoded slash separates nothing: it stays encoded. Doubled slashes and dot
    segments, encoded ones too, lead nowhere.
    """
    if b"%" not in raw and b"//" not in raw and b"/." not in raw:
        return path
    segments = raw.split(b"/")
    decoded = [unquote(segment.decode("ascii", "replace")) for segment in segments]
    if any(segment in {".", ".."} for segment in decoded) or any(not segment for segment in segments[1:-1]):
        return None
    return "/".join(segment.replace("/", "%2F") for segment in decoded)


def _identify(scope: Scope, asked: _Asked) -> Headers:
    """Give the request its ids; return the headers that tell them."""
    scope[REQUEST_ID] = request_ids.request_id(asked.request_ids)
    scope[TRACEPARENT] = request_ids.traceparent(asked.traceparents)
    return [(b"x-request-id", scope[REQUEST_ID].encode()), (b"traceparent", scope[TRACEPARENT].encode())]


_records = Records()
