"""The access log and the request metrics: one line and one count for each answer that reached the router."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import MutableMapping
from typing import Any, Final

import structlog
from prometheus_client import Counter, Histogram

from fred import logs, metrics
from fred.clients import CLIENT_IP
from fred.request_ids import REQUEST_ID

ROUTE: Final = "fred.route"
"""Scope key under which a handler leaves the template of the route that it took."""
UNMATCHED: Final = "unmatched"
PROBES: Final = frozenset({"/health", "/readyz", "/metrics"})
"""Routes whose good answers are no news."""
_KNOWN_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

log = structlog.get_logger(__name__)


class Records:
    """Counts requests, and logs those of one turn of the event loop in one write."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._lines: list[dict[str, str | float]] = []

    def add(self, scope: MutableMapping[str, Any], status: int, seconds: float) -> None:
        """Record one request, or one connection of a WebSocket at its end."""
        method = scope.get("method", "GET")
        method = method if method in _KNOWN_METHODS else "other"
        route: str = scope.get(ROUTE, UNMATCHED)
        counter, histogram = self._of(method, route, status)
        counter.inc()
        histogram.observe(seconds)
        if route in PROBES and 200 <= status < 300:
            if logging.getLogger().isEnabledFor(logging.DEBUG):
                log.debug("api.probe", **_line(scope, method, status, seconds))
            return
        if not self._lines:
            asyncio.get_running_loop().call_soon(self._write)
        self._lines.append(_line(scope, method, status, seconds))

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


def _line(scope: MutableMapping[str, Any], method: str, status: int, seconds: float) -> dict[str, str | float]:
    """The fields of a record; a path has no query, and no address comes from a header that nobody trusts."""
    path: str = scope["path"]
    return {
        "method": method,
        "path": path if path.isprintable() and len(path) <= logs.MAX_TEXT else logs.clean(path, logs.MAX_TEXT),
        "status": status,
        "duration_ms": round(seconds * 1000, 2),
        "peer": (scope.get("client") or ("",))[0],
        "client_ip": scope.get(CLIENT_IP, ""),
        "request_id": scope.get(REQUEST_ID, ""),
    }
