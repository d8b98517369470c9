"""Fenced and drained backends: nothing is sent, nothing is concluded, everything goes on afterwards."""

from __future__ import annotations

import pytest
from django.conf import settings
from django.db.models.functions import Now

from backends import targets
from backends.models import Backend
from fred import metrics, readings
from leases.models import Lease
from leases.status import LeaseState
from placements.models import Operation, Placement, Teardown
from reconciliation import operators, probes
from reconciliation.models import SweepBackend
from reconciliation.operators import Operator
from tests.reconciliation.story import ROWS, age, counted
from tests.waiting import wait_until

ME = Operator("me@host", "command")


@pytest.fixture
def keyed(story):
    """Both backends have a key of their own, as a fence demands."""
    entries = tuple(
        one.model_copy(update={"hmac_secret": type(one.hmac_secret)(one.name * 20)}) for one in settings.FRED.backends
    )
    settings.FRED = settings.FRED.model_copy(update={"backends": entries})
    targets.forget()
    return story


def act(verb, name="b1"):
    getattr(operators, verb)(name, reason="a test", operator=ME)


@ROWS
def test_a_fenced_backend_gets_no_request_of_any_kind_and_its_leases_are_left_alone(keyed):
    """LC-122, BC P17"""
    active = keyed.activated()
    keyed.lists("b1", {"lease_uuid": active, "status": "ready"})
    keyed.lists("b2")
    keyed.serve("b2", allocated=0)
    keyed.sweep()
    act("fence")
    before = len(keyed.backends["b1"].seen)
    fetches = counted(metrics.BACKEND_FETCHES, backend="b1", outcome="fenced")
    for _ in range(3):
        keyed.sweep()
        Lease.objects.update(due_at=Now())
        keyed.settle()
        assert probes.probe_all()["backend:b1"].error == 'backend "b1" is fenced'
    assert len(keyed.backends["b1"].seen) == before
    assert counted(metrics.BACKEND_FETCHES, backend="b1", outcome="fenced") == fetches + 3
    assert SweepBackend.objects.filter(backend="b1", provisions="fenced", complete=False).count() == 3
    assert keyed.state(active) is LeaseState.ACTIVE
    assert Placement.objects.get(lease_id=active).backend_id == "b1"
    assert (keyed.row(active).phase, keyed.row(active).reason) == ("active", "backend_fenced")
    assert readings.of_the_database()["fred_backend_fenced"][("b1",)] == 1
    assert keyed.wishes(active) == {"ack": "done"}


@ROWS
def test_a_close_at_a_fenced_backend_is_put_aside_and_done_after_the_fence(keyed):
    """LC-113"""
    uuid = keyed.activated()
    act("fence")
    parked = counted(metrics.DEFERRED_CLOSES, outcome="parked", reason="backend_fenced")
    keyed.close(uuid)
    keyed.settle()
    assert Teardown.objects.get().state == "parked"
    assert keyed.row(uuid).reason == "backend_fenced"
    assert counted(metrics.DEFERRED_CLOSES, outcome="parked", reason="backend_fenced") == parked + 1
    assert "deprovision" not in keyed.backends["b1"].routes(uuid)
    assert readings.of_the_database()["fred_provisioner_deferred_closes_pending"] == {(): 1}
    act("unfence")
    keyed.settle()
    assert Teardown.objects.get().state == "done"
    assert keyed.backends["b1"].routes(uuid).count("deprovision") == 1


@ROWS
def test_what_was_accepted_before_the_fence_is_neither_rejected_nor_sent_elsewhere(keyed):
    """LC-18.6: kept, whatever time passes; the callback after the fence settles it"""
    keyed.serve("b2", allocated=0)
    Backend.objects.filter(name="b2").update(skus=[])
    uuid = keyed.made()
    keyed.serve("b2", allocated=0)
    act("fence")
    age(keyed.operation(uuid), 100_000)
    keyed.settle()
    operation = keyed.operation(uuid)
    assert (operation.state, operation.backend_id) == ("accepted", "b1")
    assert (keyed.row(uuid).reason, keyed.wishes(uuid)) == ("backend_fenced", {})
    assert keyed.state(uuid) is LeaseState.PENDING
    assert keyed.backends["b2"].routes(uuid) == []
    act("unfence")
    keyed.report("success", uuid)
    keyed.settle()
    assert keyed.state(uuid) is LeaseState.ACTIVE


@ROWS
def test_what_was_never_sent_may_go_elsewhere(keyed):
    """What is only reserved at a backend that is fenced now moves to another that answers."""
    keyed.lists("b1")
    keyed.lists("b2")
    keyed.sweep()
    uuid = keyed.create()
    keyed.look()
    assert keyed.operation(uuid).backend_id == "b1"
    keyed.serve("b2", allocated=0)
    act("fence")
    keyed.look()
    assert keyed.operation(uuid).state == "ended"
    wait_until(lambda: keyed.settle() or keyed.operation(uuid).backend_id == "b2")  # a second of back-off
    assert keyed.backends["b1"].routes(uuid) == []
    assert keyed.backends["b2"].routes(uuid) == ["provision"]


@ROWS
def test_a_sku_that_only_fenced_backends_serve_gets_no_default(keyed):
    """LC-33, BC-68"""
    Backend.objects.filter(name="b2").update(is_default=True)
    act("fence")
    uuid = keyed.create()
    keyed.settle()
    assert (keyed.row(uuid).phase, keyed.row(uuid).reason) == ("queued", "no_backend")
    assert not Operation.objects.exists()
    act("unfence")
    keyed.settle()
    assert keyed.operation(uuid).backend_id == "b1"


@ROWS
def test_nobody_lists_the_sku_and_the_default_is_fenced(keyed):
    """LC-32"""
    Backend.objects.update(skus=[], is_default=False)
    Backend.objects.filter(name="b2").update(is_default=True, fenced=True)
    uuid = keyed.create()
    keyed.settle()
    assert keyed.row(uuid).reason == "no_backend"
    act("unfence", "b2")
    keyed.settle()
    assert keyed.operation(uuid).backend_id == "b2"


@ROWS
def test_a_drained_backend_gets_no_new_leases_and_keeps_those_it_has(keyed):
    """OP 7.4"""
    mine = keyed.activated()
    act("drain")
    new = keyed.create()
    keyed.settle()
    assert (keyed.row(new).phase, keyed.row(new).reason) == ("queued", "no_backend")
    keyed.close(mine)
    keyed.settle()
    assert Teardown.objects.get(lease_id=mine).state == "done"
    act("undrain")
    keyed.settle()
    assert keyed.operation(new).backend_id == "b1"
