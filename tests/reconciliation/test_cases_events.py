"""News of the chain, from the event to what backends and the chain get."""

from __future__ import annotations

import json
from datetime import timedelta
from uuid import UUID

import pytest
from django.utils import timezone
from structlog.testing import capture_logs

from fred import due, metrics, readings
from leases import lanes
from leases.chain.events import EventType, LeaseEvent
from leases.models import ChainTx, Lease
from leases.status import LeaseState
from placements.models import Operation, Placement, Teardown
from reconciliation.sources import Sources
from reconciliation.watch_store import store_events
from tests.reconciliation.chains import lease
from tests.reconciliation.story import ROWS, counted, make_due
from tests.reconciliation.watching import event

pytestmark = ROWS
BROADCASTS = "/cosmos.tx.v1beta1.Service/BroadcastTx"


def refusal(text="no such plan", **fields):
    return 400, json.dumps({"error": text, **fields}).encode()


def test_a_lease_that_is_created_twice_is_provisioned_once(story):
    """LC-1"""
    uuid = story.create(items=[{"sku_uuid": story.chain.sku_uuid, "quantity": 2}])
    story.hear(uuid)
    story.settle()
    story.hear(uuid)
    story.settle()
    (seen,) = story.backends["b1"].seen
    assert (seen.route, seen.body["items"]) == ("provision", [{"sku": story.chain.sku_uuid, "quantity": 2}])
    assert story.backends["b2"].seen == []
    assert Operation.objects.filter(settled_at=None).count() == 1
    assert story.events(uuid) == [("provisioning", "")]


def awaiting():
    return readings.of_the_database()["fred_payload_leases_awaiting"][()]


def test_a_lease_that_announces_a_payload_waits_for_it(story):
    """LC-2"""
    uuid = story.create(meta_hash=b"\x01" * 32)
    story.hear(uuid)
    story.settle()
    assert story.backends["b1"].seen == []
    row = story.row(uuid)
    assert (row.phase, row.reason, row.due_at) == ("awaiting_payload", "payload_missing", None)
    assert awaiting() == 1
    story.chain.cancel_lease(str(uuid))
    story.hear(uuid, EventType.CANCELLED)
    story.settle()
    assert awaiting() == 0
    assert story.backends["b1"].seen == []


def test_a_silent_chain_makes_leases_wait_and_is_one_incident(looker, chain, trusted):
    """LC-3, first half"""
    ones = [lease() for _ in range(3)]
    chain.add(*ones)
    chain.silent = True
    with capture_logs() as logs:
        for one in ones:
            store_events([event(uuid=one.uuid, height=90)])
            looker.at_due_leases()
        make_due(Lease)
        looker.at_due_leases()
    assert [entry["event"] for entry in logs].count("source silent") == 1
    for row in Lease.objects.all():
        assert (row.reason, row.attempts) == ("chain_silent", 0)
        assert timedelta() < row.due_at - row.looked_at <= timedelta(seconds=30)
    assert not Operation.objects.exists()
    chain.silent = False
    looker.sources = Sources(chain)
    make_due(Lease)
    looker.at_due_leases()
    assert Operation.objects.count() == 3


def test_an_error_of_one_lease_is_its_own_and_it_is_looked_at_ever_more_rarely(looker, chain, trusted):
    """LC-3, second half"""
    good, bad = lease(), lease()
    chain.add(good, bad)
    chain.failing = {bad.uuid}
    store_events([event(uuid=good.uuid, height=90), event(uuid=bad.uuid, height=90)])
    topic = {"topic": "events.lease.created", "outcome": "error"}
    stuck = counted(metrics.STUCK_LEASES)
    for attempt, expected in enumerate([1, 2, 5, 10, 30, 60, 300, 300, 300], 1):
        errors = counted(metrics.MESSAGES, **topic)
        looker.at_due_leases()
        row = Lease.objects.get(pk=bad.uuid)
        assert (row.attempts, row.reason) == (attempt, "chain_error")
        assert expected - 1 < (row.due_at - row.looked_at).total_seconds() <= expected
        assert counted(metrics.MESSAGES, **topic) == errors + 1
        assert counted(metrics.STUCK_LEASES) == stuck + (attempt >= due.STUCK_AFTER)
        make_due(Lease, pk=bad.uuid)
    assert Operation.objects.get().lease_id == good.uuid
    chain.failing = set()
    looker.at_due_leases()
    assert Operation.objects.filter(lease_id=bad.uuid).exists()


def test_a_lease_that_ended_before_its_creation_was_heard_gets_nothing(story):
    """LC-5"""
    uuid = story.create(news=False)
    story.chain.cancel_lease(str(uuid))
    story.hear(uuid)
    story.settle()
    assert not Operation.objects.exists()
    assert story.backends["b1"].seen == []
    assert story.row(uuid).phase == "ended"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        pytest.param({"validation_code": "unknown_sku"}, "invalid SKU", id="LC-6 unknown_sku"),
        pytest.param({"validation_code": "invalid_manifest"}, "invalid manifest", id="LC-7 invalid_manifest"),
        pytest.param({"validation_code": "image_not_allowed"}, "image not allowed", id="LC-7 image_not_allowed"),
        pytest.param({"validation_code": "weird_code"}, "validation error", id="LC-7 weird_code"),
        pytest.param({}, "validation error", id="LC-7 none"),
    ],
)
def test_a_refusal_is_rejected_with_our_words_and_no_other_backend_is_tried(story, fields, reason):
    """LC-6, LC-7"""
    story.serve("b1", allocated=1)
    story.serve("b2", allocated=7)
    story.backends["b1"].always["provision"] = refusal(**fields)
    uuid = story.create()
    story.settle()
    assert story.state(uuid) is LeaseState.REJECTED
    assert story.lease_on_chain(uuid).rejection_reason == reason
    assert ("failed", reason) in story.events(uuid)
    assert story.backends["b1"].routes(uuid)[0] == "provision"
    assert story.backends["b2"].routes(uuid) == []


def test_a_reject_that_a_network_error_met_is_repeated_and_takes_effect_once(story):
    """LC-8"""
    story.backends["b1"].always["provision"] = refusal(validation_code="unknown_sku")
    uuid = story.create()
    story.look()
    story.push()
    story.look()
    with story.chain.fault("lose_request", where=BROADCASTS, times=1):
        lanes.run()
    assert story.state(uuid) is LeaseState.PENDING
    make_due(ChainTx)
    story.settle()
    assert story.state(uuid) is LeaseState.REJECTED
    assert story.included("MsgRejectLease", uuid) == 1


@pytest.mark.parametrize("body", ["<html>bad</html>", "{}", "null", '{"message":"x"}', '{"code":"y"}'])
def test_a_refusal_off_the_contract_refuses_nothing(story, body):
    """P5, P6, LC-9"""
    labels = {"backend": "b1", "operation": "provision"}
    before = counted(metrics.MALFORMED_ERROR_BODIES, **labels)
    story.backends["b1"].always["provision"] = 400, body.encode()
    uuid = story.create()
    story.look()
    story.push()
    story.look()
    assert counted(metrics.MALFORMED_ERROR_BODIES, **labels) == before + 1
    operation = story.operation(uuid)
    assert (operation.state, operation.settled_at) == ("in_doubt", None)
    assert story.wishes(uuid) == {}


def test_no_room_rejects_nothing_and_the_lease_may_go_elsewhere(story):
    """P20, LC-10"""
    story.backends["b1"].always["provision"] = 503, b'{"error":"full","code":"insufficient_resources"}'
    before = counted(metrics.INSUFFICIENT_RESOURCES, backend="b1", verdict="coded_refusal")
    uuid = story.create()
    story.settle()
    asked = story.backends["b1"].routes(uuid).count("provision")  # once, or again after a second's back-off
    assert counted(metrics.INSUFFICIENT_RESOURCES, backend="b1", verdict="coded_refusal") == before + asked
    assert asked
    assert story.wishes(uuid) == {}
    row = story.row(uuid)
    assert (row.phase, row.reason) == ("queued", "capacity")
    assert not Placement.objects.exists()
    story.serve("b1", allocated=8)
    story.serve("b2", allocated=0)
    Operation.objects.update(settled_at=timezone.now() - timedelta(seconds=2))
    make_due(Lease)
    story.look()
    story.push()
    assert story.backends["b2"].routes(uuid) == ["provision"]


def test_a_close_that_two_listeners_heard_is_one_teardown_repeated_until_it_is_done(story, run_in_threads):
    """LC-12"""
    uuid = story.activated()
    story.backends["b1"].script["deprovision"].extend([(500, b"{}"), (500, b"{}")])
    story.chain.close_lease(str(uuid))
    run_in_threads(2, lambda: story.hear(uuid, EventType.CLOSED))
    story.settle()
    assert Teardown.objects.get().state == "open"
    for _ in range(2):
        make_due(Teardown)
        story.settle()
    assert Teardown.objects.get().state == "done"
    assert story.backends["b1"].routes(uuid) == ["provision", *["deprovision"] * 3]
    assert story.row(uuid).phase == "ended"


def test_two_leases_of_one_transaction_are_both_handled(story):
    """LC-14"""
    old, new = story.activated(), story.create(news=False)
    story.chain.close_lease(str(old))
    provider, height = UUID(story.chain.provider_uuid), story.chain.height
    store_events(
        [
            LeaseEvent(EventType.CREATED, new, provider, "t", height, "ABC"),
            LeaseEvent(EventType.CLOSED, old, provider, "t", height, "ABC"),
        ]
    )
    story.settle()
    assert story.backends["b1"].routes(new) == ["provision"]
    assert story.backends["b1"].routes(old) == ["provision", "deprovision"]


def test_a_close_event_is_not_believed_against_the_chain(story):
    """LC-15"""
    uuid = story.activated()
    told = story.events(uuid)
    story.hear(uuid, EventType.CLOSED)
    story.settle()
    assert not Teardown.objects.exists()
    assert story.wishes(uuid) == {"ack": "done"}
    assert story.backends["b1"].routes(uuid) == ["provision"]
    assert story.events(uuid) == told
    assert Placement.objects.get().status == "confirmed"
    assert story.row(uuid).phase == "active"
