"""A thousand leases at three backends that fail in every way, and the whole control plane crashing twice. P40."""

from __future__ import annotations

import json
import threading
from collections import Counter, defaultdict
from contextlib import ExitStack
from typing import Any

import pytest

from backends.mock import faults, serve
from backends.mock.faults import RuleBook
from fred.conf import AgentConfig
from tests.backends.servers import served
from tests.e2e.stack import ACTIVE, GOOD, PENDING, REJECTED, Stack
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

LEASES, PER_BLOCK = 1000, 200
BACKENDS = ("b1", "b2", "b3")
SHARE = 0.1
"""So many requests, results and callbacks go wrong; the kinds of fault share them evenly."""
CRASHES_AT = (250, 650)
"""How many leases are ACTIVE when everything is killed."""
SETTLED_WITHIN_S = 180.0
LISTED_WITHIN_S = 60.0
MAY_MISS = 2
"""Of the 28 kinds that leases meet on their way, each about nine times, so many may by chance come over nobody."""
CREW = ("web", "watcher", "hasty", "hasty")

PROVISION: tuple[dict[str, Any], ...] = (
    {"action": "latency", "p50_ms": 50, "p99_ms": 900},
    {"action": "hang"},
    {"action": "hang", "effect": True},
    {"action": "hang", "at": "body", "effect": True},
    {"action": "status", "status": 500},
    {"action": "status", "status": 500, "effect": True},
    {"action": "status", "status": 503, "shape": "empty"},
    {"action": "status", "status": 503, "effect": True},
    {"action": "status", "status": 400, "shape": "html"},
    {"action": "status", "status": 400},
    {"action": "status", "status": 400, "effect": True},
    {"action": "status", "status": 302, "shape": "redirect"},
    {"action": "lose", "effect": False},
    {"action": "lose"},
)
RESULTS: tuple[dict[str, Any], ...] = (
    {"action": "result", "kind": "fail"},
    {"action": "result", "kind": "twice"},
    {"action": "result", "kind": "late", "seconds": 1.0},
)
CALLBACKS: tuple[dict[str, Any], ...] = tuple(
    {"action": "callback", "kind": kind}
    for kind in ("drop", "duplicate", "delay", "reorder", "wrong_key", "unsigned", "tampered", "old", "future",
                 "wrong_query", "retained")
)  # fmt: skip
LISTS: tuple[dict[str, Any], ...] = tuple(
    {"action": "inventory", "kind": kind}
    for kind in (
        "omit",
        "duplicate",
        "foreign",
        "not_canonical",
        "null",
        "stuck_token",
        "endless",
        "oversize",
        "not_found",
    )
)
READS: tuple[dict[str, Any], ...] = ({"action": "status", "status": 500}, {"action": "lose"})
REMOVALS: tuple[dict[str, Any], ...] = ({"action": "status", "status": 500, "effect": True}, {"action": "lose"})
ROUTES = (
    ("provision", PROVISION),
    ("provision", RESULTS),
    ("success", CALLBACKS),
    ("provisions", LISTS),
    ("retentions", LISTS),
    ("provision_info", READS),
    ("deprovision", REMOVALS),
)


def rules() -> list[dict[str, Any]]:
    """All kinds of fault, together so often as wanted on each route."""
    return [
        {**kind, "match": {"route": route, "probability": SHARE / len(kinds)}}
        for route, kinds in ROUTES
        for kind in kinds
    ]


class Storm(Stack):
    """The house with three backends in this process that all serve the same leases."""

    def __init__(self) -> None:
        super().__init__()
        self.agents, self.books, self.doors = {}, {}, ExitStack()
        self.made: dict[str, set[str]] = defaultdict(set)
        self.doubled: list[tuple[str, set[str]]] = []
        self._guard = threading.Lock()
        self.crew: list[int] = []

    def backends(self) -> list[dict[str, Any]]:
        return [
            {"name": name, "url": self._serve(seed, name), "contract": "v0_13", "skus": [self.skus[GOOD]],
             "timeout": "5s"} for seed, name in enumerate(BACKENDS)
        ]  # fmt: skip

    def start_agents(self) -> None:
        """They run since the configuration was written."""

    def _serve(self, seed: int, name: str) -> str:
        agent, book = serve.agent(AgentConfig(name=name, callback_secret=self.secret)), RuleBook(seed)
        self.agents[name], self.books[name] = agent, book
        self._note_workloads(name, agent.backend)
        return self.doors.enter_context(served(serve.behind_door(agent, agent.backend, book)))

    def _note_workloads(self, name: str, backend: Any) -> None:
        provision, deprovision = backend.provision, backend.deprovision

        async def noted_provision(spec: Any) -> Any:
            found = await provision(spec)
            with self._guard:
                there = self.made[str(spec.lease_uuid)]
                there.add(name)
                if len(there) > 1:
                    self.doubled.append((str(spec.lease_uuid), set(there)))
            return found

        async def noted_deprovision(lease: Any, *rest: Any, **more: Any) -> Any:
            found = await deprovision(lease, *rest, **more)
            with self._guard:
                self.made[str(lease)].discard(name)
            return found

        backend.provision, backend.deprovision = noted_provision, noted_deprovision

    def rage(self) -> None:
        for book in self.books.values():
            book.add(faults.parse(json.dumps(rules())))

    def calm(self) -> Counter[tuple[str, str]]:
        """End the storm; tell how often each kind of fault came over someone, by route."""
        applied: Counter[tuple[str, str]] = Counter()
        for book in self.books.values():
            for rule, times in book.rules:
                applied[rule.match.route, repr(rule)] += times
            book.clear()
        return applied

    def enter(self) -> None:
        self.crew = [self.nursery.start(kind) for kind in CREW]
        self.wait_for_port("api", "/health")

    def crash(self) -> None:
        """All at one moment. The time passes after which the sweep of a dead process is taken over."""
        for pid in self.crew:
            self.nursery.kill(pid)
        self.sql("UPDATE reconciliation_sweep SET started_at = now() - interval '1 day' WHERE state = 'running'")

    def states(self, leases: list[str]) -> Counter[int]:
        return Counter(self.chain.state_of(lease) for lease in leases)

    def wait(self, condition: Any, leases: list[str]) -> None:
        """Wait for this; say where the leases stand if it does not come."""
        try:
            wait_until(condition, timeout=SETTLED_WITHIN_S)
        except AssertionError:
            left = self.unsettled(leases)
            told = Counter((phase, reason, state) for _, phase, reason, state, _ in left)
            first = [self.story(str(row[0])) for row in left[:3]]
            raise AssertionError("\n".join([f"{self.states(leases)} {told}", *first])) from None

    def held(self) -> dict[str, list[tuple[str, str]]]:
        """Where each lease has a workload, and in which status."""
        found: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for name, agent in self.agents.items():
            for lease, one in dict(agent.backend.shelf.held).items():
                found[str(lease)].append((name, str(one.status)))
        return dict(found)

    def signed(self) -> Counter[tuple[str, str]]:
        """How often each message about each lease took effect."""
        return Counter(
            (url.rsplit(".", 1)[-1], lease)
            for result in self.chain.txs()
            if not result.code and not result.tx.trusted
            for url, message in result.tx.messages
            for lease in getattr(message, "lease_uuids", ())
        )

    def stop(self) -> None:
        super().stop()
        self.doors.close()


@pytest.fixture
def storm():
    house = Storm()
    try:
        house.start()
        house.enter()
        wait_until(lambda: house.sql("SELECT 1 FROM leases_chaincursor WHERE head_height > 0"))
        yield house
    finally:
        house.stop()


def test_p40_every_lease_is_served_once_or_refused(storm):
    storm.rage()
    leases = [one for _ in range(LEASES // PER_BLOCK) for one in storm.create(GOOD, PER_BLOCK)]
    for number in CRASHES_AT:
        storm.wait(lambda number=number: storm.states(leases)[ACTIVE] >= number, leases)
        assert storm.states(leases)[PENDING], "nothing was under way any more"
        storm.crash()
        storm.enter()
    storm.wait(lambda: not storm.states(leases)[PENDING], leases)
    applied = storm.calm()
    storm.wait(lambda: storm.phases(leases) <= {"active", "ended"} and not storm.unsettled(leases), leases)

    served_ = {lease for lease in leases if storm.chain.state_of(lease) == ACTIVE}
    refused = {lease for lease in leases if storm.chain.state_of(lease) == REJECTED}
    assert len(served_) + len(refused) == LEASES
    assert 0 < len(refused) < LEASES // 10
    wait_until(lambda: storm.held().keys() == served_, timeout=LISTED_WITHIN_S)
    assert {len(places) for places in storm.held().values()} == {1}
    assert {status for places in storm.held().values() for _, status in places} == {"ready"}
    assert storm.doubled == []
    assert {lease for verb, lease in storm.signed() if verb == "MsgAcknowledgeLease"} == served_
    assert {lease for verb, lease in storm.signed() if verb == "MsgRejectLease"} == refused
    assert set(storm.signed().values()) == {1}
    missed = [rule for (route, rule), times in applied.items() if route in {"provision", "success"} and not times]
    assert len(missed) <= MAY_MISS, f"faults that never came: {missed}"
