"""Token buckets shared by all processes through Valkey: so many at once, then so many per second.

One script takes a token and says how long the next one takes; the server's clock is the only one. While Valkey is away
each process counts for itself, so that a limit is at worst multiplied by the number of processes, never gone.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import structlog
from redis import Redis
from redis.exceptions import RedisError

from fred import valkey

MOST_KEPT: Final = 10_000
"""Buckets that a process counts by itself at most; the one unused for longest goes first."""
_QUIET_S: Final = 1.0

# ARGV: tokens per second, size of the bucket. Returns seconds until there is a token; 0: one was taken.
_TAKE: Final = """
local rate, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local t = redis.call('TIME')
local now = t[1] + t[2] / 1000000
local h = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens = math.min(burst, (tonumber(h[1]) or burst) + math.max(0, now - (tonumber(h[2]) or now)) * rate)
local wait = 0
if tokens >= 1 then tokens = tokens - 1 else wait = (1 - tokens) / rate end
redis.call('HSET', KEYS[1], 'tokens', tokens, 'at', string.format('%.6f', now))
redis.call('PEXPIRE', KEYS[1], math.ceil(burst / rate * 1000) + 1000)
return tostring(wait)
"""

log = structlog.get_logger("fred.buckets")


class Buckets:
    """The buckets of one kind, one for each key. Thread safe; never raises."""

    def __init__(self, kind: str, *, rate: float, burst: int, client: Callable[[], Redis] = valkey.client) -> None:
        """`rate` tokens per second, at most `burst` at once, kept under `fred:rl:<kind>:<key>`."""
        self._prefix = f"fred:rl:{kind}:"
        self._rate, self._burst = rate, burst
        self._client = client
        self._lock = threading.Lock()
        self._own: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._quiet_until = float("-inf")

    def take(self, key: str) -> float:
        """Take a token: 0.0, or in how many seconds there is one. Waits 200 ms at the longest."""
        if time.monotonic() >= self._quiet_until:
            try:
                found: object = self._client().eval(_TAKE, 1, self._prefix + key, str(self._rate), str(self._burst))
                return float(found.decode() if isinstance(found, bytes) else str(found))
            except (RedisError, OSError) as error:
                self._quiet_until = time.monotonic() + _QUIET_S
                log.debug("bucket not reached", error=str(error))
        return self._take_own(key)

    def _take_own(self, key: str) -> float:
        now = time.monotonic()
        with self._lock:
            tokens, at = self._own.pop(key, (float(self._burst), now))
            tokens = min(self._burst, tokens + (now - at) * self._rate)
            wait = 0.0 if tokens >= 1 else (1 - tokens) / self._rate
            self._own[key] = (tokens - 1 if wait == 0 else tokens), now
            if len(self._own) > MOST_KEPT:
                self._own.popitem(last=False)
        return wait
