"""Web and worker are killed at every step of a restart or update, and others take over from the row. LC-133, M1 to M5.

An older backend runs a command again each time it hears of it. So whatever is killed: it hears of each at most once,
the same key is answered alike for ever, and a command is lost only where it was marked as sent and then not sent.
"""

from __future__ import annotations

import json
import threading
import time
from base64 import b64encode
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import uuid4

import pytest

from leases.chain.keys import SigningKey
from tenants_api import tokens
from tests.e2e.stack import GOOD, Stack
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

DIES_WITHIN_S = 60.0
ENDS_WITHIN_S = 120.0
"""A claim of five seconds, or a call's limit of fifteen, then the time for which nothing is heard; busy machines."""
USED: set[tuple[str, int]] = set()
CHOOSING = threading.Lock()
NEW = b'{"image":"r.example/app:2"}'


@dataclass(frozen=True)
class Kill:
    """Who dies where, what the command then comes to, and how often its backend hears of it."""

    point: str
    who: str = "web"
    kind: str = "restart"
    state: str = "succeeded"
    calls: int = 1

    @property
    def answer(self) -> int:
        """What a repeat of the key is answered."""
        return 202 if self.state == "succeeded" else 409


KILLS = {
    "M1 recorded, nothing sent": Kill("command.admitted"),
    "M1 recorded, taken over, and the worker killed before it sends": Kill(
        "command.claimed", who="worker", state="failed", calls=0
    ),
    "M2 marked, not sent": Kill("command.taken", state="failed", calls=0),
    "M2 sent": Kill("dispatch.posted"),
    "M2 an update sent": Kill("dispatch.posted", kind="update"),
    "M3 not yet written": Kill("dispatch.before_record", kind="update"),
    "M3 written": Kill("dispatch.recorded"),
    "M4 the look that settles": Kill("look.finished", who="worker", kind="update"),
}


@pytest.fixture(scope="module")
def house(stack):
    """The stack with a watcher; each test has web processes and workers of its own."""
    watcher = stack.nursery.start("watcher")
    wait_until(lambda: stack.sql("SELECT 1 FROM leases_chaincursor WHERE head_height > 0"))
    yield stack
    stack.nursery.kill(watcher)


@pytest.fixture(scope="module")
def leases(house):
    """ACTIVE leases, one for each test."""
    with running(house, "web"), running(house, "worker"):
        found = house.create(GOOD, len(KILLS))
        house.wait_until_settled(found, "active", timeout=60)
    return dict(zip(KILLS, found, strict=True))


@contextmanager
def running(house: Stack, kind: str, points: str = "-"):
    """A process for the time of a block of code."""
    pid = house.fork_web(points) if kind == "web" else house.nursery.start(kind, points)
    try:
        yield pid
    finally:
        house.nursery.kill(pid)


def order(house: Stack, lease: str, kind: str, key: str):
    """Send the command as its tenant does, with a token of its own; the answer, or what became of the connection."""
    with CHOOSING:
        moment = next(one for one in range(int(time.time()) + 8, 0, -1) if (lease, one) not in USED)
        USED.add((lease, moment))
    signing = SigningKey.from_hex(house.chain.keys["tenant"].private_key_hex)
    token = tokens.mint(signing, tenant=house.tenant, lease_uuid=lease, timestamp=moment)
    body = json.dumps({"payload": b64encode(NEW).decode()}).encode() if kind == "update" else b""
    headers = (("Authorization", f"Bearer {token}"), ("Idempotency-Key", key))
    return house.get("api", f"/v1/leases/{lease}/{kind}", body=body, headers=headers)


def standing(house: Stack, lease: str) -> str:
    return house.one("SELECT state FROM placements_maintenancecommand WHERE lease_uuid = %s", lease)


@pytest.mark.parametrize("name", KILLS)
def test_lc133_a_killed_process_runs_no_command_twice_and_loses_no_answer(house, leases, name):
    kill, lease, key = KILLS[name], leases[name], str(uuid4())
    if kill.who == "web":
        with running(house, "web", kill.point) as web:
            assert order(house, lease, kill.kind, key).error is not None
            wait_until(lambda: house.nursery.died(web), timeout=DIES_WITHIN_S, message="the kill")
    else:
        web_point = "command.admitted" if kill.point == "command.claimed" else "-"
        with running(house, "web", web_point):
            order(house, lease, kill.kind, key)
        with running(house, "hasty", kill.point) as worker, running(house, "web"):
            wait_until(lambda: house.nursery.died(worker), timeout=DIES_WITHIN_S, message="the kill")
    with running(house, "web"), running(house, "hasty"):
        wait_until(
            lambda: standing(house, lease) == kill.state,
            timeout=ENDS_WITHIN_S,
            message=f"{kill.state}\n{house.story(lease)}",
        )
        wait_until(lambda: house.phases([lease]) == {"active"}, timeout=ENDS_WITHIN_S, message=house.story(lease))
        assert order(house, lease, kill.kind, key).status == kill.answer
        assert len(house.orders(f"/{kill.kind}", [lease])) == kill.calls
        if kill.kind == "update":
            in_force = house.one("SELECT body FROM leases_payload WHERE lease_uuid = %s AND state = 'current'", lease)
            assert bytes(in_force) == NEW
        assert order(house, lease, "restart", str(uuid4())).status == 202


def test_one_key_at_two_webs_at_once_is_one_command(house, leases, run_in_threads):
    """Every request gets the one answer, whichever process it came to."""
    lease, key = leases["M3 written"], str(uuid4())
    before = len(house.orders("/restart", [lease]))
    with running(house, "web"), running(house, "web"), running(house, "hasty"):
        answers = run_in_threads(8, lambda: order(house, lease, "restart", key))
    assert [(one.status, one.body) for one in answers] == [(202, b'{"status":"restarting"}\n')] * 8
    assert len(house.orders("/restart", [lease])) == before + 1
