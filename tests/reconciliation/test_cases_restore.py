"""Restores on a real chain: from an ended lease into a new one, at the backend that kept the data, and nowhere else."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import transaction
from django.db.models.functions import Now

from fred import metrics
from leases import sql
from leases.models import Lease, StatusEvent
from leases.status import LeaseState
from placements import transitions
from placements.models import Operation, Placement, Retention
from placements.status import OperationState
from reconciliation import restores
from reconciliation.restores import Obstacle, Wish
from tests.reconciliation.story import ROWS, age, make_due
from tests.scripted_backend import Hang, Reset, row
from tests.waiting import wait_until

pytestmark = ROWS
S = OperationState
HASH = b"\x07" * 32


@pytest.fixture
def source(story):
    """A lease that ran at b1, was closed, and of which b1 keeps the data."""
    story.backends["b1"].always["restore"] = 202, b'{"status":"restoring"}'
    uuid = story.activated()
    story.close(uuid)
    story.settle()
    story.report("deprovisioned", uuid, retained=True)
    story.settle()
    assert story.events(uuid)[-1][0] == "retained"
    story.backends["b1"].seen.clear()
    return uuid


@pytest.fixture
def target(story):
    """A new lease that waits for its payload."""
    uuid = story.create(meta_hash=HASH)
    story.settle()
    assert story.row(uuid).phase == "awaiting_payload"
    return uuid


def wish(story, source, target, **changes):
    """What the tenant asks for."""
    tenant = story.lease_on_chain(target).tenant
    return Wish(**{"operation": uuid4(), "target": target, "source": source, "tenant": tenant, **changes})


def restore(story, source, target, **changes):
    """Admit it, and let the sender push it; its operation as its outcome left it."""
    claim = restores.admit_restore(wish(story, source, target, **changes))
    story.sender.take([claim])
    wait_until(lambda: story.sender.is_idle)
    return story.operation(target)


def read(story, uuid):
    """A request of the tenant reads the lease, which no look has taken yet."""
    found = story.looker.sources.exact([uuid])[uuid]
    with transaction.atomic():
        sql.store_reads([(found.lease, found.height)], exact=True)
    return uuid


def counted(outcome):
    """Provisionings that ended so, by a restore at b1."""
    return metrics.PROVISIONINGS.labels(outcome, "b1", "restore")._value.get()


def test_a_restore_goes_from_the_wish_to_an_active_lease(story, source, target):
    """LC-39, LC-114, TA-71"""
    before = counted("success")
    operation = restore(story, source, target, request_id="r-1")
    assert (operation.state, operation.backend_id) == (S.ACCEPTED, "b1")
    story.settle()
    assert story.backends["b1"].routes() == ["restore"]
    assert story.backends["b1"].seen[0].headers["x-request-id"] == "r-1"
    story.report("success", target)
    story.settle()
    assert story.state(target) is LeaseState.ACTIVE
    assert story.events(target) == [("restarting", ""), ("ready", "")]
    assert list(StatusEvent.objects.filter(lease_id=target).values_list("request_id", flat=True)) == ["r-1", ""]
    assert counted("success") == before + 1
    placed = Placement.objects.get(lease_id=target)
    assert (placed.backend_id, placed.status, placed.lifecycle_id) == ("b1", "confirmed", operation.pk)
    assert Placement.objects.get(lease_id=source).status == "confirmed"
    assert story.included("MsgAcknowledgeLease", target) == 1
    assert story.backends["b2"].seen == []


def test_the_callback_may_come_before_the_answer(story, source, target):
    """The lease is told once that it restarts, and that before it is ready."""
    hang = Hang()
    story.backends["b1"].script["restore"].append(hang)
    claim = restores.admit_restore(wish(story, source, target))
    story.sender.take([claim])
    wait_until(lambda: story.backends["b1"].routes() == ["restore"])
    story.report("success", target)
    hang.release()
    wait_until(lambda: story.sender.is_idle)
    story.settle()
    assert story.state(target) is LeaseState.ACTIVE
    assert [status for status, _ in story.events(target)] == ["restarting", "ready"]


def test_a_restore_that_fails_after_it_was_taken_ends_its_lease(story, source, target):
    """It is like a provision from then on; what is kept of the source is not touched."""
    restore(story, source, target)
    story.report("failed", target, error="volume broken")
    story.settle()
    assert story.state(target) is LeaseState.REJECTED
    assert story.lease_on_chain(target).rejection_reason == "volume broken"
    assert story.events(target)[:2] == [("restarting", ""), ("failed", "volume broken")]
    assert "deprovision" not in story.backends["b1"].routes(source)


@pytest.mark.parametrize(
    ("answer", "refusal"),
    [
        ((422, b""), "not_retained"),
        ((409, b'{"error":"reaping"}'), "invalid_state"),
    ],
)
def test_what_a_backend_refused_says_nothing_against_the_lease(story, source, target, answer, refusal):
    """LC-117: also when nobody waits for the answer any more, and only a look is left to settle it."""
    story.backends["b1"].script["restore"].append(answer)
    operation = restore(story, source, target)
    assert (operation.state, operation.refusal) == (S.REFUSED, refusal)
    story.settle()
    assert story.state(target) is LeaseState.PENDING
    assert story.row(target).phase == "awaiting_payload"
    assert not Operation.objects.filter(lease_id=target, settled_at=None).exists()
    assert not Placement.objects.filter(lease_id=target).exists()
    assert story.events(target) == []
    assert restore(story, source, target).state == S.ACCEPTED


def test_a_lease_without_a_payload_to_wait_for_is_provisioned_after_a_refusal(story, source):
    """The tenant asked for a lease, and gets one: nothing of the restore is left that speaks against it."""
    target = read(story, story.create())
    story.backends["b1"].script["restore"].append((422, b""))
    assert restore(story, source, target).state == S.REFUSED
    story.settle()
    Operation.objects.filter(kind="restore").update(settled_at=Now() - timedelta(seconds=5))
    make_due(Lease, pk=target)
    story.settle()
    assert [one.kind for one in Operation.objects.filter(lease_id=target).order_by("created_at")] == [
        "restore",
        "provision",
    ]


def test_an_unknown_outcome_keeps_the_lease_from_every_other_backend(story, source, target):
    """LC-117, LC-118: after a silence the same restore is sent again, to the same backend, never a provision."""
    story.serve("b2")
    story.backends["b1"].script["restore"].append(Reset)
    operation = restore(story, source, target)
    assert operation.state == S.IN_DOUBT
    Lease.objects.update(due_at=Now())
    story.look()
    assert story.operation(target).pk == operation.pk
    make_due(Operation, pk=operation.pk)
    story.settle()
    assert story.backends["b1"].routes(target) == ["restore", "read", "restore"]
    first, second = (one.body for one in story.backends["b1"].seen if one.route == "restore")
    assert first == second
    assert story.operation(target).state == S.ACCEPTED
    assert story.events(target) == [("restarting", "")]
    assert story.backends["b2"].seen == []


def test_a_killed_process_leaves_a_restore_that_a_worker_sends(story, source, target):
    """LC-118: killed after the commit, before the call. Its claim ends; the row is asked for, then sent."""
    claim = restores.admit_restore(wish(story, source, target))
    make_due(Operation, pk=claim.id)
    story.settle()
    assert story.backends["b1"].routes(target) == ["read", "restore"]
    assert story.operation(target).state == S.ACCEPTED
    assert story.operation(target).pk == claim.id


def test_a_repeat_that_meets_its_own_first_restore_keeps_the_attempt(story, source, target):
    """The backend is busy with the first, which is proven by a read after the answer."""
    story.backends["b1"].script["restore"].extend([Reset, (409, b'{"error":"source is being restored"}')])
    story.backends["b1"].script["read", str(target)].extend([(404, b""), row(target, status="restarting")])
    operation = restore(story, source, target)
    make_due(Operation, pk=operation.pk)
    story.push()
    assert story.operation(target).state == S.IN_DOUBT
    story.backends["b1"].always["read"] = row(target, status="ready")
    Lease.objects.update(due_at=Now())
    story.settle()
    assert story.state(target) is LeaseState.ACTIVE


def test_a_restore_without_callback_is_read_at_its_time_limit(story, source, target):
    """The time limit of callbacks holds for restores too: LC-9.5"""
    restore(story, source, target)
    age(story.operation(target), 700)
    story.backends["b1"].always["read"] = row(target, status="ready")
    story.settle()
    assert story.state(target) is LeaseState.ACTIVE


def test_a_restore_and_a_provision_of_one_lease_one_of_them_wins(story, source, run_in_threads):
    """A lease that waits for nothing: a look and the tenant's wish come at the same moment."""
    for _ in range(3):
        target = read(story, story.create())
        asked = wish(story, source, target)
        calls = [story.look, lambda asked=asked: restores.admit_restore(asked)]
        run_in_threads(2, lambda calls=calls: calls.pop()())
        story.look()
        (operation,) = Operation.objects.filter(lease_id=target)
        again = restores.admit_restore(wish(story, source, target))
        assert again is Obstacle.TARGET_BUSY
        transitions.move({operation.pk: None}, S.ENDED)
        Operation.objects.filter(pk=operation.pk).update(settled_at=Now())


def test_closing_the_new_lease_removes_what_was_restored(story, source, target):
    """The removal goes to the backend of the restore; the source's own removal is over."""
    restore(story, source, target)
    story.report("success", target)
    story.settle()
    story.close(target)
    story.settle()
    assert story.backends["b1"].routes(target)[-1] == "deprovision"
    assert "deprovision" not in story.backends["b1"].routes(source)


def test_a_lease_that_ends_while_its_restore_is_on_the_wire_is_torn_down_after_the_answer(story, source, target):
    """As with a provision: not before it is known what arrived."""
    hang = Hang()
    story.backends["b1"].script["restore"].append(hang)
    claim = restores.admit_restore(wish(story, source, target))
    story.sender.take([claim])
    wait_until(lambda: story.backends["b1"].routes() == ["restore"])
    story.chain.cancel_lease(str(target))
    Lease.objects.filter(pk=target).update(news_height=story.chain.height, due_at=Now())
    story.look()
    assert story.row(target).reason == "provision_on_wire"
    assert "deprovision" not in story.backends["b1"].routes()
    hang.release()
    wait_until(lambda: story.sender.is_idle)
    make_due(Lease, pk=target)
    story.settle()
    assert story.backends["b1"].routes(target) == ["restore", "deprovision"]


def test_the_source_stays_placed_while_its_data_is_kept(story, source, target):
    """LC-114: sweeps that list the data leave the source's placement alone, before and after the restore."""
    for name in ("b1", "b2"):
        story.lists(name)
    story.backends["b1"].always["retentions"] = 200, json.dumps({"retentions": [{"lease_uuid": str(source)}]}).encode()
    story.sweep()
    assert Retention.objects.filter(lease_uuid=source).exists()
    restore(story, source, target)
    story.sweep()
    story.settle()
    assert Placement.objects.get(lease_id=source).backend_id == "b1"
    assert story.backends["b1"].routes(source) == []


def test_the_claim_of_an_admission_is_told_from_before_its_statement(story, source, target):
    """A push starts only for so long after it."""
    before = time.monotonic()
    claim = restores.admit_restore(wish(story, source, target))
    assert before <= claim.claimed_at <= time.monotonic()
    operation = story.operation(target)
    assert (operation.epoch, operation.dispatch_count, operation.state) == (claim.epoch, 1, S.IN_DOUBT)
    assert operation.due_at is not None
    assert operation.on_wire_until > operation.due_at
    assert story.row(target).due_at is not None
