"""`bench dispatch`: provisions per second that the sender gets accepted, beside the same POSTs of a bare loop."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import orjson
import psycopg
from celery import Celery

from backends.contract import LeaseItem, ProvisionSpec
from backends.requests import BackendTarget, provision_request
from fred.bench.report import Report, percentile
from fred.bench.stage import Stage
from fred.bench.usage import Meter, Usage
from fred.dev.environment import BACKEND
from fred.http import Multi
from fred.tasks import DISPATCH

ON_WIRE = 64
"""Calls of the floor at a time: what two processes of ours have."""
WARM_UP = 500
_POLL_S = 0.005
_ITEMS = [{"sku": "bench", "quantity": 1}]
_INSERT_LEASES = """
    INSERT INTO leases_lease (uuid, epoch, attempts, chain_state, chain_height, news_height, tenant, provider_uuid,
                              items, meta_hash, phase, reason, chain_reason, last_error, created_at)
    SELECT u, 0, 0, 1, 1, 1, 'bench', %s, %s::jsonb, ''::bytea, 'provisioning', '', '', '', now()
      FROM unnest(%s::uuid[]) AS u
"""
_INSERT_OPERATIONS = """
    INSERT INTO placements_operation (id, lease_uuid, kind, backend, tenant, provider_uuid, items, callback_url,
                                      lifecycle_url, state, refusal, error, dispatch_count, epoch, attempts, due_at,
                                      valid_until, created_at)
    SELECT o, l, 'provision', %s, 'bench', %s, %s::jsonb, %s || '/callbacks/provision?operation_id=' || o, '',
           'reserved', '', '', 0, 0, 0, now(), now() + interval '10 minutes', now()
      FROM unnest(%s::uuid[], %s::uuid[]) AS n(o, l)
"""
_ACCEPTED = "SELECT count(*) FROM placements_operation WHERE state = 'accepted'"
_OTHERWISE = "SELECT state, count(*) FROM placements_operation GROUP BY state"


@dataclass(frozen=True, slots=True)
class Settings:
    """What is measured; the longest wait is in seconds."""

    count: int
    floor: bool = True
    wait_s: float = 300.0


class NotAcceptedError(RuntimeError):
    """A provision that must be accepted was not."""


def measure(stage: Stage, settings: Settings) -> Report:
    """Make operations due at the agent and time until all are accepted and stored so; then the same POSTs bare."""
    house = stage.house
    house.teller.step("stopping everybody but the workers and the agent")
    house.supervisor.end("beat", "watcher", "web")
    warm_up = min(WARM_UP, settings.count)
    provider = UUID(house.inhabitants.provider_uuid)
    with psycopg.connect(house.environments.database_url, autocommit=True) as database:
        _timed(stage, database, warm_up, provider=provider, done=0, wait_s=settings.wait_s)
        meter = stage.meter()
        before = meter.start()
        elapsed = _timed(stage, database, settings.count, provider=provider, done=warm_up, wait_s=settings.wait_s)
        costs = meter.since(before)
    figures = {"posts_per_second": settings.count / elapsed, "seconds": elapsed}
    said = {"provisions": settings.count}
    if not settings.floor:
        return Report("dispatch", said, figures, processes=costs)
    house.teller.step("the floor")
    stage.end_control_plane()
    floor, floor_costs = _floor(stage, settings, provider=provider, meter=stage.meter())
    return Report("dispatch", said, figures, floor, processes=costs, floor_processes=floor_costs)


def _timed(
    stage: Stage, database: psycopg.Connection[tuple[Any, ...]], count: int, *, provider: UUID, done: int, wait_s: float
) -> float:
    """Insert so many operations, hint them once, wait until all are accepted; return the seconds from the hint."""
    house = stage.house
    house.teller.step(f"{count} provisions")
    leases, operations = [[uuid4() for _ in range(count)] for _ in range(2)]
    items = orjson.dumps(_ITEMS).decode()
    with database.transaction():
        database.execute(_INSERT_LEASES, [provider, items, leases])
        database.execute(_INSERT_OPERATIONS, [BACKEND, provider, items, stage.callback_base, operations, leases])
    database.execute("VACUUM ANALYZE leases_lease, placements_operation")
    with Celery("bench", broker=house.environments.redis_url, set_as_current=False) as app:
        started = time.monotonic()
        app.send_task(DISPATCH, queue="dispatch", expires=10)
        while (accepted := _number(database)) < done + count:
            if time.monotonic() - started > wait_s:
                states = dict(database.execute(_OTHERWISE).fetchall())
                raise NotAcceptedError(f"{accepted - done} of {count} provisions after {wait_s:g} s: {states}")
            time.sleep(_POLL_S)
    return time.monotonic() - started


def _number(database: psycopg.Connection[tuple[Any, ...]]) -> int:
    row = database.execute(_ACCEPTED).fetchone()
    return int(row[0]) if row else 0


def _floor(
    stage: Stage, settings: Settings, *, provider: UUID, meter: Meter
) -> tuple[dict[str, float], dict[str, Usage]]:
    agent = BackendTarget(
        name="bench", url=stage.house.url("agent"), secret=stage.house.vault.callback_secret, timeout=settings.wait_s
    )
    specs = [
        ProvisionSpec(
            lease_uuid=uuid4(),
            tenant="bench",
            provider_uuid=provider,
            items=tuple(LeaseItem(**item) for item in _ITEMS),  # type: ignore[arg-type]
            callback_url=f"{stage.callback_base}/callbacks/provision?operation_id={uuid4()}",
        )
        for _ in range(settings.count)
    ]
    _post(agent, specs[: min(WARM_UP, settings.count)], again=True)
    before = meter.start()
    started = time.monotonic()
    seconds = _post(agent, specs[min(WARM_UP, settings.count) :] or specs, again=False)
    elapsed = time.monotonic() - started
    figures = {"posts_per_second": len(seconds) / elapsed, "seconds": elapsed, "p99_ms": percentile(seconds, 99) * 1000}
    return figures, meter.since(before)


def _post(agent: BackendTarget, specs: Sequence[ProvisionSpec], *, again: bool) -> list[float]:
    """POST each of these, 64 at a time; return how long each took. Raises unless all are accepted."""
    unsent, on_wire, seconds = deque(specs), 0, []
    multi = Multi()
    try:
        while unsent or on_wire:
            while unsent and on_wire < ON_WIRE:
                multi.submit(provision_request(agent, unsent.popleft()))
                on_wire += 1
            for response in multi.poll(1.0):
                on_wire -= 1
                if response.status != 202 and not again:
                    raise NotAcceptedError(f"the agent answered {response.status or response.error}")
                seconds.append(response.elapsed)
    finally:
        multi.close()
    return seconds
