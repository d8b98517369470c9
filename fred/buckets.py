"""Token buckets shared by all processes through Valkey: so many at once, then so many per second.

One script takes tokens from many buckets and says how long the next one takes; the server's clock is the only one.
A sorted set beside the buckets of a kind bounds their number: the script trims both. While Valkey is away each process
counts for itself, so that a limit is at worst multiplied by the number of processes, never gone.
"""

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

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

# KEYS: the sorted set of each kind, then one bucket for each token that is asked for. ARGV: the number of kinds; tokens
# per second, size of a bucket, most buckets and seconds after which an unused bucket is forgotten of each kind; which
# kind each bucket is, below 0 for one that is left alone unless the one before it gave a token. Returns the seconds
# until there is a token (0: one was taken) and the tokens left of each bucket that was not left alone.
TAKE: Final = """
local call, kinds = redis.call, tonumber(ARGV[1])
local t = call('TIME')
local now = t[1] + t[2] / 1000000
local stamp = string.format('%.6f', now)
local answers = {}
local wait = 0
for i = kinds + 1, #KEYS do
  local bucket, kind = KEYS[i], tonumber(ARGV[3 * kinds + 1 + i])
  if kind > 0 or wait == 0 then
    if kind < 0 then kind = -kind end
    local rate, burst, idle = tonumber(ARGV[4 * kind - 2]), tonumber(ARGV[4 * kind - 1]), tonumber(ARGV[4 * kind + 1])
    local h = call('HMGET', bucket, 'tokens', 'at')
    local tokens = math.min(burst, (tonumber(h[1]) or burst) + math.max(0, now - (tonumber(h[2]) or now)) * rate)
    if tokens >= 1 then tokens, wait = tokens - 1, 0 else wait = (1 - tokens) / rate end
    call('HSET', bucket, 'tokens', tokens, 'at', stamp)
    call('PEXPIRE', bucket, math.ceil(idle * 1000))
    call('ZADD', KEYS[kind], stamp, bucket)
    answers[#answers + 1] = tostring(wait)
    answers[#answers + 1] = tostring(tokens)
  end
end
for kind = 1, kinds do
  local set, most, idle = KEYS[kind], tonumber(ARGV[4 * kind]), tonumber(ARGV[4 * kind + 1])
  call('PEXPIRE', set, math.ceil(idle * 1000))
  call('ZREMRANGEBYSCORE', set, '-inf', string.format('(%.6f', now - idle))
  local over = call('ZCARD', set) - most
  if over > 0 then
    local oldest = call('ZPOPMIN', set, over)
    for i = 1, #oldest, 2 do call('DEL', oldest[i]) end
  end
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
        idle_s = min(idle_s, burst / rate + 1)
        self.set_name = f"fred:rl:{kind}"
        self.limits = [str(one) for one in (rate, burst, MOST_KEPT, idle_s)]
        self._rate, self._burst = rate, burst
        self._client = client
        self._lock = threading.Lock()
        self._own: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._quiet_until = float("-inf")

    def take(self, key: str) -> float:
        """Take a token: 0.0, or in how many seconds there is one. Waits 200 ms at the longest."""
        return self.draw([key])[0].wait_s

    def draw(self, keys: Sequence[str]) -> list[Draw]:
        """Take a token for each of these keys, in this order and in one step."""
        if time.monotonic() >= self._quiet_until:
            asked = [Asked(self, key) for key in keys]
            names, arguments = run_of(asked)
            try:
                answer = self._client().eval(TAKE, len(names), *names, *arguments)
                return [draw for draw, _ in draws_of(asked, answer)]
            except (RedisError, OSError) as error:
                self.be_quiet(error)
            except (TypeError, ValueError) as error:  # no answer of our script: whose then are the next ones?
                self._client().connection_pool.disconnect(inuse_connections=False)
                self.be_quiet(error)
        with self._lock:
            return [self._own_draw(key) for key in keys]

    def draw_here(self, key: str) -> Draw:
        """Take a token from this process's own bucket."""
        with self._lock:
            return self._own_draw(key)

    def be_quiet(self, error: Exception) -> None:
        """Valkey did not answer: no thread asks for a while."""
        self._quiet_until = time.monotonic() + QUIET_S
        log.debug("bucket not reached", error=str(error))

    def _own_draw(self, key: str) -> Draw:
        now = time.monotonic()
        tokens, at = self._own.pop(key, (float(self._burst), now))
        tokens = min(self._burst, tokens + (now - at) * self._rate)
        wait = 0.0 if tokens >= 1 else (1 - tokens) / self._rate
        tokens = tokens - 1 if wait == 0 else tokens
        self._own[key] = tokens, now
        if len(self._own) > MOST_KEPT:
            self._own.popitem(last=False)
        return self.drawn(wait, tokens)

    def drawn(self, wait: float, tokens: float) -> Draw:
        """A draw from one of these."""
        return Draw(wait, tokens, self._burst, self._rate)


class Asked(NamedTuple):
    """A token of a bucket, and perhaps one of another kind that is only taken if there was this one."""

    buckets: Buckets
    key: str
    then: tuple[Buckets, str] | None = None


Drawn = tuple[Draw, Draw | None]
"""What became of both; None of one that was not asked for or left alone."""


def run_of(asked: Sequence[Asked]) -> tuple[list[str], list[str]]:
    """KEYS and ARGV of the run that takes these tokens, in this order."""
    kinds: dict[Buckets, int] = {}
    names, numbers = [], []
    for buckets, key, then in asked:
        names.append(f"{buckets.set_name}:{key}")
        numbers.append(str(kinds.setdefault(buckets, len(kinds) + 1)))
        if then is not None:
            others, other = then
            names.append(f"{others.set_name}:{other}")
            numbers.append(str(-kinds.setdefault(others, len(kinds) + 1)))
    limits = [limit for kind in kinds for limit in kind.limits]
    return [kind.set_name for kind in kinds] + names, [str(len(kinds)), *limits, *numbers]


def draws_of(asked: Sequence[Asked], answer: Any) -> list[Drawn]:
    """What that run brought. Raises TypeError or ValueError for what is no answer of the script."""
    if not isinstance(answer, list):
        raise TypeError(f"no list but {type(answer).__name__}")
    numbers = [float(one) for one in reversed(answer)]
    try:
        found = draw_each(asked, lambda buckets, _: buckets.drawn(numbers.pop(), numbers.pop()))
    except IndexError:
        raise ValueError(f"only {len(answer)} numbers") from None
    if numbers:
        raise ValueError(f"{len(numbers)} numbers too many")
    return found


def draw_each(asked: Sequence[Asked], draw: Callable[[Buckets, str], Draw]) -> list[Drawn]:
    """Draw for all of them, in this order."""
    found: list[Drawn] = []
    for buckets, key, then in asked:
        first = draw(buckets, key)
        found.append((first, draw(*then) if then is not None and first.wait_s == 0 else None))
    return found


def retry_after(rate: float) -> int:
    """Whole seconds until a bucket of this rate has a new token, 1 to 86400; 1 for what is no rate."""
    if not (math.isfinite(rate) and rate > 0):
        return 1
    return max(1, math.ceil(min(1 / rate, MAX_RETRY_AFTER_S)))
