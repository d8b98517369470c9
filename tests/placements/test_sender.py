"""What is due reaches its backend once, in time, and comes back with an outcome; or it stays in doubt."""

import time
import uuid
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from leases.models import Lease
from placements.models import Operation, Teardown
from placements.pushes import Claimed
from placements.status import OperationState
from tests.factories.leases import LeaseFactory, PayloadFactory
from tests.factories.placements import OperationFactory
from tests.scripted_backend import Broken, Hang, Reset, row
from tests.waiting import wait_until

S = OperationState


def due(**fields):
    """An operation that waits for its first push."""
    now = timezone.now()
    return OperationFactory(
        **{"state": S.RESERVED, "due_at": now, "valid_until": now + timedelta(seconds=60), **fields}
    )


def in_doubt(**fields):
    """An operation that may have been pushed before."""
    return due(**{"state": S.IN_DOUBT, "first_dispatched_at": timezone.now(), "dispatch_count": 1, **fields})


def until(row, **fields):
    """Wait until the stored row has these values; return it."""

    def there():
        row.refresh_from_db()
        return all(getattr(row, name) == value for name, value in fields.items())

    wait_until(there, message=f"{row} with {fields}")
    return row


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
