"""Restores at a real mock backend over HTTP: what it keeps, what it refuses, and its callback, to our own endpoint."""

import asyncio
from datetime import timedelta

import pytest
from pydantic import SecretStr

from backends import targets
from backends.contract import LeaseItem
from backends.mock.capacity import Tier
from backends.outcomes import Accepted, Done
from leases.models import StatusEvent
from placements.callbacks_asgi import PATH, RAW_TARGET, CallbackEndpoint
from placements.models import Operation, Placement
from placements.sender import Sender
from placements.status import OperationState
from tests import asgi
from tests.backends.mock_rig import rig
from tests.backends.mock_stage import GOOD
from tests.backends.servers import SECRET, uuid_number
from tests.placements.due_rows import until
from tests.reconciliation.story import make_due
from tests.tenants_api.calls import PROVIDER, SKU
from tests.tenants_api.restores.restoring import ITEMS, ROWS, any_key, error, number
from tests.tenants_api.vectors import ALICE
from tests.waiting import wait_until

pytestmark = ROWS
SMALL = number(77)
SHAPE = tuple(LeaseItem(**item) for item in ITEMS)


@pytest.fixture
def mock(restoring, settings):
    """The mock as docker-1: it keeps what is closed for a day; disks of the small tier are too small."""
    tiers = {str(SKU): Tier(disk_mb=1000, data_mb=600), str(SMALL): Tier(disk_mb=500)}
    with rig(retention=timedelta(days=1), tiers=tiers) as made:
        one, two = settings.FRED.backends
        settings.FRED = settings.FRED.model_copy(
            update={
                "backends": (one.model_copy(update={"url": made.url}), two),
                "callback_base_url": made.listener.url,
                "callback_secret": SecretStr(SECRET),
            }
        )
        targets.forget()
        yield made


def kept(restoring, mock, count):
    """A source of which the mock keeps the data."""
    source = restoring.source(uuid=uuid_number(count))
    changes = {"tenant": ALICE, "provider_uuid": PROVIDER, "items": SHAPE, "payload": GOOD}
    heard = len(mock.listener.got)
    assert isinstance(mock.provision(count, **changes), Accepted)
    mock.callbacks(heard + 1)
    assert isinstance(mock.deprovision(count), Done)
    return source


def hear(settings, got):
    """Our callback endpoint takes what the mock sent; its status."""

    async def work():
        endpoint = CallbackEndpoint(settings.FRED, barred=frozenset)

        async def with_target(scope, receive, send):
            await endpoint({**scope, RAW_TARGET: got.target.encode()}, receive, send)

        try:
            return await asgi.request(
                with_target,
                "POST",
                PATH,
                body=got.body,
                query=got.target.partition("?")[2],
                headers={"x-fred-signature": got.headers["x-fred-signature"]},
            )
        finally:
            await endpoint.close()

    return asyncio.run(work()).status


def status(restoring, target):
    """What the tenant reads of the lease."""
    response = restoring.client.get(f"/v1/leases/{target.pk}/status", headers=restoring.token("alice", target.pk))
    return response.json()


def test_ta71_ta107_kept_data_come_to_life_under_the_new_lease(restoring, mock, settings):
    source, target, key = kept(restoring, mock, 1), restoring.lease(), any_key()
    assert restoring.ask(target, source, key=key).status == 202
    (operation,) = Operation.objects.all()
    wait_until(lambda: any(str(operation.pk) in got.target for got in mock.listener.got))
    result = next(got for got in mock.listener.got if str(operation.pk) in got.target)
    assert hear(settings, result) == 200
    operation.refresh_from_db()
    assert (operation.state, operation.kind) == (OperationState.SUCCEEDED, "restore")
    read = status(restoring, target)
    assert (read["state"], read["provision_status"]) == ("LEASE_STATE_PENDING", "ready")
    assert read["provisioning_started"] is True
    assert read["payload_received"] is False
    again = restoring.ask(target, source, key=key)
    assert (again.status, again.headers["Idempotency-Replayed"]) == (202, "true")
    elsewhere = restoring.ask(restoring.lease(), source)
    assert elsewhere.body["reason"] == "source_busy"  # until the new lease is acknowledged
    Operation.objects.update(settled_at="2026-01-01T00:00Z")
    gone = restoring.ask(restoring.lease(), source)
    assert (gone.status, gone.body) == (404, error("no retained data found for that lease", 404))


def test_ta75_ta76_what_the_mock_refuses(restoring, mock):
    source = kept(restoring, mock, 1)
    unknown = restoring.ask(restoring.lease(), restoring.source())
    assert (unknown.status, unknown.body) == (404, error("no retained data found for that lease", 404))
    small = restoring.ask(restoring.lease(items=[{**ITEMS[0], "sku": str(SMALL)}]), source)
    assert (small.status, small.body["code"]) == (422, 422)
    assert "600 MB" in small.body["error"]
    shape = restoring.ask(restoring.lease(items=[{**ITEMS[0], "quantity": 1}]), source)
    assert (shape.status, "shape" in shape.body["error"]) == (400, True)
    assert isinstance(mock.provision(5, payload=GOOD, items=SHAPE), Accepted)
    there = restoring.ask(restoring.lease(uuid=uuid_number(5)), source)
    assert (there.status, there.body) == (409, error("lease already provisioned", 409))
    assert restoring.in_flight(uuid_number(5))  # something of this lease is there, made by nobody else
    Operation.objects.update(state="ended", settled_at="2026-01-01T00:00Z")
    assert restoring.ask(restoring.lease(), source).status == 202
    assert Placement.objects.get(lease=source).status == "confirmed"


def test_ta79_lc118_an_answer_that_is_lost_is_500_and_what_was_begun_is_found(restoring, mock):
    source, target = kept(restoring, mock, 1), restoring.lease()
    mock.break_with({"action": "lose", "match": {"route": "restore"}})
    found = restoring.ask(target, source)
    assert (found.status, found.body) == (500, error("internal server error", 500))
    operation = restoring.operation(target)
    assert operation.state == OperationState.IN_DOUBT
    make_due(Operation, pk=operation.pk)
    worker = Sender()
    worker.pull()
    until(operation, state=OperationState.ACCEPTED)
    worker.drain(deadline=1.0)
    assert list(StatusEvent.objects.values_list("status", flat=True)) == ["restarting"]
