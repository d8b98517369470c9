"""Callbacks on their way to a control plane: kept until they are taken, in order for each lease.

They are sent over kept connections from the agent's own event loop: a thread beside it would spend its time waiting for
the interpreter. A lease has one delivery under way at a time and the next only after a 2xx
for the one before; a lease whose deliveries fail holds up no other. Where the agent has a store, a callback is a row of
it, committed together with the state it reports and deleted by its id after delivery.

A callback's URL holds a capability: it is never logged.
"""

import asyncio
import heapq
import itertools
import random
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from urllib.parse import urlsplit

import orjson
import structlog

from backends.agent_metrics import AgentMetrics
from backends.agent_sender import PlainSender
from backends.contract import Callback, cut_reason
from backends.store import Store
from fred import signing
from fred.http import Multi, Request, Response, Tls

log = structlog.get_logger(__name__)

_QUICK_WAITS = (1.0, 5.0)
_SLOW_WAIT = 30.0
_JITTER = 0.2
_CONCURRENCY = 64


class Schedule(StrEnum):
    """When a failed delivery is tried again."""

    CURRENT = "current"  # after 1 s, 5 s, then every 30 s
    V0_13 = "v0_13"  # after 1 s and 5 s, then at the next start of the agent
    ONCE = "once"  # never; it is gone


@dataclass(slots=True)
class Row:
    """One callback under way. `id` is its row in the store, 0 without one; `created_at` is in unix seconds.

    `mark` is a note for `Outbox.alter`; it is not stored.
    """

    lease_uuid: str
    url: str
    body: bytes
    created_at: float
    id: int = 0
    attempts: int = 0
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Counts:
    """What the outbox has done since its start, and what waits."""

    attempts: int
    delivered: int
    waiting: int


def target_of(url: str) -> str:
    """Path and query of a URL, as they stand in the request line."""
    start = url.find("/", url.find("://") + 3)
    if start > 0 and "#" not in url and "?" not in url[:start]:
        return url[start:]
    parts = urlsplit(url)
    return f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"


def body_of(callback: Callback, *, backend: str) -> bytes:
    """The JSON of a callback. An error is cut to what the chain takes."""
    fields: dict[str, object] = {"lease_uuid": str(callback.lease_uuid), "status": callback.status.value}
    if callback.error:
        fields["error"] = cut_reason(callback.error)
    if backend:
        fields["backend"] = backend
    if callback.retained:
        fields["retained"] = True
    return orjson.dumps(fields)


@dataclass
class Outbox:
    """The callbacks of one agent; everything is called inside its event loop. `start` and `stop` once."""

    name: str
    secret: str = field(repr=False)
    store: Store | None = None
    schedule: Schedule = Schedule.CURRENT
    attempt_timeout: float = 10.0
    max_age: timedelta = timedelta(hours=24)
    tls: Tls = field(default_factory=lambda: Tls(minimum_1_3=False))
    quick_waits: Sequence[float] = _QUICK_WAITS
    slow_wait: float = _SLOW_WAIT
    alter: Callable[[Row, Request], Request] | None = None
    """Changes a delivery that has a mark before it is sent."""
    on_tried: Callable[[Row, Response], None] | None = None
    """Hears of every delivery and what became of it."""

    def __post_init__(self) -> None:
        """Prepare the sender; nothing is sent before `start`."""
        self.metrics = AgentMetrics()
        self._new: deque[Row] = deque()
        self._lanes: dict[str, deque[Row]] = {}
        self._ready: deque[str] = deque()
        self._waiting: list[tuple[float, int, str]] = []
        self._order = itertools.count()
        self._in_flight = 0
        self._attempts = 0
        self._delivered = 0
        self._multi: Multi | None = None
        self._plain: PlainSender | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_awake = False

    def start(self) -> None:
        """Take up what an earlier process left in the store and begin to send."""
        if self.store is not None:
            found = self.store.rows("SELECT id, lease_uuid, url, body, created_at FROM outbox ORDER BY id")
            self._new.extend(Row(lease, url, body, at, id=number) for number, lease, url, body, at in found)
        self._loop = asyncio.get_running_loop()
        self._multi = Multi()
        self._plain = PlainSender(self._answered)
        self._loop.add_reader(self._multi.fileno(), self._pump)
        self._wake()

    def stop(self) -> None:
        """Stop sending. Rows in the store stay for the next start."""
        loop, multi = self._loop, self._multi
        self._loop = self._multi = None
        if self._plain is not None:
            self._plain.close()
        if self._timer is not None:
            self._timer.cancel()
        if loop is not None and multi is not None:
            loop.remove_reader(multi.fileno())
            multi.close()

    @property
    def counts(self) -> Counts:
        """A snapshot."""
        return Counts(self._attempts, self._delivered, len(self._new) + sum(map(len, self._lanes.values())))

    async def report(
        self,
        callback: Callback,
        *,
        url: str,
        state: Callable[[sqlite3.Connection], object] | None = None,
        mark: str = "",
    ) -> None:
        """Keep this callback until it is delivered; see `contract.Reporter`."""
        row = Row(str(callback.lease_uuid), url, body_of(callback, backend=self.name), time.time(), mark=mark)
        if self.store is not None:
            row.id = await self.store.commit(lambda connection: _insert(connection, row, state))
        self._new.append(row)
        self._wake()

    def _wake(self) -> None:
        """Pump once, after whatever else the loop has ready: many reports make one pump."""
        if self._loop is not None and not self._is_awake:
            self._is_awake = True
            self._loop.call_soon(self._pump)

    def _answered(self, response: Response) -> None:
        self._in_flight -= 1
        self._ended(response)
        self._wake()

    def _pump(self) -> None:
        self._is_awake = False
        multi, loop = self._multi, self._loop
        if multi is None or loop is None:
            return
        self._take_new()
        self._start(multi)
        if multi.pending:
            for response in multi.poll(0.0):
                self._in_flight -= 1
                self._ended(response)
            self._start(multi)
        if self._timer is not None:
            self._timer.cancel()
        waits = [multi.timer] if multi.timer is not None else []
        if self._waiting:
            waits.append(max(0.0, self._waiting[0][0] - time.monotonic()))
        self._timer = loop.call_later(min(waits), self._pump) if waits else None

    def _take_new(self) -> None:
        while self._new:
            row = self._new.popleft()
            lane = self._lanes.get(row.lease_uuid)
            if lane is None:
                self._lanes[row.lease_uuid] = deque((row,))
                self._ready.append(row.lease_uuid)
            else:
                lane.append(row)
        while self._waiting and self._waiting[0][0] <= time.monotonic():
            self._ready.append(heapq.heappop(self._waiting)[2])

    def _start(self, multi: Multi) -> None:
        while self._ready and self._in_flight < _CONCURRENCY:
            lease = self._ready.popleft()
            row = self._lanes[lease][0]
            if self._is_too_old(row):
                log.warning("callback.expired", lease_uuid=lease)
                self._next(lease)
                continue
            self._in_flight += 1
            self._attempts += 1
            request = self._request(row)
            if self._plain is not None and request.url.startswith("http://"):
                self._plain.submit(request)
            else:
                multi.submit(request)

    def _is_too_old(self, row: Row) -> bool:
        # The exact result of an operation never gets stale: the control plane waits for just that one.
        return "operation_id=" not in row.url and time.time() - row.created_at > self.max_age.total_seconds()

    def _request(self, row: Row) -> Request:
        target = target_of(row.url)
        signature = signing.sign(self.secret, timestamp=int(time.time()), method="POST", target=target, body=row.body)
        headers = (("Content-Type", "application/json"), (signing.HEADER, signature))
        request = Request(
            row.url, headers, row.body, self.attempt_timeout, tls=self.tls, tag=row.lease_uuid, want_headers=False
        )
        return self.alter(row, request) if row.mark and self.alter is not None else request

    def _ended(self, response: Response) -> None:
        lease = str(response.tag)
        row = self._lanes[lease][0]
        row.attempts += 1
        if self.on_tried is not None:
            self.on_tried(row, response)
        if response.error is None and response.status is not None and 200 <= response.status < 300:
            self._delivered += 1
            self.metrics.callback_attempts["success"] += 1
            self.metrics.delivered(time.time() - row.created_at)
            self._next(lease)
            return
        self.metrics.callback_attempts["failure"] += 1
        fault = response.error.kind.value if response.error is not None else ""
        log.warning("callback.not_taken", lease_uuid=lease, status=response.status, fault=fault, attempt=row.attempts)
        if self.schedule is Schedule.ONCE:
            self._next(lease)
        elif row.attempts <= len(self.quick_waits):
            self._retry(lease, self.quick_waits[row.attempts - 1])
        elif self.schedule is Schedule.CURRENT:
            self._retry(lease, self.slow_wait * random.uniform(1 - _JITTER, 1 + _JITTER))  # noqa: S311

    def _retry(self, lease: str, seconds: float) -> None:
        heapq.heappush(self._waiting, (time.monotonic() + seconds, next(self._order), lease))

    def _next(self, lease: str) -> None:
        lane = self._lanes[lease]
        row = lane.popleft()
        if self.store is not None:
            self.store.write(lambda connection: connection.execute("DELETE FROM outbox WHERE id = ?", (row.id,)))
        if lane:
            self._ready.append(lease)
        else:
            del self._lanes[lease]


def _insert(connection: sqlite3.Connection, row: Row, state: Callable[[sqlite3.Connection], object] | None) -> int:
    if state is not None:
        state(connection)
    values = (row.lease_uuid, row.url, row.body, row.created_at)
    statement = "INSERT INTO outbox (lease_uuid, url, body, created_at) VALUES (?, ?, ?, ?) RETURNING id"
    return int(connection.execute(statement, values).fetchone()[0])
