"""`bench callbacks`: durable callbacks per second through the real web process, beside a bare one without database."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import orjson
import psycopg

from fred import http, signing
from fred.bench import caller
from fred.bench.report import Report, percentile
from fred.bench.stage import Stage
from fred.bench.usage import MEBIBYTE, Meter, Usage
from fred.curl import Request
from fred.dev.environment import BACKEND
from fred.dev.house import WORKERS
from fred.dev.ports import HOST

PATH = "/callbacks/provision"
WARM_UP = 2000
_INSERT_LEASES = """
    INSERT INTO leases_lease (uuid, epoch, attempts, chain_state, chain_height, news_height, tenant, provider_uuid,
                              items, meta_hash, phase, reason, chain_reason, last_error, created_at)
    SELECT u, 0, 0, 1, 1, 1, 'bench', %s, '[]'::jsonb, ''::bytea, 'provisioning', '', '', '', now()
      FROM unnest(%s::uuid[]) AS u
"""
_INSERT_OPERATIONS = """
    INSERT INTO placements_operation (id, lease_uuid, kind, backend, tenant, provider_uuid, items, callback_url,
                                      lifecycle_url, state, refusal, error, dispatch_count, first_dispatched_at,
                                      last_dispatched_at, epoch, attempts)
    SELECT o, l, 'provision', %s, 'bench', %s, '[]'::jsonb, '', '', 'accepted', '', '', 1, now(), now(), 1, 0
      FROM unnest(%s::uuid[], %s::uuid[]) AS n(o, l)
"""
_INSERT_PLACEMENTS = """
    INSERT INTO placements_placement (lease_uuid, backend, status, candidates, revision, set_at)
    SELECT u, %s, 'attempted', '{}', 1, now() FROM unnest(%s::uuid[]) AS u
"""
_STORED = "SELECT count(*) FROM placements_callback WHERE verdict = 'applied'"


@dataclass(frozen=True, slots=True)
class Settings:
    """What is measured; the longest wait is in seconds."""

    count: int
    connections: int
    floor: bool = True
    wait_s: float = 300.0


class NotDurableError(RuntimeError):
    """A callback was answered 200 and is not stored, or was not answered 200."""


def measure(stage: Stage, settings: Settings) -> Report:
    """Insert operations, report each of them once, count what is stored; then the same calls to the bare server."""
    house = stage.house
    house.teller.step("stopping everybody who would act on the callbacks")
    house.supervisor.end("beat", "watcher", "agent", *WORKERS)
    warm_up = min(WARM_UP, settings.count)
    with psycopg.connect(house.environments.database_url, autocommit=True) as database:
        house.teller.step(f"inserting {settings.count + warm_up} operations")
        pairs = [(uuid4(), uuid4()) for _ in range(settings.count + warm_up)]
        _insert(database, pairs, provider=UUID(house.inhabitants.provider_uuid))
        house.teller.step("warming up")
        _call(stage, pairs[:warm_up], settings)
        meter = stage.meter()
        figures, costs = _timed(stage, pairs[warm_up:], settings, meter)
        row = database.execute(_STORED).fetchone()
        stored = int(row[0]) if row else 0
    if stored != len(pairs):
        raise NotDurableError(f"{stored} of {len(pairs)} callbacks that were answered 200 are stored")
    said = {"callbacks": settings.count, "connections": settings.connections}
    if not settings.floor:
        return Report("callbacks", said, figures, processes=costs)
    house.teller.step("the floor")
    house.supervisor.end("web")
    stage.start_bare_receiver({"FRED_BENCH_SECRET": house.vault.callback_secret})
    house.wait_for(lambda: is_up(stage), "starting the bare server", seconds=settings.wait_s)
    _call(stage, pairs[:warm_up], settings)
    floor, floor_costs = _timed(stage, pairs[warm_up:], settings, stage.meter())
    return Report("callbacks", said, figures, floor, processes=costs, floor_processes=floor_costs)


def is_up(stage: Stage) -> bool:
    """Whether the bare server answers (that nothing unsigned is let in)."""
    return http.fetch(Request(stage.house.url("api", "/"), timeout=2.0)).status == 401


def _insert(
    database: psycopg.Connection[tuple[Any, ...]], pairs: Sequence[tuple[UUID, UUID]], *, provider: UUID
) -> None:
    leases, operations = [lease for lease, _ in pairs], [operation for _, operation in pairs]
    with database.transaction():
        database.execute(_INSERT_LEASES, [provider, leases])
        database.execute(_INSERT_OPERATIONS, [BACKEND, provider, operations, leases])
        database.execute(_INSERT_PLACEMENTS, [BACKEND, leases])
    database.execute("VACUUM ANALYZE leases_lease, placements_operation, placements_placement")


def _timed(
    stage: Stage, pairs: Sequence[tuple[UUID, UUID]], settings: Settings, meter: Meter
) -> tuple[dict[str, float], dict[str, Usage]]:
    """Make the calls; return the figures and what each process cost."""
    stage.house.teller.step(f"{len(pairs)} callbacks over {settings.connections} connections")
    web = "web" if "web" in meter.roots else "bare web"
    before = meter.start()
    memory = before[web].memory
    answers = _call(stage, pairs, settings)
    costs = meter.since(before)
    figures = {
        "callbacks_per_second": len(pairs) / answers.elapsed,
        "p50_ms": percentile(answers.seconds, 50) * 1000,
        "p99_ms": percentile(answers.seconds, 99) * 1000,
        "web_cpu_seconds": costs[web].cpu,
        "memory_growth_mib": (costs[web].memory - memory) / MEBIBYTE,
    }
    return figures, costs


def _call(stage: Stage, pairs: Iterable[tuple[UUID, UUID]], settings: Settings) -> caller.Answers:
    house = stage.house
    secret, port = house.vault.callback_secret, house.ports["api"]
    requests = [_request(lease, operation, secret=secret, port=port) for lease, operation in pairs]
    answers = caller.call(HOST, [port], requests, connections=settings.connections, within=settings.wait_s)
    if answers.statuses.keys() != {200}:
        raise NotDurableError(f"callbacks were answered {dict(answers.statuses)}")
    return answers


def _request(lease: UUID, operation: UUID, *, secret: str, port: int) -> bytes:
    target = f"{PATH}?operation_id={operation}"
    body = orjson.dumps({"lease_uuid": str(lease), "status": "success", "backend": BACKEND})
    signature = signing.sign(secret, timestamp=int(time.time()), method="POST", target=target, body=body)
    head = (
        f"POST {target} HTTP/1.1\r\nHost: {HOST}:{port}\r\nContent-Type: application/json\r\n"
        f"{signing.HEADER}: {signature}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
