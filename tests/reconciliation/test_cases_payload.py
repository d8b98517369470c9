"""Payloads of leases: sent as uploaded or not at all, and nothing ends for the lack of one."""

from __future__ import annotations

import base64
import hashlib
from datetime import timedelta

import pytest
from django.utils import timezone

from leases import payloads
from leases.models import Lease, Payload
from leases.status import LeaseState
from placements.models import Operation, Placement, Teardown
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
