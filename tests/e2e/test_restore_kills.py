"""Web is killed at every step of a restore, and others take over from the rows. LC-118, TA-106, X1 to X3.

Whatever is killed: the backend begins the restore once, the new lease becomes active there and is provisioned nowhere
else, and the tenant's own repeat of the request blocks for no longer than the claim of the dead, and is then answered
as the first would have been.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from uuid import uuid4

import pytest

from fred import http
from fred.curl import Request
from leases.chain.keys import SigningKey
from tenants_api import tokens
from tests.e2e.stack import GOOD, Stack
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

DIES_WITHIN_S = 60.0
ENDS_WITHIN_S = 120.0
KEEPING = (
    {"name": "keeping", "sku": GOOD, "keep_s": 3600, "delay_s": 1},
    {"name": "other", "sku": GOOD, "keep_s": 3600},
)
HASH = bytes(range(32))
KILLS = {
    "the key is claimed, nothing else written": "idempotency.claimed",
    "X1 the attempt is written, nothing sent": "restore.admitted",
    "X2 sent, the answer not read": "dispatch.posted",
    "X2 answered, not written": "dispatch.before_record",
    "X3 written, not told": "dispatch.recorded",
}
TWENTY = "twenty at once"


@pytest.fixture(scope="module")
def stack():
    """A house with two backends of one SKU that keep the data of what is closed, a watcher, and a worker."""
    one = Stack(KEEPING)
    try:
        one.start()
        one.nursery.start("watcher")
        wait_until(lambda: one.sql("SELECT 1 FROM leases_chaincursor WHERE head_height > 0"), timeout=60)
        one.nursery.start("hasty")
        yield one
    finally:
        one.stop()


@contextmanager
def web(house: Stack, points: str = "-"):
    """A web process for the time of a block of code."""
    pid = house.fork_web(points)
    try:
        yield pid
    finally:
        house.nursery.kill(pid)


@pytest.fixture(scope="module")
def sources(stack):
    """Closed leases whose data is kept, one for each test."""
    with web(stack):
        found = stack.create(GOOD, len(KILLS) + 1)
        stack.wait_until_settled(found, "active", timeout=60)
        stack.close(found)
        stack.wait_until_settled(found, "retained", timeout=60)
    return dict(zip([*KILLS, TWENTY], found, strict=True))


class Asking:
    """A tenant that asks for one restore under one key, again and again."""

    def __init__(self, house: Stack, target: str, source: str) -> None:
        self.house, self.target, self.key = house, target, str(uuid4())
        self.body = json.dumps({"from_lease_uuid": source}).encode()
        self.signing = SigningKey.from_hex(house.chain.keys["tenant"].private_key_hex)
        self.moments: set[int] = set()

    def request(self) -> Request:
        """One request, with a token of its own; it is waited for longer than an answer may take."""
        moment = next(one for one in range(int(time.time()) + 8, 0, -1) if one not in self.moments)
        self.moments.add(moment)
        token = tokens.mint(self.signing, tenant=self.house.tenant, lease_uuid=self.target, timestamp=moment)
        headers = (("Authorization", f"Bearer {token}"), ("Idempotency-Key", self.key))
        url = f"http://127.0.0.1:{self.house.ports['api']}/v1/leases/{self.target}/restore"
        return Request(url, body=self.body, headers=headers, timeout=20.0, connect_timeout=5.0)

    def __call__(self):
        return http.fetch(self.request())


@pytest.mark.parametrize("name", KILLS)
def test_lc118_ta106_a_killed_web_loses_no_restore_and_blocks_nobody(stack, sources, name):
    target = stack.create(GOOD, meta_hash=HASH)[0]
    stack.wait_until_settled([target], "awaiting_payload", timeout=60)
    ask = Asking(stack, target, sources[name])
    with web(stack, KILLS[name]) as dying:
        assert ask().error is not None
        wait_until(lambda: stack.nursery.died(dying), timeout=DIES_WITHIN_S, message="the kill")
    operation = stack.one("SELECT operation_id FROM tenants_api_idempotencykey WHERE key = %s", ask.key)
    with web(stack):
        if KILLS[name] != "idempotency.claimed":
            stack.wait_until_settled([target], "active", timeout=ENDS_WITHIN_S)
        # The time of the dead process's claim passes.
        stack.sql("UPDATE tenants_api_idempotencykey SET claim_expires_at = now() WHERE key = %s", ask.key)
        answer = ask()
        assert (answer.status, answer.body) == (202, b'{"status":"provisioning"}\n'), stack.story(target)
        stack.wait_until_settled([target], "active", timeout=ENDS_WITHIN_S)
        assert ask().body == answer.body
    restores = [one for one in stack.orders("/restore", [target]) if one["status"] == 202]
    assert [one["operation"] for one in restores] == [str(operation)], stack.story(target)
    assert stack.orders("/provision", [target]) == []
    assert stack.verbs(target) == ["acknowledge"]
    statuses = [
        row[0] for row in stack.sql("SELECT status FROM leases_statusevent WHERE lease_uuid = %s ORDER BY id", target)
    ]
    assert statuses[-1] == "ready"
    assert statuses.count("restarting") <= 1
    owner = stack.one("SELECT backend FROM placements_placement WHERE lease_uuid = %s", sources[name])
    assert stack.one("SELECT backend FROM placements_placement WHERE lease_uuid = %s", target) == owner


def test_ta104_of_twenty_requests_with_one_key_at_a_web_as_it_is_served_one_runs(stack, sources):
    """More than a web process has threads, and more than it has connections to the database."""
    target = stack.create(GOOD, meta_hash=HASH)[0]
    stack.wait_until_settled([target], "awaiting_payload", timeout=60)
    ask = Asking(stack, target, sources[TWENTY])
    requests = [ask.request() for _ in range(20)]
    stack.provider |= {"PROVIDER_TENANT_RATE_LIMIT_RPS": "10000", "PROVIDER_TENANT_RATE_LIMIT_BURST": "10000"}
    stack.start_web()
    try:
        with ThreadPoolExecutor(20) as pool:
            found = list(pool.map(http.fetch, requests))
        assert [one.error for one in found] == [None] * 20
        assert {one.status for one in found} <= {202, 409}
        assert sum(one.status == 202 for one in found) >= 1
        assert {json.loads(one.body).get("error") for one in found if one.status == 409} <= {
            "a request with this idempotency key is still being processed"
        }
        stack.wait_until_settled([target], "active", timeout=ENDS_WITHIN_S)
    finally:
        stack.kill("web")
    assert len(stack.orders("/restore", [target])) == 1
    rows = stack.sql("SELECT status FROM tenants_api_tenantrequest WHERE lease_uuid = %s", target)
    assert sorted(row[0] for row in rows) == sorted(one.status for one in found)
