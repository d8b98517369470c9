"""A tenant's story, from a lease with a payload to data restored into another, over real HTTP and WebSocket."""

from __future__ import annotations

import json
from hashlib import sha256

import pytest

from tests.e2e.stack import ACTIVE, CLOSED, GOOD, Stack
from tests.e2e.tenant import Tenant
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

KEEPING = ({"name": "keeping", "sku": GOOD, "keep_s": 3600, "delay_s": 1},)
"""A backend of v0_13 signs by the second: two reports of one second are the same to whoever hears them."""
FIRST, SECOND, BROKEN = (json.dumps({"image": f"registry.example/web:{tag}"}).encode() for tag in ("1", "2", "crash"))


@pytest.fixture(scope="module")
def stack():
    """A house whose backend keeps the data of what is closed: web as it is served, a watcher, a worker."""
    one = Stack(KEEPING)
    try:
        one.start()
        one.start_web()
        one.nursery.start("watcher")
        # What is older than the watcher has a past that only a sweep knows; nothing sweeps here.
        seen = "SELECT count(*) FROM leases_chaincursor WHERE head_seen_at IS NOT NULL"
        wait_until(lambda: one.one(seen), timeout=60, message="the watcher to follow the chain")
        one.nursery.start("worker")
        yield one
    finally:
        one.stop()


@pytest.fixture
def tenant(stack):
    return Tenant(stack)


def test_a_lease_is_made_changed_closed_and_restored_into_another(stack, tenant):
    """TA-90 in the whole house: `restarting`, `ready`; `updating`, `failed`; `retained`; the restore of TA-71."""
    lease = stack.create(GOOD, meta_hash=sha256(FIRST).digest())[0]
    wait_until(lambda: tenant.ask(lease, "status")[0] == 200)
    _, status = tenant.ask(lease, "status")
    assert (status["state"], status["requires_payload"], status["payload_received"]) == (
        "LEASE_STATE_PENDING",
        True,
        False,
    )
    with tenant.listen(lease) as told:
        comes_up(tenant, lease, told)
        changes(stack, tenant, lease, told)
        kept = closes(stack, tenant, lease, told)
    assert "/restore" in kept["error"]
    with tenant.listen(lease, query="&since=0") as again:
        everything = [again.next() for _ in range(10)]
    assert [one["status"] for one in everything] == [
        *("provisioning", "ready"),
        *("updating", "failed"),
        *("updating", "ready"),
        *("restarting", "ready"),
        *("deprovisioning", "retained"),
    ]
    assert sorted(everything, key=lambda one: int(one["id"])) == everything

    restored_into_another(stack, tenant, lease)


def test_open_sockets_outlive_the_database(stack, tenant):
    """PostgreSQL stops and starts anew: both kinds of subscribers go on where they were, once for each event."""
    lease = stack.create(GOOD, meta_hash=sha256(FIRST).digest())[0]
    wait_until(lambda: tenant.ask(lease, "status")[0] == 200)
    with tenant.listen(lease) as plain, tenant.listen(lease, query="&since=0") as resuming:
        assert tenant.upload(lease, FIRST) == 202
        assert plain.until("ready") == resuming.until("ready") == ["provisioning", "ready"]
        stack.postgres.stop()
        wait_until(lambda: tenant.ask(lease, "status")[0] in {500, 503})
        stack.postgres.restart()
        wait_until(lambda: tenant.ask(lease, "status")[0] == 200, timeout=60)
        stack.close([lease])
        assert plain.until("retained") == resuming.until("retained") == ["deprovisioning", "retained"]


def comes_up(tenant, lease, told):
    """Upload, then ready, reachable, with logs."""
    assert tenant.upload(lease, FIRST) == 202
    assert tenant.upload(lease, FIRST) in {404, 409}
    assert told.until("ready") == ["provisioning", "ready"]
    _, status = tenant.ask(lease, "status")
    assert (status["state"], status["provision_status"], status["payload_received"]) == (
        "LEASE_STATE_ACTIVE",
        "ready",
        True,
    )
    code, found = tenant.ask(lease, "connection")
    assert (code, bool(found["connection"]["host"])) == (200, True)
    code, found = tenant.ask(lease, "logs")
    assert (code, found["logs"]) == (200, {"app/0": "mock log output\n"})


def changes(stack, tenant, lease, told):
    """An update that fails is rolled back, a good one is a new release; a restart."""
    assert tenant.update(lease, BROKEN) == (202, {"status": "updating"})
    assert told.next()["status"] == "updating"
    failed = told.next()
    assert (failed["status"], failed["error"]) == (
        "failed",
        "container exited during startup; rolled back to previous version",
    )
    _, found = tenant.ask(lease, "provision")
    assert (found["status"], found["reason"], found["message"]) == ("ready", "UpdateFailed", failed["error"])
    assert current_payload(stack, lease) == FIRST

    assert tenant.update(lease, SECOND) == (202, {"status": "updating"})
    assert told.until("ready") == ["updating", "ready"]
    _, found = tenant.ask(lease, "releases")
    assert [one["status"] for one in found["releases"]] == ["superseded", "failed", "active"]
    assert found["releases"][-1]["image"] == "registry.example/web:2"
    wait_until(lambda: current_payload(stack, lease) == SECOND)

    assert tenant.ask(lease, "restart", post=True) == (202, {"status": "restarting"})
    assert told.until("ready") == ["restarting", "ready"]


def closes(stack, tenant, lease, told):
    """Its tenant closes it; the backend keeps the data and says how to have them back. Returns that event."""
    stack.close([lease])
    assert told.next()["status"] == "deprovisioning"
    kept = told.next()
    assert kept["status"] == "retained"
    code, status = tenant.ask(lease, "status")
    assert (code, status["state"], status["provision_status"]) == (200, "LEASE_STATE_CLOSED", "retained")
    assert status["restore_hint"]
    assert status["items"] == [{"sku": stack.skus[GOOD], "quantity": 1, "service_name": "app"}]
    stack.wait_until_settled([lease], "retained", timeout=60)
    return kept


def restored_into_another(stack, tenant, source):
    lease = stack.create(GOOD, meta_hash=sha256(SECOND).digest())[0]
    wait_until(lambda: tenant.ask(lease, "status")[0] == 200)
    with tenant.listen(lease, query="&since=now") as told:
        code, found = tenant.ask(lease, "restore", {"from_lease_uuid": source})
        assert (code, found) == (202, {"status": "provisioning"})
        assert told.until("ready") == ["restarting", "ready"]
        assert stack.chain.state_of(lease) == ACTIVE
        _, status = tenant.ask(lease, "status")
        assert (status["provision_status"], status["payload_received"]) == ("ready", False)
        _, found = tenant.ask(lease, "releases")
        assert [(one["status"], one["image"]) for one in found["releases"]] == [("active", "registry.example/web:2")]
        code, _ = tenant.ask(source, "status")
        assert code == 200
        closes(stack, tenant, lease, told)
    assert stack.chain.state_of(lease) == CLOSED
    assert stack.verbs(lease) == ["acknowledge"]
    stack.assert_nothing_twice([source, lease])


def current_payload(stack, lease):
    return bytes(stack.one("SELECT body FROM leases_payload WHERE lease_uuid = %s AND state = 'current'", lease))
