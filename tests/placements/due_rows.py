"""Operations that are due, in doubt or handed over, and waiting for what becomes of them."""

import time
from datetime import timedelta

from django.conf import settings
from django.utils import timezone

from backends import targets
from placements.pushes import Claimed
from placements.status import OperationState
from tests.factories.placements import OperationFactory
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


def is_put_off(row, seconds=0.8):
    """Whether its next push is at least so much later than it was made, however late it is by now."""
    return row.due_at > row.created_at + timedelta(seconds=seconds)


def until(row, **fields):
    """Wait until the stored row has these values; return it."""

    def there():
        row.refresh_from_db()
        return all(getattr(row, name) == value for name, value in fields.items())

    wait_until(there, message=f"{row} with {fields}")
    return row


def handed(**fields):
    """An operation that was inserted in doubt and claimed, and its claim."""
    operation = in_doubt(due_at=timezone.now() + timedelta(seconds=5), epoch=1, **fields)
    return operation, Claimed(operation.pk, 1, operation.backend_id, time.monotonic())


def targets_to(port):
    """Point the configured backend to this port of loopback."""
    (config,) = settings.FRED.backends
    moved = config.model_copy(update={"url": f"http://127.0.0.1:{port}"})
    settings.FRED = settings.FRED.model_copy(update={"backends": (moved,)})
    targets.forget()
