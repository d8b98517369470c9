"""`bench burst`: leases created in one block, and how long until all of them are ACTIVE on chain."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg

from fred.bench import timeline
from fred.bench.blocks import BlockClock, Burst, UnseenBlockError
from fred.bench.callbacks import is_up
from fred.bench.floor_burst import bare_script
from fred.bench.report import Report, percentile
from fred.bench.stage import Stage, grpc_endpoint, websocket_url
from fred.bench.usage import Usage
from fred.dev.board import Board
from leases.chain.client import ChainLease
from leases.chain.cosmos import CosmosClient
from leases.chain.errors import ChainUnavailable
from leases.status import LeaseState

READ_TRIES = 3
_ACTIVE = "SELECT count(*) FROM leases_lease WHERE chain_state = 2"
_UNFINISHED = """
    SELECT (SELECT count(*) FROM leases_lease WHERE chain_state = 2 AND phase <> 'active')
         + (SELECT count(*) FROM placements_operation WHERE settled_at IS NULL)
"""


@dataclass(frozen=True, slots=True)
class Settings:
    """What is measured. `warm_up` leases go before, `idle` single ones are timed; the longest wait is in seconds."""

    leases: int
    blocks: str
    idle: int = 10
    warm_up: int = 200
    floor: bool = True
    wait_s: float = 300.0


def measure(stage: Stage, settings: Settings) -> Report:
    """Warm up, time single leases and the burst, then the same by the bare script."""
    house = stage.house
    stage.set_blocks(settings.blocks)
    with (
        BlockClock(websocket_url(house), UUID(house.inhabitants.provider_uuid)) as clock,
        psycopg.connect(house.environments.database_url, autocommit=True) as database,
        Board(house.environments.database_url) as board,
    ):
        house.wait_for(board.is_watched, "waiting for the watcher", seconds=settings.wait_s)
        chain = _Chain(stage, clock)
        product = _Product(stage, database, settings.wait_s)
        product.bring(settings.warm_up, f"warming up with {settings.warm_up} leases")
        product.rest()
        idle = [_one(chain, product, number, settings.idle) for number in range(1, settings.idle + 1)]
        product.rest()
        meter = stage.meter()
        before = meter.start()
        leases = product.bring(settings.leases, f"{settings.leases} leases in one block")
        costs = meter.since(before)
        ours = chain.of(leases)
        product.rest()
        costs_after = meter.since(before)
        figures = _figures(idle, ours) | {"cpu_seconds": _sum_cpu(costs), "cpu_seconds_settled": _sum_cpu(costs_after)}
        steps = timeline.read(database, leases)
        floor: dict[str, float] = {}
        floor_costs = {}
        if settings.floor:
            house.teller.step("stopping the control plane for the floor")
            stage.end_control_plane()
            with bare_script(stage) as script:
                house.wait_for(lambda: is_up(stage), "starting the bare script", seconds=settings.wait_s)
                house.teller.step("the floor: warming up")
                script.run(settings.warm_up)
                single = [chain.of(script.run(1)) for _ in range(settings.idle)]
                house.teller.step(f"the floor: {settings.leases} leases in one block")
                meter = stage.meter(script=script.process.pid)
                before = meter.start()
                bare = chain.of(script.run(settings.leases))
                floor_costs = meter.since(before)
                floor = _figures(single, bare) | {"cpu_seconds": _sum_cpu(floor_costs)}
    said = {"leases": settings.leases, "blocks": settings.blocks}
    return Report("burst", said, figures, floor, processes=costs_after, floor_processes=floor_costs, steps=steps)


class _Chain:
    """What the chain says of leases, with the times at which its blocks were seen."""

    def __init__(self, stage: Stage, clock: BlockClock) -> None:
        self._provider = UUID(stage.house.inhabitants.provider_uuid)
        self._client = CosmosClient(grpc_endpoint(stage.house), provider_uuid=self._provider, page_limit=1000)
        self._clock = clock

    def of(self, uuids: Sequence[str]) -> Burst:
        """How these leases, all ACTIVE, went. Raises ChainError when the chain does not say."""
        wanted = {UUID(uuid) for uuid in uuids}
        found = [lease for lease in self._active() if lease.uuid in wanted]
        if len(found) != len(wanted):
            raise UnseenBlockError(f"{len(found)} of {len(wanted)} leases are ACTIVE on the chain")
        return self._clock.of(found)

    def _active(self) -> list[ChainLease]:
        for _ in range(READ_TRIES - 1):  # a machine this busy may be late even for a connection
            try:
                return self._read()
            except ChainUnavailable:
                continue
        return self._read()

    def _read(self) -> list[ChainLease]:
        pages = self._client.list_leases(self._provider, LeaseState.ACTIVE)
        return [lease for page in pages for lease in page.leases]


@dataclass(slots=True)
class _Product:
    """The running control plane, watched through its database."""

    stage: Stage
    database: psycopg.Connection[tuple[Any, ...]]
    wait_s: float
    active: int = 0

    def bring(self, count: int, what: str) -> list[str]:
        """Create leases in one block and wait until all are ACTIVE; return their uuids."""
        house = self.stage.house
        house.teller.step(what)
        uuids = house.chain.spread_leases(house.inhabitants.smallest_sku, count=count)
        self.active += count
        house.wait_for(lambda: self._number(_ACTIVE) >= self.active, what, seconds=self.wait_s, where=self._where)
        return uuids

    def rest(self) -> None:
        """Wait until nothing of what was brought is unfinished."""
        self.stage.house.wait_for(lambda: not self._number(_UNFINISHED), "waiting for rest", seconds=self.wait_s)

    def _number(self, statement: str) -> int:
        row = self.database.execute(statement).fetchone()
        assert row is not None  # noqa: S101 - an aggregate always gives one
        return int(row[0])

    def _where(self) -> str:
        return f"{self._number(_ACTIVE)} of {self.active} are ACTIVE"


def _one(chain: _Chain, product: _Product, number: int, of: int) -> Burst:
    burst = chain.of(product.bring(1, f"a single lease, {number} of {of}"))
    product.rest()
    return burst


def _figures(idle: Sequence[Burst], burst: Burst) -> dict[str, float]:
    seconds = max(burst.seconds)
    single = [one.seconds[0] * 1000 for one in idle]
    return {
        "seconds": seconds,
        "leases_per_second": len(burst.seconds) / seconds,
        "blocks": burst.blocks,
        "lease_p50_seconds": percentile(burst.seconds, 50),
        "lease_p99_seconds": percentile(burst.seconds, 99),
        "idle_median_ms": statistics.median(single) if single else 0.0,
        "idle_worst_ms": max(single, default=0.0),
    }


def _sum_cpu(costs: Mapping[str, Usage]) -> float:
    """CPU of everything but this process, which only watches."""
    return sum(usage.cpu for name, usage in costs.items() if name != "bench")
