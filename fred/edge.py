"""What every HTTP answer passes on its way out, whoever makes it: CORS, security headers, the access log, metrics.

One ASGI application around the others, in one pass over each message.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, Final

from prometheus_client import Counter, Histogram

from fred import logs, metrics

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

ROUTE: Final = "fred.route"
"""Scope key under which a handler leaves the template of the route that it took."""
UNMATCHED: Final = "unmatched"
SECURITY_HEADERS: Final[Headers] = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"x-xss-protection", b"1; mode=block"),
    (b"cache-control", b"no-store"),
]
METHODS: Final = (b"GET", b"POST")
REQUEST_HEADERS: Final = frozenset(
    {b"authorization", b"content-type", b"idempotency-key", b"last-event-id", b"x-request-id", b"traceparent"}
)
EXPOSED_HEADERS: Final = b"Retry-After, X-Request-ID, Idempotency-Replayed"
PREFLIGHT_MAX_AGE_S: Final = b"600"
_PREFLIGHT_VARY: Final = b"Origin, Access-Control-Request-Method, Access-Control-Request-Headers"
_KNOWN_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Edge:
    """The outermost ASGI application of HTTP; other kinds of connections pass untouched."""

    def __init__(self, app: App, *, cors_origins: Sequence[str], secures: bool = True) -> None:
        """`cors_origins` as configured: empty means no CORS at all, `*` means every origin.

        `secures` False leaves the security headers to the application.
        """
        self._app = app
        self._security = SECURITY_HEADERS if secures else []
        self._cors = Cors(cors_origins) if cors_origins else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        asked = Asked(scope) if self._cors else None
        if self._cors and asked and asked.is_preflight:
            await send({"type": "http.response.start", "status": 204, "headers": self._cors.preflight(asked)})
            await send({"type": "http.response.body", "body": b""})
            return
        extra = [*self._cors.simple(asked), *self._security] if self._cors and asked else self._security
        await self._observed(scope, receive, send, extra)

    async def _observed(self, scope: Scope, receive: Receive, send: Send, extra: Headers) -> None:
        started = time.perf_counter()
        status = 0

        async def send_on(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *extra]
            await send(message)

        scope[ROUTE] = UNMATCHED
        try:
            await self._app(scope, receive, send_on)
        finally:
            _records.add(scope, status or 500, time.perf_counter() - started)


class Asked:
    """What a request says about its origin."""

    __slots__ = ("headers", "is_preflight", "method", "origin", "wanted_headers", "wanted_method")

    def __init__(self, scope: Scope) -> None:
        """Read the headers once."""
        self.method: str = scope["method"]
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.origin = self.headers.get(b"origin", b"")
        self.wanted_method = self.headers.get(b"access-control-request-method", b"")
        self.wanted_headers = self.headers.get(b"access-control-request-headers", b"")
        self.is_preflight = self.method == "OPTIONS" and bool(self.wanted_method)


class Cors:
    """Which origins a browser may show our answers to."""

    def __init__(self, origins: Sequence[str]) -> None:
        """`*` alone allows all; one `*` inside an origin stands for any text there; case does not matter."""
        lowered = [origin.lower().encode() for origin in origins]
        self._all = b"*" in lowered
        self._exact = frozenset(origin for origin in lowered if b"*" not in origin)
        self._patterns = [origin.partition(b"*")[::2] for origin in lowered if b"*" in origin and origin != b"*"]

    def allows(self, origin: bytes) -> bool:
        """Whether this `Origin` header is one of the configured."""
        lowered = origin.lower()
        if not lowered:
            return False
        return (
            self._all
            or lowered in self._exact
            or any(
                len(lowered) >= len(before) + len(after) and lowered.startswith(before) and lowered.endswith(after)
                for before, after in self._patterns
            )
        )

    def preflight(self, asked: Asked) -> Headers:
        """Headers of the 204 to a preflight; the permissions only when all that was asked for is allowed."""
        headers: Headers = [(b"vary", _PREFLIGHT_VARY)]
        wanted = [name.strip() for name in asked.wanted_headers.split(b",") if name.strip()]
        if (
            not self.allows(asked.origin)
            or asked.wanted_method not in METHODS
            or not REQUEST_HEADERS.issuperset(wanted)
        ):
            return headers
        headers += [
            (b"access-control-allow-origin", self._echo(asked.origin)),
            (b"access-control-allow-methods", asked.wanted_method),
        ]
        if wanted:
            headers.append((b"access-control-allow-headers", asked.wanted_headers))
        headers.append((b"access-control-max-age", PREFLIGHT_MAX_AGE_S))
        return headers

    def simple(self, asked: Asked) -> Headers:
        """Headers of every other answer, errors included."""
        headers: Headers = [(b"vary", b"Origin")]
        if asked.method in {"GET", "POST", "OPTIONS"} and self.allows(asked.origin):
            headers += [
                (b"access-control-allow-origin", self._echo(asked.origin)),
                (b"access-control-expose-headers", EXPOSED_HEADERS),
            ]
        return headers

    def _echo(self, origin: bytes) -> bytes:
        return b"*" if self._all else origin


class _Records:
    """Counts requests, and logs those of one turn of the event loop in one write."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._lines: list[dict[str, str | float]] = []

    def add(self, scope: Scope, status: int, seconds: float) -> None:
        method = scope["method"] if scope["method"] in _KNOWN_METHODS else "other"
        counter, histogram = self._of(method, scope[ROUTE], status)
        counter.inc()
        histogram.observe(seconds)
        path: str = scope["path"]
        if not self._lines:
            asyncio.get_running_loop().call_soon(self._write)
        self._lines.append(
            {
                "method": method,
                "path": path if path.isprintable() and len(path) <= logs.MAX_TEXT else logs.clean(path, logs.MAX_TEXT),
                "status": status,
                "duration_ms": round(seconds * 1000, 2),
                "peer": (scope.get("client") or ("",))[0],
            }
        )

    def _of(self, method: str, route: str, status: int) -> tuple[Counter, Histogram]:
        """The two series of these labels, looked up once: all three are of few values."""
        found = self._series.get((method, route, status))
        if found is None:
            labels = {"method": method, "path": route, "status": str(status)}
            found = (metrics.API_REQUESTS.labels(**labels), metrics.API_REQUEST_DURATION.labels(**labels))
            self._series[method, route, status] = found
        return found

    def _write(self) -> None:
        lines, self._lines = self._lines, []
        logs.lines("api.request", lines)


_records = _Records()
