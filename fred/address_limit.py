"""How many requests one client address may make: one bucket each over all routes, shared by all processes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

import structlog

from fred import metrics
from fred.buckets import retry_after
from fred.clients import bucket_key
from fred.loop_buckets import LoopBuckets

TOO_MANY: Final = "rate limit exceeded"
CALLBACKS: Final = "/callbacks/provision"
"""Backends have buckets of their own there."""
HEALTH: Final = "/health"
"""Never refused: who watches would take the provider for dead. Over the limit it tells the last known verdict."""
OVER_LIMIT: Final = "fred.over_limit"
"""Scope key that is there when a request was let in without a token."""
_TELL_EVERY_S: Final = 1.0

log = structlog.get_logger(__name__)


class AddressLimit:
    """The limit of all clients."""

    def __init__(self, *, rate: float, burst: int, buckets: LoopBuckets | None = None) -> None:
        """`rate` requests per second, `burst` at once."""
        self.retry_after_s = retry_after(rate)
        self._buckets = buckets or LoopBuckets("ip", rate=rate, burst=burst)
        self._told_at = float("-inf")
        self._refused = 0

    async def admits(self, scope: Mapping[str, Any], address: str) -> bool:
        """Take a token of this address for a request; without one it is counted as refused."""
        if scope["path"] == CALLBACKS and scope.get("method") == "POST":
            return True
        draw = await self._buckets.take_soon(bucket_key(address))
        if draw.wait_s <= 0:
            return True
        metrics.RATE_LIMIT_REJECTIONS.labels("global").inc()
        self._tell(address)
        return False

    async def close(self) -> None:
        """End the connection to the buckets."""
        await self._buckets.close()

    def _tell(self, address: str) -> None:
        """One line a second, however many are refused."""
        self._refused += 1
        now = time.monotonic()
        if now - self._told_at >= _TELL_EVERY_S:
            self._told_at = now
            log.warning("api.rate_limited", client_ip=address, refused=self._refused)
            self._refused = 0
