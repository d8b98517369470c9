"""A look that does something at a backend's side says so of its lease: older inventory walks prove nothing then."""

from __future__ import annotations

from datetime import timedelta

import pytest

from fred import due
from leases import wake
from leases.models import ChainAction, Lease
from leases.status import LeaseState
from placements import transitions
from placements.models import Operation
from placements.status import OperationState
from reconciliation import act, act_sql
from reconciliation import decisions as d
from tests.reconciliation.chains import lease

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("trusted")]


def look(looker, uuid, *, height=None) -> bool:
    """Look at the lease once; return whether that touched it."""
    before = Lease.objects.filter(pk=uuid).values_list("touched_at", flat=True).first()
    with wake.news_about([uuid]) as news:
        news.wake({uuid: height})
    looker.at_due_leases()
    return Lease.objects.get(pk=uuid).touched_at != before


def test_acts_at_a_backends_side_touch_and_wishes_for_the_chain_do_not(looker, chain):
    one = lease()
    chain.add(one)
    assert look(looker, one.uuid, height=90)
    operation = Operation.objects.get()
    transitions.move({operation.id: None}, OperationState.IN_DOUBT)
    transitions.move({operation.id: None}, OperationState.SUCCEEDED)
    assert not look(looker, one.uuid)
    chain.move(one.uuid, LeaseState.ACTIVE)
    ChainAction.objects.update(state="done", due_at=None)
    assert look(looker, one.uuid, height=chain.height)
    chain.move(one.uuid, LeaseState.CLOSED)
    assert look(looker, one.uuid, height=chain.height)


def test_a_finish_touches_only_the_leases_it_is_told_of_and_still_holds(looker, chain):
    uuids = sorted(lease().uuid for _ in range(3))
    with wake.news_about(uuids) as news:
        news.wake(uuids)
    epochs = {claim.pk: claim.epoch for claim in due.claim(Lease)}
    touched, untouched, lost = uuids
    epochs[lost] -= 1
    rows = [(uuid, epochs[uuid], None, "", timedelta(hours=1), None, uuid != untouched) for uuid in uuids]
    assert act_sql.finish(rows).keys() == {touched, untouched}
    assert set(Lease.objects.exclude(touched_at=None).values_list("pk", flat=True)) == {touched}


def test_acts_that_only_write_wishes_or_tell_touch_nothing():
    quiet = {d.Acknowledge, d.Adopt, d.Reject, d.Close, d.DropActions, d.ParkTeardown, d.ResumeTeardown, d.Announce}
    assert set(act.ACTS) - set(act.TOUCHES) == quiet | {d.PushCommand}
