"""A look finds what is due, decides on fresh facts, and its finish counts only while nothing happened in between."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db.models.functions import Now
from django.utils import timezone

from fred import due, metrics
from leases import wake
from leases.models import ChainAction, Lease, StatusEvent
from leases.status import LeaseState
from placements import transitions
from placements.models import Operation, Placement, Teardown
from placements.status import OperationState
from reconciliation.models import DecisionRecord
from tests.reconciliation.chains import lease

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("trusted")]


def heard_of(*uuids, height=None) -> None:
    with wake.news_about(uuids) as news:
        news.wake(dict.fromkeys(uuids, height))


def test_a_new_lease_gets_one_operation_and_a_placement(looker, chain):
    one = lease()
    chain.add(one)
    heard_of(one.uuid, height=90)
    looker.at_due_leases()
    operation = Operation.objects.get()
    assert operation.lease_id == one.uuid
    assert operation.backend_id == "mock-1"
    assert operation.state == OperationState.RESERVED
    assert operation.items == [{"sku": str(one.items[0].sku_uuid), "quantity": 2}]
    assert operation.callback_url.endswith(f"/callbacks/provision?operation_id={operation.id}")
    assert operation.lifecycle_url.endswith(f"/callbacks/provision?lifecycle_id={operation.id}")
    assert Placement.objects.get().status == "attempted"
    row = Lease.objects.get()
    assert (row.phase, row.chain_state, row.attempts) == ("provisioning", LeaseState.PENDING, 0)
    assert list(StatusEvent.objects.values_list("status", flat=True)) == ["provisioning"]
    assert DecisionRecord.objects.get().decision == "StartProvision"


def test_success_is_acknowledged_then_settled_as_ready(looker, chain):
    one = lease()
    chain.add(one)
    heard_of(one.uuid, height=90)
    looker.at_due_leases()
    operation = Operation.objects.get()
    transitions.move({operation.id: None}, OperationState.IN_DOUBT)
    transitions.move({operation.id: None}, OperationState.SUCCEEDED)
    heard_of(one.uuid)
    looker.at_due_leases()
    action = ChainAction.objects.get()
    assert (action.verb, action.state, action.operation_id) == ("ack", "queued", operation.id)
    assert Lease.objects.get().phase == "acking"
    chain.move(one.uuid, LeaseState.ACTIVE)
    ChainAction.objects.update(state="done", due_at=None)
    heard_of(one.uuid, height=chain.height)
    looker.at_due_leases()
    operation.refresh_from_db()
    assert operation.settled_at is not None
    placement = Placement.objects.get()
    assert (placement.status, placement.lifecycle_id) == ("confirmed", operation.id)
    assert list(StatusEvent.objects.order_by("id").values_list("status", flat=True)) == ["provisioning", "ready"]
    row = Lease.objects.get()
    assert (row.phase, row.due_at) == ("active", None)


def test_a_closed_lease_is_torn_down_at_its_owner_and_keeps_its_placement(looker, chain):
    test_success_is_acknowledged_then_settled_as_ready(looker, chain)
    (uuid,) = chain.leases_by_uuid
    chain.move(uuid, LeaseState.CLOSED)
    heard_of(uuid, height=chain.height)
    looker.at_due_leases()
    teardown = Teardown.objects.get()
    assert (teardown.backend_id, teardown.state) == ("mock-1", "open")
    assert Lease.objects.get().phase == "tearing_down"
    Teardown.objects.update(state="done", due_at=None)
    heard_of(uuid)
    looker.at_due_leases()
    assert Lease.objects.get().phase == "ended"
    assert Placement.objects.count() == 1
    assert StatusEvent.objects.order_by("id").last().status == "deprovisioning"


def test_a_look_overtaken_by_news_changes_nothing_and_the_lease_stays_due(looker, chain, monkeypatch):
    one = lease()
    chain.add(one)
    heard_of(one.uuid, height=90)
    gather = looker.gather
    overtaken = []

    def slow(claimed, sources):
        found = gather(claimed, sources)
        if not overtaken:
            overtaken.append(True)
            heard_of(one.uuid, height=chain.height + 1)
            chain.move(one.uuid, LeaseState.CLOSED)
        return found

    looker.gather = slow
    looker.at_due_leases(limit=1)
    assert not Operation.objects.exists()
    assert Lease.objects.get().chain_state == LeaseState.CLOSED


def test_a_killing_row_hurts_only_itself(looker, chain, monkeypatch):
    good, bad = lease(), lease()
    chain.add(good, bad)
    heard_of(good.uuid, bad.uuid, height=90)
    gather = looker.gather

    def poisoned(claimed, sources):
        if bad.uuid in claimed:
            raise ValueError("this one")
        return gather(claimed, sources)

    looker.gather = poisoned
    crashes = metrics.LOOK_CRASHES.labels("process_lease")._value.get
    before, began = crashes(), timezone.now()
    looker.at_due_leases()
    assert crashes() == before + 1
    assert Operation.objects.get().lease_id == good.uuid
    row = Lease.objects.get(uuid=bad.uuid)
    assert row.attempts == 1
    assert row.last_error == "ValueError: this one"
    assert began + timedelta(seconds=1) <= row.due_at <= timezone.now() + timedelta(seconds=1)


@pytest.mark.parametrize(
    ("cut_short", "sizes"), [(0, [70]), (1, [64, 6]), (2, [8] * 8 + [6]), (3, [1] * 70)], ids=["new", "1", "2", "3"]
)
def test_what_killed_looks_left_is_looked_at_in_ever_smaller_groups(looker, chain, cut_short, sizes):
    several = [lease() for _ in range(70)]
    chain.add(*several)
    heard_of(*(one.uuid for one in several), height=90)
    for _ in range(cut_short):
        assert len(due.claim(Lease)) == 70
        Lease.objects.update(due_at=Now())
    gather = looker.gather
    seen = []

    def counting(claimed, sources):
        seen.append(len(claimed))
        return gather(claimed, sources)

    looker.gather = counting
    looker.at_due_leases()
    assert seen[: len(sizes)] == sizes
    assert set(Lease.objects.values_list("attempts", "phase")) == {(0, "provisioning")}
    assert Operation.objects.count() == 70
