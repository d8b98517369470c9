"""How many requests one client address may make: one bucket each over all routes, shared by all processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import structlog

from fred import metrics
from fred.buckets import Draw, retry_after
from fred.clients import bucket_key
from fred.loop_buckets import LoopBuckets

TOO_MANY: Final = "rate limit exceeded"
CALLBACKS: Final = "/callbacks/provision"
"""Backends have buckets of their own there."""
HEALTH: Final = "/health"
"""Never refused: who watches would take the provider for dead. Over the limit it tells the last known verdict."""
OVER_LIMIT: Final = "fred.over_limit"
"""Scope key that is there when a request was let in without a token."""
MOST_SCARCE: Final = 10_000
"""Refused addresses that are remembered; one more, and all are forgotten."""
_TELL_EVERY_S: Final = 1.0

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Along:
    """A token of another kind that a request will need; drawn in the same trip, if its address has one."""

    buckets: LoopBuckets
    key: str
    draw: Draw | None = None


class AddressLimit:
    """The limit of all clients."""

    def __init__(
        self,
        *,
        rate: float,
        burst: int,
        buckets: LoopBuckets | None = None,
        ahead: Callable[[Mapping[str, Any]], Along | None] = lambda _: None,
    ) -> None:
        """`rate` requests per second, `burst` at once.

        `ahead` begins the work on a request before its draw is known, and may name a token that is drawn along with it.
        It is not called for an address whose last request was refused.
        """
        self.retry_after_s = retry_after(rate)
        self._buckets = buckets or LoopBuckets("ip", rate=rate, burst=burst)
        self._ahead = ahead
        self._scarce: set[str] = set()
        self._told_at = float("-inf")
        self._refused = 0

    async def admits(self, scope: Mapping[str, Any], address: str) -> bool:
        """Take a token of this address for a request; without one it is counted as refused."""
        if scope["path"] == CALLBACKS and scope.get("method") == "POST":
            return True
        key = bucket_key(address)
        along = None if key in self._scarce else self._ahead(scope)
        if along is None:
            draw = await self._buckets.take_soon(key)
        else:
            draw, along.draw = await self._buckets.take_both(key, along.buckets, along.key)
        if draw.wait_s <= 0:
            self._scarce.discard(key)
            return True
        if len(self._scarce) >= MOST_SCARCE:
            self._scarce.clear()
        self._scarce.add(key)
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
