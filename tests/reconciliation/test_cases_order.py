"""News that overtakes other news: whatever comes first, all of it is told and nothing is contradicted."""

from __future__ import annotations

import hashlib

from django.utils import timezone

from fred.conf import BackendConfig
from leases import lanes, payloads
from leases.chain.events import EventType
from leases.models import ChainAction, Payload
from leases.status import LeaseState
from placements.models import Callback, Operation
from tests.factories.backends import BackendFactory
from tests.factories.placements import PlacementFactory
from tests.reconciliation.story import ROWS, make_due

pytestmark = ROWS
BODY = b"services: {}"


def test_a_failure_reported_before_the_success_was_acknowledged_is_told_after_it(story):
    uuid = story.made()
    story.report("success", uuid)
    story.look()
    story.report("failed", uuid, error="it died")
    story.settle()
    assert story.state(uuid) is LeaseState.ACTIVE
    assert story.events(uuid) == [("provisioning", ""), ("ready", ""), ("failed", "it died")]
    assert story.row(uuid).phase == "degraded"
    assert not Callback.objects.filter(applied_at=None).exists()


def test_our_rejection_is_told_with_its_reason_also_when_its_event_comes_before_the_lane_knows(story):
    uuid = story.create(meta_hash=hashlib.sha256(BODY).digest())
    payloads.store(uuid, BODY, expected=hashlib.sha256(BODY).digest())
    Payload.objects.update(body=b"x")
    story.look()
    assert lanes.send_next()
    assert story.state(uuid) is LeaseState.REJECTED
    story.hear(uuid, EventType.REJECTED)
    story.look()
    story.settle()
    assert story.events(uuid) == [("failed", "payload corrupted")]


def test_a_tenants_cancel_before_our_rejection_is_told_as_such(story):
    uuid = story.create(meta_hash=hashlib.sha256(BODY).digest())
    payloads.store(uuid, BODY, expected=hashlib.sha256(BODY).digest())
    Payload.objects.update(body=b"x")
    story.look()
    assert story.wishes(uuid) == {"reject": "queued"}
    story.chain.cancel_lease(str(uuid))
    story.hear(uuid, EventType.CANCELLED)
    story.settle()
    assert story.events(uuid) == [("failed", "lease rejected")]
    assert story.included("MsgRejectLease", uuid) == 0


def test_a_rejection_that_waits_falls_when_the_backend_turns_out_to_have_the_lease(story):
    story.lists("b2")
    uuid = story.create(news=False)
    story.lists("b1", {"lease_uuid": uuid, "status": "failed"})
    story.sweep()
    story.look()
    assert story.wishes(uuid) == {"reject": "queued"}
    story.lists("b1", {"lease_uuid": uuid, "status": "ready"})
    story.sweep()
    story.look()
    assert story.wishes(uuid) == {"reject": "moot", "ack": "queued"}
    story.settle()
    assert story.state(uuid) is LeaseState.ACTIVE


def test_a_lease_bound_to_its_owner_keeps_its_operation_while_the_owner_cannot_be_reached(story, settings):
    away = BackendConfig(name="away", url="http://127.0.0.1:9")
    settings.FRED = settings.FRED.model_copy(update={"backends": (*settings.FRED.backends, away)})
    BackendFactory(name=away.name, url=away.url, skus=[story.chain.sku_uuid])
    uuid = story.create()
    PlacementFactory(lease_id=uuid, backend_id="away", set_at=timezone.now())
    story.look()
    for _ in range(3):
        make_due(Operation)
        story.push()
        story.look()
    operation = Operation.objects.get()
    assert (operation.backend_id, operation.refusal, operation.settled_at) == ("away", "not_sent", None)
    assert not ChainAction.objects.exists()
    assert story.backends["b1"].seen == []
