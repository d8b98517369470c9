"""Two hundred leases, two webs, four workers, two watchers, and a kill every two seconds. LC-134."""

from __future__ import annotations

import os
import random
import threading
import time

import pytest

from tests.e2e.stack import FAILING, GOOD, Stack
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

GOOD_LEASES, FAILING_LEASES, CLOSED_LEASES = 180, 20, 60
KILLS_FOR_S = 30.0
KILL_EVERY_S = 2.0
SETTLED_WITHIN_S = 150.0
"""A callback that found no web may come only with its third repetition, 36 s later."""
CREW = {"web": 2, "worker": 4, "watcher": 2}


class Crew:
    """Processes of the nursery; one that is killed is replaced at once."""

    def __init__(self, house: Stack) -> None:
        self.house = house
        self.living = [(kind, house.nursery.start(kind)) for kind, number in CREW.items() for _ in range(number)]
        house.wait_for_port("api", "/health")

    def kill_one(self, choose: random.Random) -> None:
        kind, pid = self.living.pop(choose.randrange(len(self.living)))
        self.house.nursery.kill(pid)
        self.living.append((kind, self.house.nursery.start(kind)))

    def dismiss(self) -> None:
        for _, pid in self.living:
            self.house.nursery.kill(pid)


@pytest.fixture
def crew(stack: Stack):
    crew = Crew(stack)
    wait_until(lambda: stack.sql("SELECT 1 FROM leases_chaincursor WHERE head_height > 0"))
    yield crew
    crew.dismiss()


def test_random_kills_lose_nothing_and_do_nothing_twice(stack, crew):
    choose = random.Random(int(os.environ.get("FRED_TEST_SEED", "7")))
    good, failing, unclosed = [], [], CLOSED_LEASES
    closed: list[str] = []
    pause = threading.Event()
    began = time.monotonic()
    next_kill = began + 1
    while time.monotonic() < began + KILLS_FOR_S or unclosed or len(good) < GOOD_LEASES:
        if len(good) < GOOD_LEASES:
            good += stack.create(GOOD, min(choose.randrange(5, 30), GOOD_LEASES - len(good)))
        if len(failing) < FAILING_LEASES:
            failing += stack.create(FAILING, min(4, FAILING_LEASES - len(failing)))
        ending = [lease for lease in good if lease not in closed and stack.chain.state_of(lease) == 2]
        ending = choose.sample(ending, min(len(ending), unclosed, 6))
        if ending:
            stack.close(ending)
            closed += ending
            unclosed -= len(ending)
        if time.monotonic() > next_kill:
            crew.kill_one(choose)
            next_kill += KILL_EVERY_S
        assert time.monotonic() < began + 4 * KILLS_FOR_S, "leases do not become ACTIVE between the kills"
        pause.wait(0.2)
    open_ = [lease for lease in good if lease not in closed]
    stack.wait_until_settled(open_, "active", timeout=SETTLED_WITHIN_S)
    stack.wait_until_settled(closed, "ended", timeout=SETTLED_WITHIN_S)
    stack.wait_until_settled(failing, "ended", timeout=SETTLED_WITHIN_S)
    stack.assert_nothing_twice([*good, *failing])
    assert all(stack.verbs(lease) == ["acknowledge"] for lease in good)
    assert all(stack.verbs(lease) == ["reject"] for lease in failing)
    removed = {one["lease"] for one in stack.orders("/deprovision") if one["status"] == 200}
    assert removed >= {*closed, *failing}
    assert not removed & set(open_)
