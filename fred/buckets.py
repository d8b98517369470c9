"""Token buckets shared by all processes through Valkey: so many at once, then so many per second.

One script takes a token for each of many keys and says how long the next one takes; the server's clock is the only one.
A sorted set beside the buckets of a kind bounds their number: the script trims both. While Valkey is away each process
counts for itself, so that a limit is at worst multiplied by the number of processes, never gone.
"""

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import structlog
from redis import Redis
from redis.exceptions import RedisError

from fred import valkey

MOST_KEPT: Final = 10_000
"""Buckets of a kind at most; the one unused for longest goes first."""
MAX_RETRY_AFTER_S: Final = 86_400
IDLE_S: Final = 180.0
QUIET_S: Final = 1.0
"""How long nobody asks a Valkey that did not answer."""

# KEYS: the sorted set, then one bucket for each token that is asked for. ARGV: tokens per second, size of a bucket,
# most buckets, seconds after which an unused bucket is forgotten. Returns for each bucket the seconds until there is a
# token (0: one was taken) and the tokens left.
TAKE: Final = """
local rate, burst, most, idle = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local t = redis.call('TIME')
local now = t[1] + t[2] / 1000000
local stamp = string.format('%.6f', now)
local answers = {}
for i = 2, #KEYS do
  local h = redis.call('HMGET', KEYS[i], 'tokens', 'at')
  local tokens = math.min(burst, (tonumber(h[1]) or burst) + math.max(0, now - (tonumber(h[2]) or now)) * rate)
  local wait = 0
  if tokens >= 1 then tokens = tokens - 1 else wait = (1 - tokens) / rate end
  redis.call('HSET', KEYS[i], 'tokens', tokens, 'at', stamp)
  redis.call('PEXPIRE', KEYS[i], math.ceil(idle * 1000))
  redis.call('ZADD', KEYS[1], stamp, KEYS[i])
  answers[#answers + 1] = tostring(wait)
  answers[#answers + 1] = tostring(tokens)
end
redis.call('PEXPIRE', KEYS[1], math.ceil(idle * 1000))
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('(%.6f', now - idle))
local over = redis.call('ZCARD', KEYS[1]) - most
if over > 0 then
  local oldest = redis.call('ZPOPMIN', KEYS[1], over)
  for i = 1, #oldest, 2 do redis.call('DEL', oldest[i]) end
end
return answers
"""

log = structlog.get_logger("fred.buckets")


@dataclass(frozen=True, slots=True)
class Draw:
    """What became of one request for a token. `wait_s` is 0.0 when it was taken, else the time until there is one."""

    wait_s: float
    tokens: float
    limit: int
    rate: float

    @property
    def remaining(self) -> int:
        """Whole tokens left."""
        return int(self.tokens)

    @property
    def reset_s(self) -> int:
        """Whole seconds until the bucket is full again."""
        return math.ceil((self.limit - self.tokens) / self.rate)


class Buckets:
    """The buckets of one kind, one for each key. Thread safe; never raises."""

    def __init__(
        self,
        kind: str,
        *,
        rate: float,
        burst: int,
        idle_s: float = IDLE_S,
        client: Callable[[], Redis] = valkey.client,
    ) -> None:
        """`rate` tokens per second, at most `burst` at once, kept under `fred:rl:<kind>:<key>`.

        A bucket unused for `idle_s` seconds, or for as long as it takes to fill, is forgotten: it is full again.
        """
        self._set = f"fred:rl:{kind}"
        self._rate, self._burst = rate, burst
        self._idle_s = min(idle_s, burst / rate + 1)
        self._client = client
        self._lock = threading.Lock()
        self._own: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._quiet_until = float("-inf")

    def take(self, key: str) -> float:
        """Take a token: 0.0, or in how many seconds there is one. Waits 200 ms at the longest."""
        return self.draw([key])[0].wait_s

    def draw(self, keys: Sequence[str]) -> list[Draw]:
        """Take a token for each of these keys, in this order and in one step."""
        if not self._is_quiet():
            names, limits = self._arguments(keys)
            try:
                return self._answers(self._client().eval(TAKE, len(names), *names, *limits))
            except (RedisError, OSError) as error:
                self._be_quiet(error)
        return self._from_own(keys)

    def _arguments(self, keys: Sequence[str]) -> tuple[list[str], list[str]]:
        """KEYS and ARGV of the script."""
        limits = (self._rate, self._burst, MOST_KEPT, self._idle_s)
        return [self._set, *(f"{self._set}:{key}" for key in keys)], [str(one) for one in limits]

    def _answers(self, found: Any) -> list[Draw]:
        """What the script returned."""
        numbers = [float(one) for one in found]
        return [self._draw(*pair) for pair in zip(numbers[::2], numbers[1::2], strict=True)]

    def _is_quiet(self) -> bool:
        return time.monotonic() < self._quiet_until

    def _be_quiet(self, error: Exception) -> None:
        self._quiet_until = time.monotonic() + QUIET_S
        log.debug("bucket not reached", error=str(error))

    def _from_own(self, keys: Sequence[str]) -> list[Draw]:
        with self._lock:
            return [self._own_draw(key) for key in keys]

    def _own_draw(self, key: str) -> Draw:
        now = time.monotonic()
        tokens, at = self._own.pop(key, (float(self._burst), now))
        tokens = min(self._burst, tokens + (now - at) * self._rate)
        wait = 0.0 if tokens >= 1 else (1 - tokens) / self._rate
        tokens = tokens - 1 if wait == 0 else tokens
        self._own[key] = tokens, now
        if len(self._own) > MOST_KEPT:
            self._own.popitem(last=False)
        return self._draw(wait, tokens)

    def _draw(self, wait: float, tokens: float) -> Draw:
        return Draw(wait, tokens, self._burst, self._rate)


def retry_after(rate: float) -> int:
    """Whole seconds until a bucket of this rate has a new token, 1 to 86400; 1 for what is no rate."""
    if not (math.isfinite(rate) and rate > 0):
        return 1
    return max(1, math.ceil(min(1 / rate, MAX_RETRY_AFTER_S)))
