"""What subscribers of the new lease are told of a restore that fails."""

import hashlib

from leases.models import ChainAction, Lease, StatusEvent
from leases.status import LeaseState
from placements import callbacks
from placements.callback_request import Selector, VerifiedCallback
from reconciliation.look import Looker
from reconciliation.sources import Sources
from tests.tenants_api.restores.restoring import ROWS

pytestmark = ROWS
TEXT = "volume of service web could not be attached"


def failed_callback(operation):
    return VerifiedCallback(
        lease_uuid=operation.lease_id,
        selector=Selector.OPERATION,
        selector_id=operation.pk,
        status="failed",
        error=TEXT,
        retained=False,
        storage_id=None,
        backend_label="docker-1",
        maintenance_id=None,
        maintenance_admitted_at=None,
        body_sha256=hashlib.sha256(TEXT.encode()).digest(),
    )


def test_ta90_a_restore_that_fails_is_told_with_the_words_of_its_backend(restoring):
    source, target = restoring.source(), restoring.lease()
    assert restoring.ask(target, source).status == 202
    restoring.chain.add(target.pk, state=LeaseState.PENDING, items=())
    operation = restoring.operation(target)
    assert callbacks.apply([failed_callback(operation)]) == set()
    looker = Looker(sources=Sources(restoring.chain), pushes=False)
    looker.at_due_leases()
    assert told(target) == [("restarting", "")]  # what is not decided on chain is not told
    rejected(restoring, target)
    looker.at_due_leases()
    assert told(target)[:2] == [("restarting", ""), ("failed", TEXT)]
    assert told(source) == []


def rejected(restoring, target):
    """A lane gets the rejection included."""
    assert ChainAction.objects.filter(lease=target, verb="reject", state="queued").update(state="done", due_at=None)
    restoring.chain.add(target.pk, state=LeaseState.REJECTED, height=200)
    Lease.objects.filter(pk=target.pk).update(
        chain_state=LeaseState.REJECTED, chain_height=200, due_at=target.first_seen_at
    )


def told(lease):
    return list(StatusEvent.objects.filter(lease=lease).order_by("id").values_list("status", "error"))
