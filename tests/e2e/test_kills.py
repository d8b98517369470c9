"""Every process is killed at every step of a lease's way, and another one takes over from its rows. LC-133.

Ids are the steps of the flows: P provision, R refusal and failure, C close and teardown. The word after the number
says where: what is killed has just done that step, or is in it. After the kill the lease must reach exactly the ending
that a lease of the same fate reaches without one: state, rows, events, what is on chain and what the agents accepted.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass

import psutil
import pytest

from tests.e2e.stack import ACTIVE, FAILING, GOOD, REFUSING, REJECTED, Stack
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

DIES_WITHIN_S = 60.0
ENDS_WITHIN_S = 40.0
"""A claim of five seconds, a look, a call, a block and a callback; the rest is for busy machines."""
REDELIVERED_WITHIN_S = 90.0
"""Backends repeat a callback after 1 s, 5 s, then every 30 s."""
CALL_LIMIT_S = 15.0  # the longest that a call to the agents may be under way, with its margin
WAY_OUT = {GOOD: "active", FAILING: "ended", REFUSING: "ended"}


class House(Stack):
    """The stack with a web and a watcher of the nursery, and no worker but those of the tests."""

    web: int
    watcher: int


@pytest.fixture(scope="module")
def house(stack):
    stack.__class__ = House
    stack.web, stack.watcher = stack.fork_web(), stack.nursery.start("watcher")
    wait_until(lambda: stack.sql("SELECT 1 FROM leases_chaincursor WHERE head_height > 0"))
    yield stack
    stack.nursery.kill(stack.watcher)
    stack.nursery.kill(stack.web)


@contextmanager
def worker(house: House, points: str = "-"):
    """A worker for the time of a block of code."""
    pid = house.nursery.start("worker", points)
    try:
        yield pid
    finally:
        house.nursery.kill(pid)


@pytest.fixture(scope="module")
def endings(house: House):
    """How leases end that nobody disturbs, by SKU and whether they were closed."""
    found = {}
    with worker(house):
        made = {sku: house.create(sku) for sku in WAY_OUT}
        for sku, leases in made.items():
            house.wait_until_settled(leases, WAY_OUT[sku], timeout=60)
            found[sku, False] = house.ending(leases[0])
        house.close(made[GOOD])
        house.wait_until_settled(made[GOOD], "ended", timeout=60)
        found[GOOD, True] = house.ending(made[GOOD][0])
    assert found[GOOD, False]["chain"] == ACTIVE
    assert found[FAILING, False]["chain"] == found[REFUSING, False]["chain"] == REJECTED
    return found


@pytest.fixture(scope="module")
def served(house: House, endings):
    """ACTIVE leases, one for each test that closes one."""
    with worker(house):
        leases = house.create(GOOD, len(CLOSINGS) + 6)
        house.wait_until_settled(leases, "active", timeout=60)
    return leases


def take_over(house: House, lease: str, phase: str) -> None:
    """Let a worker that nobody kills bring it to its end."""
    with worker(house):
        house.wait_until_settled([lease], phase, timeout=ENDS_WITHIN_S)


def check(house: House, lease: str, expected: dict[str, object]) -> None:
    assert house.ending(lease) == expected, house.story(lease)
    house.assert_nothing_twice([lease])


@contextmanager
def web_stopped(house: House):
    """Nobody answers callbacks; those that come wait in the socket."""
    os.kill(house.web, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(house.web, signal.SIGCONT)


def accepted(house: House, lease: str) -> bool:
    """Whether the backend's acceptance is recorded, and nobody has anything in hand."""
    return bool(
        house.sql(
            """
            SELECT 1 FROM placements_operation AS o JOIN leases_lease AS l ON l.uuid = o.lease_uuid
             WHERE o.lease_uuid = %s AND o.state = 'accepted' AND o.due_at IS NULL AND l.attempts = 0
            """,
            lease,
        )
    )


@dataclass(frozen=True)
class Kill:
    """A worker dies at `point`, on the way of a lease of this SKU."""

    id: str
    point: str
    sku: str = GOOD


PROVISIONINGS = [
    Kill("P2-claimed", "look.claimed"),
    Kill("P2-gathered", "look.gathered"),
    Kill("P3-reserved", "look.finished"),
    Kill("P4-claimed-for-the-push", "dispatch.claimed"),
    Kill("P5-answered", "dispatch.posted"),
    Kill("P6-unrecorded", "dispatch.before_record"),
    Kill("P6-accepted", "dispatch.recorded"),
    Kill("P6-refused", "dispatch.recorded", REFUSING),
    Kill("P9-unsigned", "lane.before_sign"),
    Kill("P10-stored", "lane.stored"),
    Kill("P10-broadcast", "lane.broadcast"),
    Kill("P11-included", "lane.included_seen"),
    Kill("P11-recorded", "lane.recorded"),
    Kill("R2-unsigned", "lane.before_sign", FAILING),
    Kill("R2-stored", "lane.stored", FAILING),
    Kill("R2-broadcast", "lane.broadcast", FAILING),
    Kill("R2-included", "lane.included_seen", FAILING),
    Kill("R3-recorded", "lane.recorded", FAILING),
    Kill("R3-teardown-claimed", "teardown.claimed", FAILING),
    Kill("R3-teardown-answered", "teardown.sent", FAILING),
]


@pytest.mark.parametrize("kill", PROVISIONINGS, ids=lambda kill: f"LC-133-{kill.id}")
def test_a_worker_is_killed_on_the_way(house, endings, kill):
    with worker(house, kill.point) as armed:
        lease = house.create(kill.sku)[0]
        wait_until(lambda: house.nursery.died(armed), timeout=DIES_WITHIN_S, message=kill.point)
    take_over(house, lease, WAY_OUT[kill.sku])
    check(house, lease, endings[kill.sku, False])


RESULTS = [
    Kill("P7-look-claimed", "look.claimed"),
    Kill("P8-unsettled", "look.gathered"),
    Kill("P8-acknowledge-queued", "look.finished"),
    Kill("R1-unsettled", "look.gathered", FAILING),
    Kill("R1-reject-queued", "look.finished", FAILING),
    Kill("R3-ended", "look.finished:2", FAILING),
    Kill("R3-teardown-wanted", "look.finished:3", FAILING),
]


@pytest.mark.parametrize("kill", RESULTS, ids=lambda kill: f"LC-133-{kill.id}")
def test_a_worker_is_killed_when_the_result_is_there(house, endings, kill):
    with web_stopped(house):
        with worker(house):
            lease = house.create(kill.sku)[0]
            wait_until(lambda: accepted(house, lease), timeout=DIES_WITHIN_S)
        armed = house.nursery.start("worker", kill.point)
    wait_until(lambda: house.nursery.died(armed), timeout=DIES_WITHIN_S, message=kill.point)
    take_over(house, lease, WAY_OUT[kill.sku])
    check(house, lease, endings[kill.sku, False])


CLOSINGS = [
    Kill("C2-claimed", "look.claimed"),
    Kill("C2-gathered", "look.gathered"),
    Kill("C2-teardown-wanted", "look.finished"),
    Kill("C4-claimed-for-the-push", "teardown.claimed"),
    Kill("C4-answered", "teardown.sent"),
    Kill("C5-unrecorded", "dispatch.before_record"),
    Kill("C5-recorded", "dispatch.recorded"),
]


@pytest.mark.parametrize("kill", CLOSINGS, ids=lambda kill: f"LC-133-{kill.id}")
def test_a_worker_is_killed_while_a_lease_ends(house, endings, served, kill):
    lease = served.pop()
    with worker(house, kill.point) as armed:
        house.close([lease])
        wait_until(lambda: house.nursery.died(armed), timeout=DIES_WITHIN_S, message=kill.point)
    take_over(house, lease, "ended")
    check(house, lease, endings[GOOD, True])


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("watcher.before_store", id="LC-133-P1-uncommitted"),
        pytest.param("news.committed", id="LC-133-P1-committed"),
        pytest.param("watcher.stored", id="LC-133-P1-before-the-cursor"),
    ],
)
@pytest.mark.parametrize("closes", [False, True], ids=["created", "closed-C1"])
def test_a_watcher_is_killed_while_it_stores(house, endings, served, point, closes):
    # What an earlier lease left unread would be this watcher's death before it is to die.
    height = house.chain.height
    read = "SELECT last_height FROM leases_chaincursor"
    wait_until(lambda: house.one(read) >= height, message="the watcher to have read every block")
    house.nursery.kill(house.watcher)
    house.watcher = house.nursery.start("watcher", point)
    head = house.one("SELECT head_height FROM leases_chaincursor")
    wait_until(lambda: house.one("SELECT head_height FROM leases_chaincursor") > head)
    lease = served.pop() if closes else None
    if lease is None:
        lease = house.create(GOOD)[0]
    else:
        house.close([lease])
    wait_until(lambda: house.nursery.died(house.watcher), timeout=DIES_WITHIN_S, message=point)
    house.watcher = house.nursery.start("watcher")
    take_over(house, lease, "ended" if closes else "active")
    check(house, lease, endings[GOOD, closes])


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("callback.before_commit", id="LC-133-P7-uncommitted"),
        pytest.param("callback.committed", id="LC-133-P7-committed"),
    ],
)
@pytest.mark.parametrize("closes", [False, True], ids=["result", "deprovisioned-C6"])
def test_web_is_killed_while_it_stores_a_callback(house, endings, served, point, closes):
    """P29"""
    house.nursery.kill(house.web)
    house.web = house.fork_web(point)
    with worker(house):
        try:
            lease = served.pop() if closes else house.create(GOOD)[0]
            if closes:
                house.close([lease])
            wait_until(lambda: house.nursery.died(house.web), timeout=DIES_WITHIN_S, message=point)
        finally:
            house.nursery.kill(house.web)
            house.web = house.fork_web()
        house.wait_until_settled([lease], "ended" if closes else "active", timeout=REDELIVERED_WITHIN_S)
    expected = endings[GOOD, closes]
    again = [("ready", "")] if point == "callback.committed" and not closes else []
    # The agent had no answer and says it once more. Once the lease is settled that is a report of its own (LC-49).
    if again and house.ending(lease)["events"] != expected["events"]:
        expected = {**expected, "events": sorted([*expected["events"], *again])}
    check(house, lease, expected)


def on_the_wire(house: House, order: str, lease: str) -> None:
    wait_until(lambda: house.orders(order, [lease]), timeout=DIES_WITHIN_S, message=f"{order} to arrive")


def test_a_worker_is_killed_while_the_provision_is_on_the_wire(house, endings):
    """LC-133-P5: the agent has it, nobody here hears the answer."""
    house.hold("/provision", held=True)
    try:
        with worker(house):
            lease = house.create(GOOD)[0]
            on_the_wire(house, "/provision", lease)
    finally:
        house.hold("/provision", held=False)
    take_over(house, lease, "active")
    check(house, lease, endings[GOOD, False])


def test_a_worker_is_killed_while_the_teardown_is_on_the_wire(house, endings, served):
    """LC-133-C4."""
    lease = served.pop()
    house.hold("/deprovision", held=True)
    try:
        with worker(house):
            house.close([lease])
            on_the_wire(house, "/deprovision", lease)
    finally:
        house.hold("/deprovision", held=False)
    take_over(house, lease, "ended")
    check(house, lease, endings[GOOD, True])


def test_a_lease_closes_while_its_provision_is_on_the_wire_of_a_killed_worker(house):
    """LC-133-C3: the order may still arrive, so the teardown waits for the latest end of its call."""
    agents = house.children["agents"].pid
    os.kill(agents, signal.SIGSTOP)
    try:
        with worker(house):
            lease = house.create(GOOD)[0]
            posted = "SELECT 1 FROM placements_operation WHERE lease_uuid = %s AND state = 'in_doubt'"
            wait_until(lambda: house.sql(posted, lease), timeout=DIES_WITHIN_S)
        house.chain.cancel_leases([lease])
        with worker(house):
            told = "SELECT 1 FROM leases_lease WHERE uuid = %s AND reason = 'provision_on_wire'"
            wait_until(lambda: house.sql(told, lease), timeout=ENDS_WITHIN_S, message="the teardown to wait")
            os.kill(agents, signal.SIGCONT)
            house.wait_until_settled([lease], "ended", timeout=ENDS_WITHIN_S + CALL_LIMIT_S)
    finally:
        os.kill(agents, signal.SIGCONT)
    assert house.verbs(lease) == []
    last = [one for one in house.orders(None, [lease]) if one["status"] in (200, 202)][-1:]
    assert [one["path"] for one in last] in ([], ["/deprovision"]), house.story(lease)
    house.assert_nothing_twice([lease])


def test_no_web_answers_the_callback(house, endings):
    """LC-133-P7: the backend's redelivery, or a read of the backend, brings the result."""
    with worker(house):
        house.nursery.kill(house.web)
        try:
            lease = house.create(GOOD)[0]
            wait_until(lambda: accepted(house, lease), timeout=DIES_WITHIN_S)
        finally:
            house.web = house.fork_web()
        house.wait_until_settled([lease], "active", timeout=REDELIVERED_WITHIN_S)
    check(house, lease, endings[GOOD, False])


@pytest.mark.parametrize(
    ("meanwhile", "phase", "verbs"),
    [
        pytest.param(
            lambda house, lease: house.chain.ack_leases([lease]), "degraded", [], id="LC-133-R4-acknowledged-by-another"
        ),
        pytest.param(
            lambda house, lease: house.chain.cancel_leases([lease]), "ended", [], id="LC-133-R5-cancelled-meanwhile"
        ),
    ],
)
def test_the_lease_moves_on_while_the_rejecting_lane_is_dead(
    house, meanwhile: Callable[[Stack, str], None], phase, verbs
):
    with worker(house, "lane.before_sign") as armed:
        lease = house.create(FAILING)[0]
        wait_until(lambda: house.nursery.died(armed), timeout=DIES_WITHIN_S)
    meanwhile(house, lease)
    with worker(house):
        house.wait_until_settled([lease], phase, timeout=ENDS_WITHIN_S)
    assert house.verbs(lease) == verbs
    ending = house.ending(lease)
    assert [state for _, state, _ in ending["actions"]] == ["moot"], house.story(lease)
    assert len(ending["teardowns"]) == (phase == "ended"), house.story(lease)
    assert [status for status, _ in ending["events"]].count("failed") == 1, house.story(lease)
    house.assert_nothing_twice([lease])


def test_the_two_kinds_of_results_come_before_the_answer_to_the_order(house, endings):
    """A callback that overtakes the 202 settles; the late answer changes nothing."""
    house.hold("/provision", held=True)
    try:
        with worker(house):
            leases = [house.create(sku)[0] for sku in (GOOD, FAILING)]
            house.wait_until_settled(leases[:1], "active", timeout=ENDS_WITHIN_S)
            house.hold("/provision", held=False)
            house.wait_until_settled(leases[1:], "ended", timeout=ENDS_WITHIN_S)
    finally:
        house.hold("/provision", held=False)
    check(house, leases[0], endings[GOOD, False])
    check(house, leases[1], endings[FAILING, False])


QUEUES = ("lifecycle", "dispatch", "chain", "sweep")


@pytest.mark.parametrize(
    "kill",
    [Kill("P3-reserved", "look.finished"), Kill("R2-stored", "lane.stored", FAILING)],
    ids=lambda kill: f"LC-133-celery-{kill.id}",
)
def test_a_celery_worker_is_killed_on_the_way(house, endings, kill):
    """The same with workers and clock as they are served: hints, the two second task and prefork children."""
    house.start_celery(workers=[("armed", QUEUES)], points=kill.point)
    try:
        children = child_pids(house)
        lease = house.create(kill.sku)[0]
        wait_until(lambda: child_pids(house) != children, timeout=DIES_WITHIN_S, message=kill.point)
        house.kill("armed")
        house.start_celery(workers=[("second", QUEUES)])
        house.wait_until_settled([lease], WAY_OUT[kill.sku], timeout=ENDS_WITHIN_S)
    finally:
        house.kill("armed", "second", "beat")
    check(house, lease, endings[kill.sku, False])


def child_pids(house: House) -> set[int]:
    """The children of the armed worker's parent."""
    return {child.pid for child in psutil.Process(house.children["armed"].pid).children()}
