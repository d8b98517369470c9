"""Payloads of leases: sent as uploaded or not at all, and nothing ends for the lack of one."""

from __future__ import annotations

import base64
import hashlib
from datetime import timedelta

import pytest
from django.db import transaction
from django.utils import timezone

from fred import metrics
from leases import payload_versions, payloads
from leases.models import Lease, Payload
from leases.status import LeaseState
from placements.models import Operation, Placement, Teardown
from reconciliation import facts
from reconciliation.act import Decided, act
from reconciliation.decisions import Decision, StartProvision
from tests.factories.leases import LeaseFactory
from tests.reconciliation.chains import lease
from tests.reconciliation.story import ROWS

pytestmark = ROWS
BODY = b"services: {}"
HASH = hashlib.sha256(BODY).digest()


def corrupt(uuid):
    """The stored bytes rot; what was recorded of them stays."""
    assert Payload.objects.filter(lease_id=uuid).update(body=b"services: {x}")


def test_of_two_uploads_at_one_moment_one_is_kept_and_provisioned_once(story, run_in_threads):
    """LC-16"""
    uuid = story.create(meta_hash=HASH)
    story.settle()
    assert sorted(run_in_threads(2, lambda: payloads.store(uuid, BODY, expected=HASH))) == [False, True]
    story.settle()
    (seen,) = story.backends["b1"].seen
    assert base64.b64decode(seen.body["payload"]) == BODY
    assert seen.body["payload_hash"] == HASH.hex()
    assert Operation.objects.count() == 1


def test_a_payload_that_rotted_before_it_was_sent_is_rejected(story):
    """LC-17"""
    uuid = story.create(meta_hash=HASH)
    payloads.store(uuid, BODY, expected=HASH)
    corrupt(uuid)
    story.settle()
    assert story.state(uuid) is LeaseState.REJECTED
    assert story.lease_on_chain(uuid).rejection_reason == "payload corrupted"
    assert story.events(uuid) == [("failed", "payload corrupted")]
    assert Payload.objects.get().delete_after is not None
    assert story.backends["b1"].seen == []


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        pytest.param(corrupt, "payload_corrupt", id="LC-18 rotten"),
        pytest.param(
            lambda uuid: Payload.objects.filter(lease_id=uuid).delete(), "payload_missing", id="LC-24 missing"
        ),
    ],
)
def test_an_active_lease_is_never_closed_for_its_payload(story, harm, reason):
    """LC-18, LC-24: its backend lost it, and it cannot be made again"""
    uuid = story.create(meta_hash=HASH)
    payloads.store(uuid, BODY, expected=HASH)
    story.made(uuid)
    story.report("success", uuid)
    story.settle()
    harm(uuid)
    kept = Payload.objects.count()
    story.lists("b1")
    story.lists("b2")
    for _ in range(2):
        story.sweep()
        story.settle()
    row = story.row(uuid)
    assert (row.phase, row.reason) == ("degraded", reason)
    assert row.due_at is not None
    assert story.state(uuid) is LeaseState.ACTIVE
    assert story.wishes(uuid) == {"ack": "done"}
    assert Payload.objects.filter(delete_after=None).count() == kept
    assert story.backends["b1"].routes(uuid) == ["provision"]
    assert Placement.objects.get().backend_id == "b1"


@pytest.mark.parametrize("stored", [None, LeaseState.PENDING, LeaseState.ACTIVE], ids=["unread", "PENDING", "ACTIVE"])
def test_a_payload_of_a_lease_that_the_chain_does_not_know_stays(looker, chain, trusted, stored):
    """LC-23"""
    one = lease()
    if stored is not None:
        LeaseFactory(uuid=one.uuid, chain_state=stored, news_height=50, meta_hash=HASH)
    payloads.store(one.uuid, BODY, expected=HASH)
    looker.at_due_leases()
    row = Lease.objects.get()
    assert (row.reason, row.chain_state) == ("chain_unknown", stored)
    assert row.due_at is not None, "it is looked at again"
    assert Payload.objects.get().delete_after is None
    assert not Operation.objects.exists()
    assert not Teardown.objects.exists()


def test_a_payload_goes_a_while_after_its_lease(story):
    """LC-96, LC-135: kept for an hour, so that a wrong reading can be corrected"""
    uuid = story.create(meta_hash=HASH)
    payloads.store(uuid, BODY, expected=HASH)
    story.made(uuid)
    story.report("success", uuid)
    story.settle()
    assert Payload.objects.get().delete_after is None
    story.close(uuid)
    story.settle()
    left = Payload.objects.get().delete_after - timezone.now()
    assert timedelta(minutes=59) < left <= timedelta(hours=1)


def started(story, uuid):
    """What b1 is sent when this lease is given to it, as a look would give it."""
    known, _ = facts.gather({uuid: story.row(uuid).epoch}, story.looker.sources)
    with transaction.atomic():
        act([Decided(known[uuid], Decision(StartProvision("b1")), story.row(uuid).epoch)])
    story.push()
    body = story.backends["b1"].seen[-1].body
    return base64.b64decode(body["payload"]), body["payload_hash"]


def test_what_an_update_put_in_force_is_what_a_provision_sends(story):
    """LC-19: it is held to its own hash, not to the one that the lease announced."""
    uuid = story.create(meta_hash=HASH)
    payloads.store(uuid, BODY, expected=HASH)
    story.made(uuid)
    story.report("success", uuid)
    story.settle()
    newer = b"services: {web: {}}"
    with transaction.atomic():
        version = payload_versions.propose(uuid, newer)
        payload_versions.promote([version])
        payload_versions.confirm([version])
    assert started(story, uuid) == (newer, hashlib.sha256(newer).hexdigest())
    assert story.state(uuid) is LeaseState.ACTIVE


def imported(uuid, body):
    """A payload from elsewhere, of which no hash was recorded."""
    Payload.objects.create(lease_id=uuid, body=body, sha256=b"")


def test_a_payload_without_a_hash_of_its_own_is_sent_if_it_is_what_the_lease_announced(story):
    """LC-20"""
    uuid = story.create(meta_hash=HASH)
    imported(uuid, BODY)
    story.settle()
    body = story.backends["b1"].seen[-1].body
    assert (base64.b64decode(body["payload"]), body["payload_hash"]) == (BODY, HASH.hex())


def test_a_payload_without_a_hash_that_is_something_else_is_neither_sent_nor_a_reason_to_close(story):
    """LC-20"""
    uuid = story.create(meta_hash=HASH)
    story.settle()
    story.chain.ack_leases([str(uuid)])
    imported(uuid, b"something else")
    story.forget_silence()
    for name in ("b1", "b2"):
        story.lists(name)
    story.sweep()
    story.settle()
    assert (story.row(uuid).phase, story.row(uuid).reason) == ("degraded", "payload_corrupt")
    assert "provision" not in story.backends["b1"].routes()
    assert story.state(uuid) is LeaseState.ACTIVE
    assert Payload.objects.get().delete_after is None


@pytest.mark.parametrize("state", ["PENDING", "ACTIVE"])
def test_a_recorded_hash_that_is_none_is_an_error_of_reading_and_ends_nothing(story, state):
    """LC-21: 31 bytes"""
    uuid = story.create(meta_hash=HASH)
    story.settle()
    Payload.objects.create(lease_id=uuid, body=BODY, sha256=HASH[:31])
    if state == "ACTIVE":
        story.chain.ack_leases([str(uuid)])
        for name in ("b1", "b2"):
            story.lists(name)
        story.sweep()
    story.forget_silence()
    story.look()
    lease = story.row(uuid)
    assert (lease.reason, story.state(uuid).name) == ("payload_unreadable", state)
    assert lease.phase == ("queued" if state == "PENDING" else "degraded")
    counted = metrics.RECONCILER_ACTIONS.labels("lease_error")._value
    before = counted.get()
    story.sweep()
    assert counted.get() == before + 1
    assert "provision" not in story.backends["b1"].routes()
    assert Payload.objects.get().delete_after is None
