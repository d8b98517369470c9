"""How many calls a tenant may make: one bucket each, shared by all processes."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from django.conf import settings

from fred import metrics, on_loop
from fred.buckets import Draw, retry_after
from fred.loop_buckets import LoopBuckets
from tenants_api import ahead
from tenants_api.errors import ApiError

IDLE_S: Final = 300.0
"""A bucket unused for so long is forgotten: it is full again."""
INFO: Final = "X-RateLimit-Info"
"""Who sends this header with the value 1 is told how the bucket stands."""


class RateLimited(ApiError):
    """The tenant has no token left; the call took nothing."""

    def __init__(self, draw: Draw) -> None:
        headers = {"Retry-After": str(retry_after(draw.rate))}
        super().__init__(429, "rate limit exceeded", error_code="rate_limited_tenant", headers=headers)
        self.draw = draw


def is_on() -> bool:
    """Whether tenants are limited at all; the order of checks depends on it."""
    return bool(settings.FRED.tenant_rate_limit_rps > 0)


def charge(tenant: str) -> Draw:
    """Take one token of a tenant whose proof was verified. Raises RateLimited when there is none."""
    draw = ahead.draw(tenant)
    if draw is None:
        draw = on_loop.wait(buckets().take_soon(tenant)) if on_loop.is_here() else buckets().draw([tenant])[0]
    if draw.wait_s > 0:
        metrics.RATE_LIMIT_REJECTIONS.labels(limiter="tenant").inc()
        raise RateLimited(draw)
    return draw


def buckets() -> LoopBuckets:
    """The tenants' buckets, of which each has its address as key."""
    return _buckets(settings.FRED.tenant_rate_limit_rps, settings.FRED.tenant_rate_limit_burst)


async def close() -> None:
    """End what an event loop has of the buckets."""
    await buckets().close()


def info(draw: Draw) -> Mapping[str, str]:
    """Headers that say how the bucket stands: its size, whole tokens left, seconds until it is full."""
    return {
        "RateLimit-Limit": str(draw.limit),
        "RateLimit-Remaining": str(draw.remaining),
        "RateLimit-Reset": str(draw.reset_s),
    }


@lru_cache(maxsize=8)
def _buckets(rate: float, burst: int) -> LoopBuckets:
    return LoopBuckets("tenant", rate=rate, burst=burst, idle_s=IDLE_S)
