"""One circuit breaker per backend, and one for each node's simulations, shared by all processes through Valkey.

It opens at five failures in a row, stays open for a minute, then lets one call through: a success closes it, a failure
opens it again. Every step is one script on the server, whose clock is the only one. A call carries the generation it
began in and its result counts only there, so a late answer can't close what opened after it. Valkey that is away or was
flushed means closed: the breaker spares a sick backend, nothing depends on it.

Reads are kept for a second; only failures, the success after a failure, and the steps around the single call of a
half-open breaker are written.
"""

import os
import threading
import time
from asyncio import CancelledError
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import structlog
from redis import Redis
from redis.backoff import NoBackoff
from redis.commands.core import Script
from redis.exceptions import RedisError
from redis.retry import Retry

from fred import on_loop

log = structlog.get_logger("fred.breaker")

THRESHOLD: Final = 5
OPEN_S: Final = 60.0
PROBE_S: Final = 35.0
"""How long the half-open slot is held at most by a call that names no limit: the usual time limit and 5 s."""
PROBE_MARGIN_S: Final = 5.0
"""How much longer than its call's time limit the half-open slot is held, should the caller die."""
FRESH_S: Final = 0.8
"""With the wait for an answer a change is seen within a second."""
SIMULATION_OPEN_S: Final = 30.0
SIMULATION_PROBE_S: Final = 10.0
_LIMIT_S: Final = 0.2
_QUIET_S: Final = 1.0
_KEPT_MS: Final = 86_400_000

# ARGV of both: threshold, open ms, probe ms, how long the key is kept in ms.
_HEAD = """
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local h = redis.call('HMGET', KEYS[1], 'state', 'failures', 'since', 'generation', 'probe')
local state = h[1] or 'closed'
local before = state
local failures, since, generation = tonumber(h[2] or '0'), tonumber(h[3] or '0'), tonumber(h[4] or '0')
local probe = tonumber(h[5] or '0')
local open_ms, probe_ms = tonumber(ARGV[2]), tonumber(ARGV[3])
local function save()
  redis.call('HSET', KEYS[1], 'state', state, 'failures', failures, 'since', since, 'generation', generation,
    'probe', probe)
  redis.call('PEXPIRE', KEYS[1], ARGV[4])
end
local function wait()
  if state == 'open' then return math.max(0, since + open_ms - now) end
  if state == 'half_open' then return math.max(0, probe - now) end
  return 0
end
"""
_TAIL = "return {state, failures, generation, wait(), admitted, before}"
# ARGV[5]: '1' asks for admission, '0' only looks.
_ENTER = (
    _HEAD
    + """
local admitted = 0
if state == 'closed' then
  admitted = 1
elseif ARGV[5] == '1' and wait() == 0 then
  state, generation, probe, admitted = 'half_open', generation + 1, now + probe_ms, 1
  save()
end
"""
    + _TAIL
)
# ARGV[5]: the call's generation, ARGV[6]: its pulse.
_RECORD = (
    _HEAD
    + """
local admitted = 0
if tonumber(ARGV[5]) == generation then
  if ARGV[6] == 'success' then
    if state == 'half_open' then state, generation = 'closed', generation + 1 end
    failures = 0
    save()
  elseif ARGV[6] == 'failure' then
    failures = failures + 1
    if state == 'half_open' or (state == 'closed' and failures >= tonumber(ARGV[1])) then
      state, since, generation, probe = 'open', now, generation + 1, 0
    end
    save()
  elseif state == 'half_open' then
    probe = 0
    save()
  end
end
"""
    + _TAIL
)


class State(StrEnum):
    """What the breaker lets through: all, one, nothing."""

    CLOSED = "closed"
    HALF_OPEN = "half_open"
    OPEN = "open"

    @property
    def gauge(self) -> int:
        """The value of the breaker's gauge."""
        return {State.CLOSED: 0, State.HALF_OPEN: 1, State.OPEN: 2}[self]


@dataclass(frozen=True, slots=True)
class View:
    """What a breaker looked like a moment ago. `wait` is how many seconds from then nothing is let through."""

    state: State = State.CLOSED
    failures: int = 0
    generation: int = 0
    wait: float = 0.0
    at: float = float("-inf")


@dataclass(frozen=True, slots=True)
class _Found:
    """What a script saw, and whether it let a call through."""

    view: View
    admitted: bool


class _Caller:
    """Who waits on the event loop for a ticket that a thread gets; it may be ended while the thread is at it.

    Whichever of the two comes second gives back what nobody will use.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._has_left = False
        self._ticket: int | None = None

    def hand(self, ticket: int) -> bool:
        """Give it its ticket; False when it has left."""
        with self._lock:
            self._ticket = ticket
            return not self._has_left

    def leave(self) -> int | None:
        """Wait no more; returns the ticket that it was handed and will not use."""
        with self._lock:
            self._has_left = True
            return self._ticket


class Breaker:
    """The breaker of one backend, or of whatever else has a `key` in Valkey. Thread safe; never raises."""

    def __init__(
        self,
        client: Redis,
        name: str,
        *,
        key: str = "",
        threshold: int = THRESHOLD,
        open_for: float = OPEN_S,
        probe_for: float = PROBE_S,
        fresh_for: float = FRESH_S,
    ) -> None:
        """`open_for`, `probe_for` and `fresh_for` are in seconds."""
        self.name = name
        self._key = key or f"fred:cb:{name}"
        self._limits = (threshold, int(open_for * 1000), int(probe_for * 1000), _KEPT_MS)
        self._fresh_for = fresh_for
        self._client = client
        self._enter = client.register_script(_ENTER)
        self._record = client.register_script(_RECORD)
        self._lock = threading.Lock()
        self._view = View()
        self._quiet_until = float("-inf")
        self._asked_at = float("-inf")

    def enter(self, *, limit: float | None = None) -> int | None:
        """A ticket for one call, to be given back to `record`; None when nothing may be sent now.

        `limit` is the call's time limit in seconds: the half-open slot of a caller that dies is free soon after it.
        """
        view = self._view
        if view.state is State.CLOSED and self._is_fresh(view):
            return view.generation
        probe_ms = None if limit is None else int((limit + PROBE_MARGIN_S) * 1000)
        self._asked_at = time.monotonic()
        if self._is_quiet():
            return self._view.generation
        caller = _Caller()
        try:
            return on_loop.brief(self._admit, caller, probe_ms)
        except CancelledError:
            ticket = caller.leave()
            if ticket is not None:
                self.record(ticket, pulse="neutral")
            raise

    def record(self, ticket: int, *, pulse: str) -> None:
        """What a call told: `success`, `failure`, or `neutral`, which only gives back the slot."""
        view = self._view
        calm = view.state is State.CLOSED and view.failures == 0 and self._is_fresh(view)
        if pulse != "failure" and calm:
            return
        if not self._is_quiet():
            on_loop.surely(self._ask, self._record, ticket, pulse)

    def _admit(self, caller: _Caller, probe_ms: int | None) -> int | None:
        """The ticket of a call. The slot of a caller that has gone meanwhile is given back from here."""
        found = self._ask(self._enter, "1", probe_ms=probe_ms)
        if found is None:
            return self._view.generation
        if not found.admitted:
            return None
        ticket = found.view.generation
        if not caller.hand(ticket):
            self.record(ticket, pulse="neutral")
        return ticket

    def view(self) -> View:
        """The breaker as it stands, at most a second old; takes no slot."""
        if time.monotonic() - self._view.at >= self._fresh_for and not self._is_quiet():
            on_loop.brief(self._ask, self._enter, "0")
        return self._view

    def _is_fresh(self, view: View) -> bool:
        """Whether a view counts: for its time, and a quarter more while somebody may be waiting for the next one."""
        now, spare = time.monotonic(), self._fresh_for / 4
        return now - view.at < self._fresh_for + (spare if now - self._asked_at < spare else 0.0)

    def _ask(self, script: Script, *arguments: str | int, probe_ms: int | None = None) -> _Found | None:
        """Run a script and keep what it saw; None while Valkey does not answer. Whoever changed the state logs it."""
        if self._is_quiet():  # it became so while this waited for a thread: one pause is enough for all of them
            return None
        threshold, open_ms, usual_probe_ms, kept_ms = self._limits
        limits = (threshold, open_ms, usual_probe_ms if probe_ms is None else probe_ms, kept_ms)
        try:
            word, failures, generation, wait, admitted, was = script(keys=[self._key], args=[*limits, *arguments])
            state, before = _state(word), _state(was)
            view = View(state, int(failures), int(generation), int(wait) / 1000, time.monotonic())
        except (RedisError, OSError) as error:
            self._be_quiet(error)
            return None
        except (TypeError, ValueError) as error:  # no answer of our script: whose then are the next ones?
            self._client.connection_pool.disconnect(inuse_connections=False)
            self._be_quiet(error)
            return None
        with self._lock:
            self._view = view
        if before is not state:
            log.warning("circuit breaker state change", backend=self.name, **{"from": before, "to": state})
        return _Found(view, bool(admitted))

    def _is_quiet(self) -> bool:
        return time.monotonic() < self._quiet_until

    def _be_quiet(self, error: Exception) -> None:
        with self._lock:
            self._quiet_until = time.monotonic() + _QUIET_S
            self._view = View()
        log.debug("breaker not reached", backend=self.name, error=str(error))


def _state(word: bytes | str) -> State:
    return State(word.decode() if isinstance(word, bytes) else word)


class _Process:
    """The breakers of this process; a fork starts with fresh connections."""

    def __init__(self) -> None:
        self.start_afresh()
        os.register_at_fork(after_in_child=self.start_afresh)

    def start_afresh(self) -> None:
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._client: Redis | None = None
        self._breakers: dict[str, Breaker] = {}

    def of(self, name: str, *, key: str = "", open_for: float = OPEN_S, probe_for: float = PROBE_S) -> Breaker:
        found = self._breakers.get(key or name)
        if found is not None:
            return found
        with self._lock:
            found = self._breakers.get(key or name)
            if found is None:
                found = Breaker(self._valkey(), name, key=key, open_for=open_for, probe_for=probe_for)
                self._breakers[key or name] = found
            return found

    def valkey(self) -> Redis:
        """This process's connection."""
        with self._lock:
            return self._valkey()

    def _valkey(self) -> Redis:
        if self._client is None:
            from django.conf import settings  # noqa: PLC0415 - the module is imported before settings are chosen

            self._client = Redis.from_url(
                settings.HOUSE.redis_url.get_secret_value(),
                socket_connect_timeout=_LIMIT_S,
                socket_timeout=_LIMIT_S,
                retry=Retry(NoBackoff(), 0),
            )
        return self._client

    def forget(self) -> None:
        with self._lock:
            self._forget()


_process = _Process()


def of(name: str) -> Breaker:
    """This process's breaker for a backend."""
    return _process.of(name)


def of_simulation(endpoint: str) -> Breaker:
    """This process's breaker for the gas simulations of a node: five useless answers, then 30 s of rest."""
    return _process.of(endpoint, key=f"fred:sim:{endpoint}", open_for=SIMULATION_OPEN_S, probe_for=SIMULATION_PROBE_S)


def is_open(name: str) -> bool:
    """Whether a call to this backend would be refused now. Takes no slot; False while Valkey is away."""
    view = of(name).view()
    return view.state is not State.CLOSED and view.at + view.wait > time.monotonic()


def states(names: Iterable[str]) -> dict[str, State]:
    """How the breakers of these backends stand, read from Valkey in one call; takes no slot.

    A backend without a key there is closed, also one that no call was ever made to. Raises `RedisError` while Valkey is
    away: whoever shows states must not show a guess.
    """
    wanted = list(names)
    pipe = _process.valkey().pipeline(transaction=False)
    for name in wanted:
        pipe.hget(f"fred:cb:{name}", "state")
    return {name: _state(word or b"closed") for name, word in zip(wanted, pipe.execute(), strict=True)}


def half_opens_in(name: str) -> float:
    """Seconds until a refused call may be tried again; 0 when it may be tried now."""
    view = of(name).view()
    return 0.0 if view.state is State.CLOSED else max(0.0, view.at + view.wait - time.monotonic())


def forget() -> None:
    """Drop this process's breakers and their connection; the state in Valkey stays."""
    _process.forget()
