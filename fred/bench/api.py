"""`bench api`: calls of tenants per second through the real web process, beside a bare one that asks the same."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import psycopg

from fred import http
from fred.bench import bare_api, caller
from fred.bench.report import Report, percentile
from fred.bench.stage import Stage
from fred.bench.usage import Usage
from fred.curl import Request
from fred.dev.chain_admin import Key
from fred.dev.foreground import free_port
from fred.dev.ports import HOST
from leases.chain.keys import SigningKey
from tenants_api import tokens

ROUTES = ("status", "connection")
WARM_UP = 500
AHEAD_S = 5
"""Timestamps of tokens may lie ahead by less than the ten seconds that are allowed."""
BACK_S = 12
"""How old tokens are made: what is left of their thirty seconds is the time for one measurement."""
AT_ONCE = 2000
"""Calls whose tokens are made together: a web process that makes 120 a second is quick enough for them."""
BARE_APP = "fred.bench.bare_api:app"
WAYS = {
    "loop": "fred.asgi:application",
    "threads": "fred.bench.ways:threads",
    "handler": "fred.bench.ways:handler",
}
"""The application of each way."""
_LIMITS = {
    "PROVIDER_RATE_LIMIT_RPS": "1000000",
    "PROVIDER_RATE_LIMIT_BURST": "1000000",
    "PROVIDER_TENANT_RATE_LIMIT_RPS": "1000000",
    "PROVIDER_TENANT_RATE_LIMIT_BURST": "1000000",
}
_ACTIVE = "SELECT count(*) FROM leases_lease WHERE phase = 'active'"
_TENANTS = "SELECT uuid::text, tenant FROM leases_lease WHERE phase = 'active' ORDER BY uuid"


@dataclass(frozen=True, slots=True)
class Settings:
    """What is measured: calls of one route over so many leases, at each of these numbers of connections.

    `way` is how the web process serves them, one of `WAYS`; the product does it on its event loop.
    """

    route: str
    leases: int = 1000
    calls: int = 5000
    connections: tuple[int, ...] = (1, 16, 64)
    web: int = 1
    way: str = "loop"
    floor: bool = True
    wait_s: float = 300.0


class RefusedError(RuntimeError):
    """A call with a good token was not answered 200, or there are not enough tokens."""


def refuse_too_many(calls: int, *, leases: int) -> None:
    """Raise RefusedError for more calls than so many leases have tokens: each is good for one call."""
    moments = BACK_S + AHEAD_S
    if calls > leases * moments:
        raise RefusedError(
            f"--count {calls} needs --leases {-(-calls // moments)} or more: each call has its own token"
        )


def measure(stage: Stage, settings: Settings) -> Report:
    """Bring leases to ACTIVE, call the route for each with a token of its own; then the same of the bare server."""
    house = stage.house
    stage.set_blocks("instant")
    house.chain.spread_leases(house.inhabitants.smallest_sku, count=settings.leases)
    with psycopg.connect(house.environments.database_url, autocommit=True) as database:

        def active() -> int:
            row = database.execute(_ACTIVE).fetchone()
            return int(row[0]) if row else 0

        house.wait_for(
            lambda: active() >= settings.leases,
            f"bringing {settings.leases} leases",
            seconds=settings.wait_s,
            where=lambda: f"{active()} are ACTIVE",
        )
        tenants: dict[str, str] = dict(database.execute(_TENANTS).fetchall())
    mint = _Mint(tenants, house.chain.keys(), settings.route)
    house.supervisor.end("web")
    ports = [house.ports["api"], *(free_port() for _ in range(settings.web - 1))]
    for number, port in enumerate(ports):
        stage.start_web(f"web-{number}", port, _LIMITS, app=WAYS[settings.way])
    _wait_until_up(stage, ports, settings)
    ours, costs = _levels(stage, mint, ports, settings)
    said = {
        "route": settings.route,
        "leases": settings.leases,
        "calls": settings.calls,
        "web processes": settings.web,
        "way": settings.way,
    }
    if not settings.floor:
        return Report("api", said, ours, processes=costs)
    house.teller.step("the floor")
    house.supervisor.end(*(f"web-{number}" for number in range(settings.web)))
    environment = {
        bare_api.DATABASE: house.environments.database_url,
        bare_api.AGENT_PORT: str(house.ports["agent"]),
        bare_api.SECRET: house.vault.callback_secret,
    }
    for number, port in enumerate(ports):
        stage.start_web(f"bare web-{number}", port, environment, app=BARE_APP)
    _wait_until_up(stage, ports, settings)
    floor, floor_costs = _levels(stage, mint, ports, settings)
    return Report("api", said, ours, floor, processes=costs, floor_processes=floor_costs)


class _Mint:
    """Makes requests, each with a token that no other has: of its lease, and of a second of its own."""

    def __init__(self, tenants: Mapping[str, str], keys: Mapping[str, Key], route: str) -> None:
        self._tenants = list(tenants.items())
        self._keys = {key.address: SigningKey.from_hex(key.private_key) for key in keys.values()}
        self._route = route
        self._begun = 0

    def requests(self, count: int) -> list[bytes]:
        """So many requests; raises RefusedError for more than the leases and the seconds of a token's life allow."""
        now = int(time.time())
        pairs = self._pairs(now, count)
        return [self._request(lease, tenant, moment) for lease, tenant, moment in pairs]

    def _pairs(self, now: int, count: int) -> Iterator[tuple[str, str, int]]:
        # A level begins where the last one ended, so that two that follow each other at once share no token.
        first = max(now - BACK_S, self._begun)
        moments = range(first, now + AHEAD_S)
        if count > len(self._tenants) * len(moments):
            raise RefusedError(f"{count} calls need more leases than {len(self._tenants)}: each has its own token")
        for number in range(count):
            lease, tenant = self._tenants[number % len(self._tenants)]
            moment = first + number // len(self._tenants)
            self._begun = moment + 1
            yield lease, tenant, moment

    def _request(self, lease: str, tenant: str, moment: int) -> bytes:
        token = tokens.mint(self._keys[tenant], tenant=tenant, lease_uuid=lease, timestamp=moment)
        return (
            f"GET /v1/leases/{lease}/{self._route} HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer {token}\r\n\r\n"
        ).encode()


def _levels(
    stage: Stage, mint: _Mint, ports: Sequence[int], settings: Settings
) -> tuple[dict[str, float], dict[str, Usage]]:
    """Call at each number of connections; the figures are named after it, the costs are those of all together."""
    _call(mint, ports, min(WARM_UP, settings.calls), connections=settings.connections[-1], within=settings.wait_s)
    meter = stage.meter()
    before = meter.start()
    figures: dict[str, float] = {}
    for connections in settings.connections:
        stage.house.teller.step(f"{settings.calls} calls over {connections} connections")
        answers = _call(mint, ports, settings.calls, connections=connections, within=settings.wait_s)
        figures |= {
            f"calls_per_second_{connections}": settings.calls / answers.elapsed,
            f"p50_ms_{connections}": percentile(answers.seconds, 50) * 1000,
            f"p99_ms_{connections}": percentile(answers.seconds, 99) * 1000,
        }
    return figures, meter.since(before)


def _call(mint: _Mint, ports: Sequence[int], count: int, *, connections: int, within: float) -> caller.Answers:
    """So many calls, by as many as can be made while tokens that were made together are good."""
    found = caller.Answers()
    while count > 0:
        several = min(count, AT_ONCE)
        answers = caller.call(HOST, ports, mint.requests(several), connections=connections, within=within)
        if answers.statuses.keys() != {200}:
            raise RefusedError(f"calls were answered {dict(answers.statuses)}")
        found.seconds += answers.seconds
        found.elapsed += answers.elapsed
        count -= several
    return found


def _wait_until_up(stage: Stage, ports: Sequence[int], settings: Settings) -> None:
    for port in ports:
        stage.house.wait_for(partial(_is_up, port), "starting the web processes", seconds=settings.wait_s)


def _is_up(port: int) -> bool:
    """Whether somebody answers there that lets nobody in without a token."""
    url = f"http://{HOST}:{port}/v1/leases/00000000-0000-4000-8000-000000000000/status"
    return http.fetch(Request(url, timeout=2.0)).status == 401
