"""What is due reaches its backend once and in time; what is not to be pushed does not."""

from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from backends import targets
from fred import breaker
from leases.models import Lease
from placements import dispatch
from placements.models import Operation, Teardown
from tests.factories.leases import LeaseFactory, PayloadFactory
from tests.factories.placements import OperationFactory
from tests.placements.due_rows import S, due, until
from tests.scripted_backend import Hang
from tests.waiting import wait_until


def test_lc1_a_due_operation_is_posted_once_as_it_was_stored_and_accepted(backend, sender):
    operation = due(items=[{"sku": "s1", "quantity": 2, "service_name": "web"}])
    sender.pull()
    until(operation, state=S.ACCEPTED, due_at=None, on_wire_until=None)
    assert backend.routes() == ["provision"]
    assert backend.seen[0].body == {
        "lease_uuid": str(operation.lease_id),
        "tenant": operation.tenant,
        "provider_uuid": str(operation.provider_uuid),
        "items": [{"sku": "s1", "quantity": 2, "service_name": "web"}],
        "callback_url": operation.callback_url,
    }
    assert "x-fred-signature" in backend.seen[0].headers
    assert operation.dispatch_count == 1
    assert operation.first_dispatched_at is not None
    lease = Lease.objects.get()
    assert lease.touched_at is not None
    assert lease.due_at is None, "an acceptance wakes nobody"


def test_the_payload_goes_as_uploaded_with_the_digest_of_the_operation(backend, sender):
    payload = PayloadFactory(body=b"\x00manifest\xff")
    operation = due(lease=payload.lease, payload_sha256=payload.sha256)
    sender.pull()
    until(operation, state=S.ACCEPTED)
    assert backend.seen[0].body["payload"] == "AG1hbmlmZXN0/w=="
    assert backend.seen[0].body["payload_hash"] == payload.sha256.hex()


def test_an_operation_whose_payload_is_gone_is_never_sent_without_it(backend, sender):
    operation = due(payload_sha256=b"1" * 32)
    sender.pull()
    until(operation, state=S.RESERVED, refusal="not_sent")
    assert backend.seen == []
    assert Lease.objects.get().due_at is not None


def test_a_burst_arrives_whole_each_once_and_32_at_most_at_the_same_time(backend, sender):
    operations = [due() for _ in range(150)]
    sender.pull()
    wait_until(lambda: Operation.objects.filter(state=S.ACCEPTED).count() == 150)
    assert sorted(one.lease for one in backend.seen) == sorted(str(one.lease_id) for one in operations)
    assert backend.most_in_flight <= 32


def test_a_slow_call_holds_up_nobody(backend, sender):
    slow, quick = due(), due()
    hang = Hang()
    backend.script["provision", str(slow.lease_id)].append(hang)
    sender.pull()
    until(quick, state=S.ACCEPTED)
    slow.refresh_from_db()
    assert slow.state == S.IN_DOUBT
    assert slow.on_wire_until > timezone.now() + timedelta(seconds=30)
    hang.release()
    until(slow, state=S.ACCEPTED)


def test_a_row_on_the_wire_is_renewed(backend, sender):
    operation, hang = due(), Hang()
    backend.script["provision"].append(hang)
    sender.pull()
    wait_until(lambda: backend.seen)
    operation.refresh_from_db()
    first, epoch = operation.due_at, operation.epoch
    wait_until(lambda: Operation.objects.get().due_at > first)
    assert Operation.objects.get().epoch == epoch
    hang.release()
    until(operation, state=S.ACCEPTED)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"valid_until": timezone.now() - timedelta(seconds=1)}, id="stale"),
        pytest.param({"due_at": timezone.now() + timedelta(hours=1)}, id="not due"),
        pytest.param({"state": S.ACCEPTED}, id="accepted"),
        pytest.param({"state": S.SUCCEEDED}, id="has an outcome"),
        pytest.param({"settled_at": timezone.now()}, id="settled"),
    ],
)
def test_what_is_not_to_be_pushed_is_not(backend, sender, fields):
    due(**fields)
    other = due()
    sender.pull()
    until(other, state=S.ACCEPTED)
    assert [one.lease for one in backend.seen] == [str(other.lease_id)]


@pytest.mark.parametrize("state", [S.RESERVED, S.IN_DOUBT])
def test_past_its_validity_nobody_pushes_and_its_lease_is_looked_at(backend, sender, state):
    operation = due(state=state, valid_until=timezone.now() - timedelta(seconds=1))
    sender.pull()
    until(operation, state=state, due_at=None)
    assert Lease.objects.get().due_at is not None
    assert backend.seen == []


@pytest.mark.parametrize("fields", [{"fenced": True}, {"configured": False}])
def test_a_fenced_backend_gets_nothing(backend, sender, fields):
    operation = due()
    type(operation.backend).objects.update(**fields)
    sender.pull()
    wait_until(lambda: sender.is_idle)
    operation.refresh_from_db()
    assert (operation.state, operation.dispatch_count, backend.seen) == (S.RESERVED, 0, [])


@pytest.mark.parametrize("kind", ["provision", "deprovision"])
def test_op_rbk9_a_fence_breaks_off_what_runs_and_its_end_goes_on(backend, sender, kind, monkeypatch):
    monkeypatch.setattr(targets, "FRESH_S", 0.2)
    held = Hang(202 if kind == "provision" else 200)
    backend.script[kind].append(held)
    if kind == "provision":
        pushed = due()
    else:
        pushed = Teardown.objects.create(
            lease=LeaseFactory(), backend=OperationFactory().backend, due_at=timezone.now(), state="open"
        )
    sender.pull()
    wait_until(lambda: backend.in_flight == 1)
    failures = breaker.of("mock-1").view().failures
    type(pushed.backend).objects.update(fenced=True)
    wait_until(lambda: sender.is_idle)
    pushed.refresh_from_db()
    assert pushed.due_at is not None
    assert pushed.state == (S.IN_DOUBT if kind == "provision" else "open")
    assert breaker.of("mock-1").view().failures == failures
    seen = len(backend.seen)
    sender.pull()
    wait_until(lambda: sender.is_idle)
    assert len(backend.seen) == seen
    held.release()
    type(pushed.backend).objects.update(fenced=False)
    targets.forget()
    type(pushed).objects.filter(pk=pushed.pk).update(due_at=timezone.now())
    sender.pull()
    until(pushed, state=S.ACCEPTED if kind == "provision" else "done")


def test_the_sender_outlives_its_database_connection(backend, sender):
    operation, hang = due(), Hang()
    backend.script["provision"].append(hang)
    sender.pull()
    wait_until(lambda: backend.seen)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    hang.release()
    until(operation, state=S.ACCEPTED)
    assert backend.routes() == ["provision"]


def test_a_fork_gets_a_sender_of_its_own(backend):
    mine = dispatch.sender()
    assert dispatch.sender() is mine
    dispatch._pid = 1
    other = dispatch.sender()
    assert other is not mine
    dispatch.drain()
