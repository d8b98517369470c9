"""How many calls a tenant may make: one bucket each, shared by all processes."""

import math
from functools import lru_cache
from typing import Final

from django.conf import settings

from fred import metrics
from fred.buckets import Buckets
from tenants_api.errors import ApiError

MAX_RETRY_AFTER_S: Final = 86_400


def is_on() -> bool:
    """Whether tenants are limited at all; the order of checks depends on it."""
    return bool(settings.FRED.tenant_rate_limit_rps > 0)


def charge(tenant: str) -> None:
    """Take one token of a tenant whose proof was verified. Raises the 429 when there is none, which takes nothing."""
    rps: float = settings.FRED.tenant_rate_limit_rps
    if _buckets(rps, settings.FRED.tenant_rate_limit_burst).take(tenant) > 0:
        metrics.RATE_LIMIT_REJECTIONS.labels(limiter="tenant").inc()
        headers = {"Retry-After": str(retry_after(rps))}
        raise ApiError(429, "rate limit exceeded", error_code="rate_limited_tenant", headers=headers)


def retry_after(rps: float) -> int:
    """Whole seconds until a bucket of this rate has a new token, 1 to 86400; 1 for what is no rate."""
    if not (math.isfinite(rps) and rps > 0):
        return 1
    return max(1, math.ceil(min(1 / rps, MAX_RETRY_AFTER_S)))


@lru_cache(maxsize=8)
def _buckets(rate: float, burst: int) -> Buckets:
    return Buckets("tenant", rate=rate, burst=burst)
