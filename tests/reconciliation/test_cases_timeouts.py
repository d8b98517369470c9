"""The time limit of callbacks, from the clock to the chain."""

from __future__ import annotations

import pytest

from fred import metrics
from leases import lanes
from leases.models import ChainTx
from leases.status import LeaseState
from placements.models import Operation, Teardown
from tests.reconciliation.story import ROWS, age, counted, deliver, make_due
from tests.scripted_backend import row
from tests.waiting import wait_until

pytestmark = ROWS
BROADCASTS = "/cosmos.tx.v1beta1.Service/BroadcastTx"


def test_within_the_limit_nothing_happens(story):
    """LC-74, first half"""
    uuid = story.made()
    age(story.operation(uuid), 590)
    story.settle()
    assert story.operation(uuid).state == "accepted"
    assert story.wishes(uuid) == {}
    assert story.backends["b1"].routes(uuid) == ["provision"]


def test_past_the_limit_the_lease_is_rejected_told_and_torn_down(story):
    """P31, BC-101, LC-74, second half"""
    timeouts = counted(metrics.CALLBACK_TIMEOUTS)
    errors = counted(metrics.PROVISIONINGS, outcome="error", backend="b1", operation="provision")
    uuid = story.made()
    age(story.operation(uuid), 601)
    story.settle()
    assert story.state(uuid) is LeaseState.REJECTED
    assert story.lease_on_chain(uuid).rejection_reason == "callback timeout"
    assert ("failed", "callback timeout") in story.events(uuid)
    operation = story.operation(uuid)
    assert (operation.state, operation.refusal) == ("failed", "callback_timeout")
    assert counted(metrics.CALLBACK_TIMEOUTS) == timeouts + 1
    assert counted(metrics.PROVISIONINGS, outcome="error", backend="b1", operation="provision") == errors + 1
    assert story.backends["b1"].routes(uuid) == ["provision", "read", "deprovision"]
    assert Teardown.objects.get().state == "done"


def test_past_the_limit_a_backend_that_has_it_ready_is_believed(story):
    """LC-74: only the callback was lost"""
    uuid = story.made()
    story.backends["b1"].always["read"] = row(uuid, status="ready")
    age(story.operation(uuid), 601)
    story.settle()
    assert story.state(uuid) is LeaseState.ACTIVE
    assert story.events(uuid)[-1] == ("ready", "")
    assert story.included("MsgRejectLease", uuid) == 0


def test_a_lost_callback_is_made_up_for_by_a_list_long_before_the_limit(story):
    """BC-101"""
    uuid = story.made()
    story.lists("b1", {"lease_uuid": uuid, "status": "ready"})
    story.lists("b2")
    age(story.operation(uuid), 130)
    story.sweep()
    story.settle()
    assert story.state(uuid) is LeaseState.ACTIVE
    assert story.events(uuid)[-1] == ("ready", "")
    assert story.included("MsgAcknowledgeLease", uuid) == 1


def test_an_active_lease_past_the_limit_is_left_to_the_inventories(story):
    """LC-75: the reject fails with billing/22 because the lease is ACTIVE"""
    uuid = story.made()
    age(story.operation(uuid), 601)
    story.look()
    assert story.wishes(uuid) == {"reject": "queued"}
    story.chain.ack_leases([str(uuid)])
    story.settle()
    assert story.state(uuid) is LeaseState.ACTIVE
    assert story.wishes(uuid) == {"reject": "moot"}
    assert story.operation(uuid).settled_at is not None
    assert not Teardown.objects.exists()
    story.lists("b1", {"lease_uuid": uuid, "status": "ready"})
    story.lists("b2")
    story.sweep()
    story.settle()
    found = story.row(uuid)
    assert (found.phase, found.due_at) == ("active", None)


def test_a_reject_that_a_network_error_met_is_tried_again(story):
    """LC-76"""
    uuid = story.made()
    age(story.operation(uuid), 601)
    story.look()
    with story.chain.fault("grpc_error", where=BROADCASTS, code="UNAVAILABLE", text="away"):
        lanes.run()
    story.look()
    assert story.operation(uuid).settled_at is None
    assert story.row(uuid).due_at is not None
    make_due(ChainTx)
    story.settle()
    assert story.state(uuid) is LeaseState.REJECTED
    assert story.included("MsgRejectLease", uuid) == 1


def test_success_and_time_limit_at_one_moment_are_one_of_them_on_chain(story, run_in_threads):
    """LC-77"""
    uuids = [story.create() for _ in range(6)]
    wait_until(lambda: story.look() or Operation.objects.filter(lease_id__in=uuids).count() == len(uuids))
    story.push()
    operations = {uuid: story.operation(uuid) for uuid in uuids}
    for operation in operations.values():
        age(operation, 601)

    def report():
        for uuid, operation in operations.items():
            deliver("success", uuid, operation)

    turns = iter([story.look, report])
    run_in_threads(2, lambda: next(turns)())  # noqa: PLW0108 - each thread takes its own turn
    story.settle()
    for uuid in uuids:
        acknowledged, rejected = story.included("MsgAcknowledgeLease", uuid), story.included("MsgRejectLease", uuid)
        assert (acknowledged, rejected) in {(1, 0), (0, 1)}
        told = [status for status, _ in story.events(uuid)]
        assert ("ready" in told) == bool(acknowledged)
        assert ("failed" in told) == bool(rejected)


@pytest.mark.parametrize("pushes", [1, 3])
def test_repeats_do_not_restart_the_clock(story, pushes):
    """LC-74: the age is that of the first push"""
    uuid = story.made()
    operation = story.operation(uuid)
    age(operation, 601)
    type(operation).objects.update(dispatch_count=pushes, last_dispatched_at=operation.created_at)
    story.look()
    assert story.operation(uuid).refusal == "callback_timeout"
