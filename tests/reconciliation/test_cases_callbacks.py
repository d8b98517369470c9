"""What a backend reports, from the report to the chain and to the subscribers."""

from __future__ import annotations

from uuid import uuid4

import pytest
from django.db.models.functions import Now

from backends.contract import cut_reason
from fred import metrics
from leases import lanes
from leases.chain.events import EventType
from leases.models import ChainAction, ChainTx, Lease, Signer
from leases.status import LeaseState
from placements.callback_request import Selector
from placements.models import Callback, Operation, Placement, Teardown
from reconciliation.texts import retained_text
from tests.factories.leases import PayloadFactory
from tests.reconciliation.story import ROWS, counted, deliver, is_due, make_due
from tests.scripted_backend import Hang
from tests.waiting import wait_until

pytestmark = ROWS
LEASE_READS = "/liftedinit.billing.v1.Query/Lease*"
BROADCASTS = "/cosmos.tx.v1beta1.Service/BroadcastTx"


def provisionings(outcome):
    return counted(metrics.PROVISIONINGS, outcome=outcome, backend="b1", operation="provision")


def test_success_is_acknowledged_and_told(story):
    """LC-38, BC-89"""
    before = provisionings("success")
    uuid = story.made()
    payload = PayloadFactory(lease_id=uuid)
    story.report("success", uuid)
    story.look()
    assert story.operation(uuid).settled_at is None, "nothing is over before the chain says so"
    story.settle()
    assert story.state(uuid) is LeaseState.ACTIVE
    operation = story.operation(uuid)
    assert (operation.state, operation.settled_at is None) == ("succeeded", False)
    assert story.events(uuid) == [("provisioning", ""), ("ready", "")]
    placement = Placement.objects.get(lease_id=uuid)
    assert (placement.status, placement.backend_id, placement.lifecycle_id) == ("confirmed", "b1", operation.pk)
    payload.refresh_from_db()
    assert payload.delete_after is None
    assert story.row(uuid).phase == "active"
    assert provisionings("success") == before + 1
    assert story.included("MsgAcknowledgeLease", uuid) == 1


def test_an_acknowledgement_that_came_too_late_for_an_active_lease_is_success(story):
    """BC-90, LC-40, first half: billing/22, and the chain says ACTIVE"""
    uuid = story.made()
    story.report("success", uuid)
    story.look()
    story.chain.ack_leases([str(uuid)])
    story.settle()
    assert story.wishes(uuid) == {"ack": "done"}
    assert story.operation(uuid).settled_at is not None
    assert story.events(uuid)[-1] == ("ready", "")


def test_an_acknowledgement_that_came_too_late_for_an_ended_lease_ends_the_operation(story):
    """BC-90, LC-40, second half: the chain says that the lease is over"""
    uuid = story.made()
    story.report("success", uuid)
    story.look()
    story.chain.expire_lease(str(uuid))
    story.settle()
    assert story.wishes(uuid) == {"ack": "moot"}
    assert story.operation(uuid).settled_at is not None
    assert "ready" not in dict(story.events(uuid))
    assert story.backends["b1"].routes(uuid) == ["provision", "deprovision"]
    assert story.included("MsgAcknowledgeLease", uuid) == 0


def test_code_22_of_another_codespace_ends_nothing(story):
    """LC-41"""
    uuid = story.made()
    story.report("success", uuid)
    story.look()
    with story.chain.fault("chain_error", where="chain:exec", codespace="other", code=22, raw_log="no", times=1):
        lanes.run()
    story.sign()
    assert story.wishes(uuid) == {"ack": "queued"}
    assert story.operation(uuid).settled_at is None
    make_due(ChainAction, lease_id=uuid)
    make_due(Signer)
    story.settle()
    assert story.state(uuid) is LeaseState.ACTIVE


@pytest.mark.parametrize(
    ("error", "reason", "told"),
    [
        pytest.param("", "provisioning failed", "provisioning failed", id="LC-42 without words"),
        pytest.param("x" * 500, "x" * 253 + "...", "x" * 500, id="LC-43 with many"),
    ],
)
def test_a_failure_is_rejected_with_the_backends_words_and_told_uncut(story, error, reason, told):
    """P27, LC-42, LC-43, BC-91, BC-93"""
    before = provisionings("failed")
    uuid = story.made()
    payload = PayloadFactory(lease_id=uuid)
    story.report("failed", uuid, error=error)
    story.settle()
    assert story.state(uuid) is LeaseState.REJECTED
    assert story.lease_on_chain(uuid).rejection_reason == reason
    assert ("failed", told) in story.events(uuid)
    assert provisionings("failed") == before + 1
    assert story.included("MsgRejectLease", uuid) == 1
    payload.refresh_from_db()
    assert payload.delete_after is not None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("é" * 129, "é" * 126 + "..."),
        ("é" * 128, "é" * 128),
        ("a" * 256, "a" * 256),
        ("a" * 257, "a" * 253 + "..."),
    ],
    ids=["258 bytes", "256 bytes of two each", "256 bytes", "257 bytes"],
)
def test_a_reason_is_cut_between_characters(text, expected):
    """P30, LC-44, BC-93"""
    assert cut_reason(text) == expected
    assert len(expected.encode()) <= 256


def test_a_failure_of_an_active_lease_is_told_and_changes_nothing_on_chain(story):
    """P27, LC-45, BC-92"""
    uuid = story.made()
    payload = PayloadFactory(lease_id=uuid)
    story.chain.ack_leases([str(uuid)])
    story.hear(uuid, EventType.ACKNOWLEDGED)
    story.report("failed", uuid, error="it died")
    story.settle()
    assert story.state(uuid) is LeaseState.ACTIVE
    assert story.wishes(uuid) == {}
    assert story.events(uuid) == [("provisioning", ""), ("failed", "it died")]
    row = story.row(uuid)
    assert (row.phase, row.reason) == ("degraded", "failed")
    assert Placement.objects.get(lease_id=uuid).backend_id == "b1"
    payload.refresh_from_db()
    assert payload.delete_after is None
    assert story.backends["b1"].routes(uuid) == ["provision"]


def test_a_failure_finishes_nothing_while_the_lease_cannot_be_read(story):
    """LC-46, BC-90"""
    uuid = story.made()
    story.report("failed", uuid)
    with story.chain.fault("grpc_error", where=LEASE_READS, code="UNAVAILABLE", text="away"):
        story.look()
    assert story.wishes(uuid) == {}
    assert story.operation(uuid).settled_at is None
    assert story.row(uuid).due_at is not None
    story.forget_silence()
    story.settle()
    assert story.state(uuid) is LeaseState.REJECTED


def test_while_a_reject_does_not_get_through_nothing_is_provisioned_again(story):
    """LC-47"""
    story.lists("b1")
    story.lists("b2")
    uuid = story.made()
    story.report("failed", uuid, error="no")
    with story.chain.fault("grpc_error", where=BROADCASTS, code="UNAVAILABLE", text="away"):
        story.look()
        lanes.run()
        story.sweep()
        story.look()
        story.push()
        assert story.operation(uuid).settled_at is None
        assert Operation.objects.count() == 1
    make_due(ChainTx)
    story.settle()
    assert story.state(uuid) is LeaseState.REJECTED
    assert Operation.objects.count() == 1
    assert story.included("MsgRejectLease", uuid) == 1


def test_a_rejected_lease_is_torn_down_where_it_failed_and_a_placement_elsewhere_stays(story):
    """LC-48: a placement is never deleted by the failure of an operation at another backend"""
    uuid = story.made()
    Placement.objects.filter(lease_id=uuid).update(backend="b2", status="confirmed")
    story.report("failed", uuid)
    story.settle()
    assert story.state(uuid) is LeaseState.REJECTED
    assert Placement.objects.get(lease_id=uuid).backend_id == "b2"


@pytest.mark.parametrize("status", ["success", "failed"])
def test_a_report_without_open_operation_is_told_and_nothing_more(story, status):
    """P36, LC-49"""
    uuid = story.activated()
    before = counted(metrics.NON_IN_FLIGHT_CALLBACKS, backend="b1", status=status)
    told, wishes = story.events(uuid), story.wishes(uuid)
    story.report(status, uuid)
    story.settle()
    assert story.events(uuid) == [*told, ({"success": "ready"}.get(status, status), "")]
    assert story.wishes(uuid) == wishes
    assert story.row(uuid).phase == {"success": "active", "failed": "degraded"}[status]
    assert counted(metrics.NON_IN_FLIGHT_CALLBACKS, backend="b1", status=status) == before + 1
    assert not Callback.objects.filter(applied_at=None).exists()


@pytest.mark.parametrize("retained", [True, False])
@pytest.mark.parametrize("ended", [True, False], ids=["ended", "live"])
def test_a_removal_is_told_only_with_how_to_get_the_data_back(story, retained, ended):
    """LC-51, TA-90"""
    uuid = story.activated()
    if ended:
        story.close(uuid)
        story.settle()
    told = story.events(uuid)
    story.report("deprovisioned", uuid, retained=retained)
    story.settle()
    assert story.events(uuid) == ([*told, ("retained", retained_text(uuid))] if retained else told)
    assert "/restore" in retained_text(uuid)
    assert "from_lease_uuid" in retained_text(uuid)
    if ended:
        assert story.row(uuid).phase == ("retained" if retained else "ended")


def test_a_removal_is_told_once_however_often_it_is_reported(story):
    """BC-96: on the URL that outlives the operation, after everything is over here"""
    uuid = story.activated()
    id_ = Placement.objects.get(lease_id=uuid).lifecycle_id
    story.close(uuid)
    story.settle()
    told = story.events(uuid)
    for _ in range(3):
        deliver("deprovisioned", uuid, None, selector=Selector.LIFECYCLE, selector_id=id_, retained=True)
        story.settle()
        assert story.events(uuid) == [*told, ("retained", retained_text(uuid))]
    for status in ("success", "failed"):
        deliver(status, uuid, None, selector=Selector.LIFECYCLE, selector_id=id_)
    story.settle()
    assert story.events(uuid) == [*told, ("retained", retained_text(uuid))]
    assert not Callback.objects.filter(applied_at=None).exists()
    assert story.row(uuid).phase == "retained"


def test_what_died_meanwhile_is_told_and_the_open_operation_goes_on(story):
    """BC-94: reported on the URL of what ran before"""
    uuid, before = story.made(), uuid4()
    Placement.objects.filter(lease_id=uuid).update(lifecycle_id=before, status="confirmed")
    deliver("failed", uuid, None, selector=Selector.LIFECYCLE, selector_id=before, error="it died")
    story.look()
    assert ("failed", "it died") in story.events(uuid)
    assert (story.operation(uuid).state, story.operation(uuid).settled_at) == ("accepted", None)
    assert story.wishes(uuid) == {}
    story.report("success", uuid)
    story.settle()
    assert story.state(uuid) is LeaseState.ACTIVE


def test_a_removal_of_what_is_being_made_ends_the_operation_and_no_chain_hears_of_it(story):
    """LC-52, BC-84"""
    before = provisionings("error")
    uuid = story.made()
    first = story.operation(uuid)
    story.report("deprovisioned", uuid)
    story.look()
    first.refresh_from_db()
    assert (first.state, first.settled_at is None) == ("ended", False)
    assert provisionings("error") == before + 1
    assert story.wishes(uuid) == {}
    assert story.row(uuid).due_at is not None
    Operation.objects.update(settled_at="2026-01-01T00:00Z")
    make_due(Lease, pk=uuid)
    story.look()
    story.push()
    assert story.operation(uuid).pk != first.pk
    assert story.backends["b1"].routes(uuid) == ["provision", "provision"]


def test_only_the_operation_that_is_open_can_succeed(story):
    """P23, LC-58"""
    uuid = story.made()
    old = story.operation(uuid)
    Operation.objects.update(state="failed", refusal="callback_timeout", settled_at="2026-01-01T00:00Z")
    make_due(Lease, pk=uuid)
    story.look()
    story.push()
    new = story.operation(uuid)
    assert new.pk != old.pk
    story.report("success", uuid, operation=old)
    story.settle()
    assert story.wishes(uuid) == {}
    new.refresh_from_db()
    assert new.state == "accepted"
    story.report("success", uuid, operation=new)
    story.settle()
    assert story.state(uuid) is LeaseState.ACTIVE


def test_the_same_callback_five_times_at_once_is_one_row_and_one_acknowledgement(story, run_in_threads):
    """P22, LC-59, BC-89"""
    uuid = story.made()
    operation = story.operation(uuid)
    run_in_threads(5, lambda: deliver("success", uuid, operation))
    assert Callback.objects.filter(lease_id=uuid).count() == 1
    story.settle()
    assert story.included("MsgAcknowledgeLease", uuid) == 1
    assert [status for status, _ in story.events(uuid)] == ["provisioning", "ready"]


def test_a_callback_before_the_acceptance_was_read_counts_and_the_acceptance_changes_nothing(story):
    """P21, LC-60, BC-100"""
    backend = story.backends["b1"]
    answer = Hang()
    backend.script["provision"].append(answer)
    uuid = story.create()
    story.look()
    story.sender.pull()
    wait_until(lambda: backend.routes(uuid))
    story.report("success", uuid)
    story.look()
    story.sign()
    assert story.state(uuid) is LeaseState.ACTIVE
    answer.release()
    story.settle()
    assert story.operation(uuid).state == "succeeded"
    assert story.events(uuid) == [("provisioning", ""), ("ready", "")]
    assert backend.routes(uuid) == ["provision"]


def test_a_callback_that_is_committed_needs_nobody_to_say_so(story, monkeypatch):
    """LC-61, BC-98: its process dies right after the commit; the clock finds the lease"""
    from fred.tasks import LOOK, hint
    from reconciliation.tick import hint_overdue

    uuid = story.made()
    monkeypatch.setattr(hint, "send", lambda task: None)
    story.report("success", uuid)
    assert is_due(Lease)
    assert LOOK in hint_overdue()
    story.settle()
    assert story.state(uuid) is LeaseState.ACTIVE


def test_a_success_of_an_ended_lease_is_consumed_and_acknowledges_nothing(story):
    """LC-38, LC-112: the lease was closed meanwhile"""
    uuid = story.made()
    story.chain.cancel_lease(str(uuid))
    story.hear(uuid, EventType.CANCELLED)
    story.report("success", uuid)
    story.settle()
    assert story.wishes(uuid) == {}
    assert Teardown.objects.get(lease_id=uuid).state == "done"
    assert "ready" not in dict(story.events(uuid))


@pytest.mark.parametrize("away", ["/*", BROADCASTS], ids=["whole", "broadcasts"])
def test_a_success_is_not_lost_while_the_chain_is_away(story, away):
    """P28"""
    uuid = story.made()
    with story.chain.fault("grpc_error", where=away, code="UNAVAILABLE", text="away"):
        story.report("success", uuid)
        story.look()
        lanes.run()
        assert story.state(uuid) is LeaseState.PENDING
        assert story.operation(uuid).settled_at is None
    story.forget_silence()
    ChainTx.objects.filter(due_at__isnull=False).update(due_at=Now())
    story.settle()
    assert story.state(uuid) is LeaseState.ACTIVE
    assert story.operation(uuid).settled_at is not None
    assert story.included("MsgAcknowledgeLease", uuid) == 1


def test_a_failure_of_an_ended_lease_rejects_nothing_and_is_torn_down(story):
    """P27"""
    uuid = story.made()
    story.chain.cancel_lease(str(uuid))
    story.hear(uuid, EventType.CANCELLED)
    story.report("failed", uuid, error="too late")
    story.settle()
    assert story.wishes(uuid) == {}
    operation = story.operation(uuid)
    assert (operation.state, operation.settled_at is None) == ("failed", False)
    assert Teardown.objects.get(lease_id=uuid).state == "done"
