"""How many streams of events are open, over all processes: places in Valkey that a dead process gives up.

A stream has one member in two sorted sets, of all streams and of its lease, scored with the time it ends by itself.
Its process renews that, and at once when Valkey is back after it was away, so that the counts are soon right again.
Meanwhile each process counts its own.
"""

from __future__ import annotations

import asyncio
import contextvars
import secrets
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from typing import Final
from uuid import UUID

import structlog
from redis import Redis as SyncRedis
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from fred.buckets import QUIET_S
from fred.time_limits import TimeLimit
from fred.valkey import LIMIT_S

TOTAL: Final = "fred:ws:total"
_OF_LEASE: Final = "fred:ws:lease:"
_AT_ONCE: Final = 200

# KEYS: all, of the lease. ARGV: member, ms it is kept, most of all, most of the lease. 1: it has a place.
_TAKE: Final = """
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
for i = 1, 2 do redis.call('ZREMRANGEBYSCORE', KEYS[i], '-inf', now) end
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[3]) then return 0 end
if redis.call('ZCARD', KEYS[2]) >= tonumber(ARGV[4]) then return 0 end
for i = 1, 2 do
  redis.call('ZADD', KEYS[i], now + ARGV[2], ARGV[1])
  redis.call('PEXPIRE', KEYS[i], ARGV[2] * 2)
end
return 1
"""
# KEYS: all, then one of a lease for each member. ARGV: ms they are kept, the members.
_RENEW: Final = """
local t = redis.call('TIME')
local till = t[1] * 1000 + math.floor(t[2] / 1000) + ARGV[1]
for i = 2, #ARGV do
  redis.call('ZADD', KEYS[1], till, ARGV[i])
  redis.call('ZADD', KEYS[i], till, ARGV[i])
  redis.call('PEXPIRE', KEYS[i], ARGV[1] * 2)
end
redis.call('PEXPIRE', KEYS[1], ARGV[1] * 2)
"""
# KEYS and ARGV as above, without the time.
_FREE: Final = """
for i = 1, #ARGV do
  redis.call('ZREM', KEYS[1], ARGV[i])
  redis.call('ZREM', KEYS[i + 1], ARGV[i])
end
"""

_COUNT: Final = """
local t = redis.call('TIME')
return redis.call('ZCOUNT', KEYS[1], t[1] * 1000 + math.floor(t[2] / 1000), '+inf')
"""

log = structlog.get_logger("tenants_api.event_slots")


def open_streams(valkey: SyncRedis) -> int:
    """How many streams are open, over all processes. Raises RedisError when Valkey is away."""
    return int(str(valkey.eval(_COUNT, 1, TOTAL)))


class EventSlots:
    """Places for open streams. Belongs to one event loop; refuses nobody because Valkey is away."""

    def __init__(self, url: str, *, total: int, per_lease: int, kept_s: float = 30.0) -> None:
        """At most `total` at once and `per_lease` of one lease. A place not renewed ends after `kept_s`."""
        self._total, self._per_lease, self._kept_s = total, per_lease, kept_s
        self._valkey = Redis.from_url(
            url,
            socket_timeout=None,  # each call has a limit for all of it
            socket_connect_timeout=None,
            retry=Retry(NoBackoff(), 0),
        )
        self._lock = asyncio.Lock()  # one call at a time: a place that was freed must not be renewed afterwards
        self._own: dict[str, UUID] = {}
        self._of_lease: Counter[UUID] = Counter()
        self._freed: dict[str, UUID] = {}
        self._freeing: asyncio.Task[None] | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._missed = asyncio.Event()  # Valkey was not told something
        self._quiet_until = float("-inf")

    async def take(self, lease: UUID) -> str | None:
        """A place for a stream of this lease, None when there is no room."""
        if self._renewing is None:
            self._renewing = asyncio.create_task(self._renew_for_ever(), context=contextvars.Context())
        member = secrets.token_hex(8)
        async with self._lock:
            try:
                found = await self._run(
                    _TAKE, {member: lease}, [member, round(self._kept_s * 1000), self._total, self._per_lease]
                )
            except BaseException:  # nobody waits any more
                self._give_back(member, lease)
                self._free_soon()
                raise
            if found is None:  # not reached: what this process knows has to do
                found = int(len(self._own) < self._total and self._of_lease[lease] < self._per_lease)
                if not found:  # Valkey may yet come to what it was asked
                    self._give_back(member, lease)
            if found == 1:
                self._own[member] = lease
                self._of_lease[lease] += 1
        return member if found == 1 else None

    def free(self, member: str) -> None:
        """Give a place back; a second time it is nobody's."""
        lease = self._own.pop(member, None)
        if lease is None:
            return
        self._of_lease[lease] -= 1
        if not self._of_lease[lease]:
            del self._of_lease[lease]
        self._give_back(member, lease)
        self._free_soon()

    async def renew(self) -> None:
        """Keep all places of this process, and give those back that Valkey was not told of."""
        members = list(self._own)
        for start in range(0, len(members), _AT_ONCE):
            async with self._lock:
                some = {one: self._own[one] for one in members[start : start + _AT_ONCE] if one in self._own}
                if some:
                    await self._run(_RENEW, some, [round(self._kept_s * 1000), *some])
        await self._free()

    async def close(self) -> None:
        """Give every place back."""
        if self._renewing is not None:
            self._renewing.cancel()
        for member in list(self._own):
            self.free(member)
        if self._freeing is not None:
            await self._freeing
        await self._free()
        await self._valkey.aclose()

    def _give_back(self, member: str, lease: UUID) -> None:
        self._freed[member] = lease
        if len(self._freed) > self._total:  # Valkey is away for long, and forgets the first by itself
            del self._freed[next(iter(self._freed))]

    def _free_soon(self) -> None:
        if self._freeing is None or self._freeing.done():
            self._freeing = asyncio.create_task(self._free(), context=contextvars.Context())

    async def _free(self) -> None:
        while True:
            async with self._lock:
                some = dict(islice(self._freed.items(), _AT_ONCE))
                if not some or await self._run(_FREE, some, list(some)) is None:
                    return
                for member in some:
                    self._freed.pop(member, None)

    async def _renew_for_ever(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._kept_s / 3):
                    await self._missed.wait()
            if self._missed.is_set():
                self._missed.clear()
                await asyncio.sleep(QUIET_S)
            await self.renew()

    async def _run(self, script: str, members: Mapping[str, UUID], arguments: list[str | int]) -> int | None:
        """Run a script over these members' keys; None when Valkey was not reached, now or a moment ago."""
        now = asyncio.get_running_loop().time()
        if now < self._quiet_until:
            return None
        keys = [TOTAL, *(f"{_OF_LEASE}{lease}" for lease in members.values())]
        try:
            with TimeLimit(LIMIT_S):
                found: object = await self._valkey.eval(script, len(keys), *keys, *arguments)
            return int(str(found)) if found is not None else 0
        except Exception as error:  # noqa: BLE001 - whatever it is, streams are counted and renewed here
            self._quiet_until = asyncio.get_running_loop().time() + QUIET_S
            self._missed.set()
            log.debug("events.slots_not_reached", error=type(error).__name__)
            return None
