"""Doubt destroys nothing: a chain or a backend that is empty, behind, erring or silent, a broker or database away.

Sweeps and looks go on meanwhile. The house has 20 served leases, leases that wait for their payload, and leases that
their backend is still making. For as long as a source is in doubt, and after it is well again, nothing may be removed
at a backend, refused or closed on chain, deleted from the database or provisioned again.
"""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager

import pytest

from tests.e2e.stack import FAILING, GOOD, SLOW, Stack
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

HOUSE_UP_S = 120.0
SWEEP_S = 120.0
WELL_AGAIN_S = 90.0
BROKER_BACK_S = 20.0
"""Seven seconds, and what a busy machine adds; whoever waited for a timer instead would need thirty."""
REDELIVERED_WITHIN_S = 90.0
META_HASH = bytes(32)
WORKERS = (("worker-1", ("lifecycle", "dispatch")), ("worker-2", ("chain", "sweep")))
COUNTED = {
    "leases_lease": "uuid",
    "placements_placement": "lease_uuid",
    "placements_operation": "lease_uuid",
    "placements_provision": "lease_uuid",
    "placements_teardown": "lease_uuid",
    "leases_chainaction": "lease_uuid",
}


class Served:
    """What must not change, and how to see that it did not."""

    def __init__(self, house: Stack) -> None:
        self.house = house
        self.active = house.create(GOOD, 20)
        self.waiting = house.create(GOOD, 3, meta_hash=META_HASH)
        self.in_progress = house.create(SLOW, 3)
        house.wait_until_settled(self.active, "active", timeout=HOUSE_UP_S)
        wait_until(lambda: house.phases(self.waiting) == {"awaiting_payload"})
        wait_until(lambda: self.accepted() == 3)
        house.sql(
            "INSERT INTO leases_payload (lease_uuid, state, body, sha256, corrupt)"
            " VALUES (%s, 'current', '', '', false)",
            self.active[0],
        )
        sweep(house)
        self.before = self.seen()

    def accepted(self) -> int:
        found = "SELECT count(*) FROM placements_operation WHERE lease_uuid = ANY(%s::uuid[]) AND state = 'accepted'"
        return self.house.one(found, self.in_progress)

    @property
    def all(self) -> list[str]:
        return [*self.active, *self.waiting, *self.in_progress]

    def seen(self) -> dict[str, object]:
        house = self.house
        rows = {
            table: house.one(f"SELECT count(*) FROM {table} WHERE {key} = ANY(%s::uuid[])", self.all)
            for table, key in COUNTED.items()
        }
        return {
            "orders": house.orders(None, self.all),
            "chain": [house.chain.state_of(lease) for lease in self.all],
            "verbs": [house.verbs(lease) for lease in self.all],
            "rows": rows,
            "states": house.sql(
                "SELECT uuid, chain_state FROM leases_lease WHERE uuid = ANY(%s::uuid[]) ORDER BY 1", self.all
            ),
            "payloads": house.sql("SELECT lease_uuid, delete_after FROM leases_payload"),
            "owners": house.sql(
                "SELECT lease_uuid, backend, status FROM placements_placement WHERE lease_uuid = ANY(%s::uuid[])"
                " ORDER BY 1",
                self.all,
            ),
        }


@pytest.fixture(scope="module")
def house(stack: Stack):
    """The house as it is served: web, a watcher, two Celery workers with two queues each, the clock."""
    stack.start_web()
    watcher = stack.nursery.start("watcher")
    stack.start_celery(workers=WORKERS)
    yield stack
    stack.kill("beat", "web", *(name for name, _ in WORKERS))
    stack.nursery.kill(watcher)


@pytest.fixture(scope="module")
def served(house):
    return Served(house)


def sweep(house: Stack) -> str:
    """Make the sweep due now, wait until it ended, and return how."""
    last = house.one("SELECT coalesce(max(id), 0) FROM reconciliation_sweep WHERE state <> 'running'")
    house.sql("UPDATE fred_periodictask SET due_at = now() WHERE name = 'sweep'")
    house.once("sweep")  # or a Celery worker was first
    ended = "SELECT outcome FROM reconciliation_sweep WHERE id > %s AND state = 'done' ORDER BY id LIMIT 1"
    return wait_until(lambda: house.sql(ended, last), timeout=SWEEP_S, message="a sweep's end")[0][0]


def look_at_all(house: Stack, leases: list[str]) -> None:
    """As if there were news of each: wake them, and wait until each was looked at."""
    house.sql(
        "UPDATE leases_lease SET due_at = now(), epoch = epoch + 1, news_height = %s WHERE uuid = ANY(%s::uuid[])",
        house.chain.height - 1,
        leases,
    )
    began = house.one("SELECT now()")
    left = "SELECT count(*) FROM leases_lease WHERE uuid = ANY(%s::uuid[]) AND looked_at < %s"
    wait_until(lambda: house.one(left, leases, began) == 0, message="looks at all leases")


def names_it(house: Stack, name: str) -> bool:
    house.once("probe")
    return any(name in check for check in house.complaints())


def settle_now(house: Stack, leases: list[str], phase: str) -> None:
    """Wait until nothing is left to do. The waits of up to half a minute that silence leaves are cut short."""

    def is_settled() -> bool:
        house.sql(
            """
            UPDATE leases_lease SET due_at = now()
             WHERE uuid = ANY(%s::uuid[]) AND due_at > now() + interval '6 s' AND looked_at < now() - interval '1 s'
            """,
            leases,
        )
        return not house.unsettled(leases) and house.phases(leases) == {phase}

    wait_until(is_settled, timeout=WELL_AGAIN_S, message=f"all leases to be {phase}")


def assert_untouched(served: Served) -> None:
    assert served.seen() == served.before


def assert_well_again(house: Stack, served: Served) -> None:
    """Everybody is healthy and a sweep complete; the leases are where they were."""

    def is_well() -> bool:
        house.once("probe")
        return not house.complaints()

    wait_until(is_well, timeout=WELL_AGAIN_S, message="health")
    settle_now(house, served.active, "active")
    wait_until(lambda: sweep(house) == "success", timeout=WELL_AGAIN_S, message="a complete sweep")
    assert_untouched(served)


@contextmanager
def faults(house: Stack, rules):
    numbers = [house.chain.add_fault(effect, **rule) for effect, rule in rules]
    try:
        yield
    finally:
        for number in numbers:
            house.chain.remove_fault(number)


QUERIES = "/liftedinit.*"
EVERY_QUERY = "/*"


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param([("empty_chain", {})], id="LC-85-empty-chain"),
        pytest.param([("stale_reads", {"blocks": 100})], id="lagging-chain"),
        pytest.param([("grpc_error", {"code": "INTERNAL"}), ("rpc_error", {})], id="erring-chain"),
        pytest.param([("grpc_error", {"code": "NOT_FOUND"})], id="chain-that-finds-nothing"),
        pytest.param([("hang", {}), ("ws_drop", {})], id="silent-chain"),
    ],
)
def test_a_chain_in_doubt_ends_nothing(house, served, rules):
    with faults(house, rules):
        look_at_all(house, served.all)
        sweep(house)
        wait_until(lambda: names_it(house, "chain"), timeout=60, message="/readyz to name the chain")
        look_at_all(house, served.all)
        assert_untouched(served)
    assert_well_again(house, served)


def test_a_failed_provision_is_not_refused_while_the_chain_is_in_doubt(house, served):
    """LC-133-R6: no exact read, no reject; it waits for one."""
    with faults(house, [("empty_chain", {"where": QUERIES})]):
        lease = house.create(FAILING)[0]
        look_at_all(house, served.all)
        sweep(house)
        assert house.verbs(lease) == []
        assert house.orders("/deprovision", [lease]) == []
        assert_untouched(served)
    settle_now(house, [lease], "ended")
    assert house.verbs(lease) == ["reject"]
    assert_well_again(house, served)


@contextmanager
def silent_agents(house: Stack):
    pid = house.children["agents"].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def killed_agents(house: Stack):
    house.kill("agents")
    try:
        yield
    finally:
        house.start_agents()


@pytest.mark.parametrize(
    "absent", [pytest.param(silent_agents, id="silent-backends"), pytest.param(killed_agents, id="refusing-backends")]
)
def test_backends_in_doubt_end_nothing(house, served, absent):
    """A lease created meanwhile is neither refused nor forgotten; it is served when they are back, and made once."""
    with absent(house):
        fresh = house.create(GOOD)
        look_at_all(house, served.all)
        assert sweep(house) == "degraded"
        wait_until(lambda: names_it(house, "backend:good-1"), timeout=60, message="/readyz to name the backends")
        look_at_all(house, served.all)
        assert house.verbs(fresh[0]) == []
        assert_untouched(served)
    house.wait_until_settled(fresh, "active", timeout=WELL_AGAIN_S + 45)
    house.assert_nothing_twice(fresh)
    assert_well_again(house, served)


@contextmanager
def stopped_web(house: Stack, leases_wanted: int):
    """Leases that are made at their backends; their callbacks wait at the door of a web process that stands still."""
    os.kill(house.children["web"].pid, signal.SIGSTOP)
    try:
        leases = house.create(GOOD, leases_wanted)
        found = "SELECT count(*) FROM placements_operation WHERE lease_uuid = ANY(%s::uuid[]) AND state = 'accepted'"
        wait_until(lambda: house.one(found, leases) == len(leases), message="acceptance")
        yield leases
    finally:
        os.kill(house.children["web"].pid, signal.SIGCONT)


def answers(house: Stack, status: int) -> int:
    """How many callbacks web has answered so."""
    log = (house.folder / "web.log").read_bytes()
    return log.count(b"path=/callbacks/provision status=%d" % status)


def test_without_a_broker_callbacks_are_answered_and_nothing_is_lost(house, served):
    """Broker and Valkey killed and back: from its return on everything is done within seven seconds."""
    ending = house.create(GOOD, 5)
    house.wait_until_settled(ending, "active", timeout=HOUSE_UP_S)
    with stopped_web(house, 10) as leases:
        before = answers(house, 200)
        os.kill(house.valkey.pid, signal.SIGKILL)
        wait_until(lambda: house.valkey.poll() is not None)
    try:
        wait_until(lambda: answers(house, 200) >= before + 10, message="answers without a broker")
        assert set(house.complaints()) >= {"broker", "cache"}
        house.close(ending)
        leases += house.create(GOOD, 5)
        heard = "SELECT count(*) FROM leases_chainevent WHERE lease_uuid = ANY(%s::uuid[])"
        wait_until(lambda: house.one(heard, leases + ending) >= 15 + 10 + 5, message="the watcher to go on")
    finally:
        house.valkey.restart()
    took = house.wait_until_settled(leases, "active", timeout=BROKER_BACK_S)
    house.wait_until_settled(ending, "ended", timeout=max(BROKER_BACK_S - took, 0.1))
    house.assert_nothing_twice(leases + ending)
    assert_well_again(house, served)


def test_a_callback_is_not_taken_while_the_database_is_away(house, served):
    """LC-61, LC-62: 503, never 200; the backend repeats it, and nothing is lost."""
    with stopped_web(house, 10) as leases:
        taken, refused = answers(house, 200), answers(house, 503)
        house.postgres.stop()
    try:
        wait_until(lambda: answers(house, 503) >= refused + 10, timeout=60, message="refusals without a database")
        assert answers(house, 200) == taken
        wait_until(lambda: "database" in house.complaints(), message="readiness to name the database")
    finally:
        house.postgres.restart()
    house.wait_until_settled(leases, "active", timeout=REDELIVERED_WITHIN_S)
    house.assert_nothing_twice(leases)
    assert_well_again(house, served)


def test_after_all_that_a_lease_is_served_and_ends(house, served):
    """Nothing of it is left behind: a new lease takes the usual way."""
    fresh = house.create(GOOD)
    house.wait_until_settled(fresh, "active", timeout=60)
    house.close([*fresh, *served.active])
    house.wait_until_settled([*fresh, *served.active], "ended", timeout=60)
    house.assert_nothing_twice([*fresh, *served.active])
