"""The sweep stores what was read to the end and wakes what differs; silence and half a list prove nothing."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from uuid import uuid4

import pytest
from django.db import connection, transaction
from django.utils.timezone import now

from backends.contract import BackendUnavailable, ProvisionInfo, ProvisionList, ProvisionStatus, RetentionList
from fred import metrics
from leases.models import Lease
from leases.status import LeaseState
from placements.models import Operation, Placement, Provision, Teardown
from reconciliation import sweep as sweep_module
from reconciliation.models import Sweep, SweepBackend
from reconciliation.sweep import sweep
from tests.factories.leases import LeaseFactory
from tests.factories.placements import CommandFactory, OperationFactory, PlacementFactory
from tests.reconciliation.chains import lease
from tests.reconciliation.story import counted

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("trusted")]


class Listing:
    """What a backend lists, or what its lists raise instead."""

    target = SimpleNamespace(name="mock-1")

    def __init__(self):
        self.rows: list[ProvisionInfo] = []
        self.error: str = ""
        self.raises: dict[str, Exception] = {}

    def provisions(self):
        if self.error:
            raise BackendUnavailable(self.error)
        if "provisions" in self.raises:
            raise self.raises["provisions"]
        return ProvisionList(tuple(self.rows), complete=True)

    def retentions(self):
        if "retentions" in self.raises:
            raise self.raises["retentions"]
        return RetentionList((), complete=True)


@pytest.fixture
def listing(monkeypatch):
    one = Listing()
    monkeypatch.setattr(sweep_module.Sources, "backend", lambda self, name: one)
    return one


def row(uuid, status=ProvisionStatus.READY):
    return ProvisionInfo(lease_uuid=uuid, status=status)


def test_leases_that_only_the_chain_lists_get_rows_and_are_due(looker, chain, listing):
    pending, active = lease(), lease(LeaseState.ACTIVE)
    chain.add(pending, active)
    swept = sweep(looker.sources)
    assert swept.complete
    assert set(Lease.objects.filter(due_at__isnull=False).values_list("uuid", flat=True)) == {pending.uuid, active.uuid}
    assert Sweep.objects.get().outcome == "success"


def test_a_second_sweep_finds_nothing_to_wake(looker, chain, listing):
    chain.add(lease())
    sweep(looker.sources)
    Lease.objects.update(due_at=None)
    assert sweep(looker.sources).counts == {"listed": 1}


@pytest.mark.parametrize("state", ["reserved", "in_doubt", "accepted"])
def test_a_lease_at_rest_with_a_command_whose_end_is_not_known_is_due(looker, chain, listing, state):
    chain.add(lease(LeaseState.ACTIVE))
    sweep(looker.sources)
    Lease.objects.update(due_at=None)
    CommandFactory(lease=Lease.objects.get(), state=state)
    assert sweep(looker.sources).counts == {"listed": 1, "unguarded": 1}
    assert Lease.objects.get().due_at is not None


def test_a_stored_live_lease_that_the_chain_does_not_list_is_read_exactly_and_not_judged(looker, chain, listing):
    gone = LeaseFactory(chain_state=LeaseState.ACTIVE, phase="active")
    PlacementFactory(lease=gone)
    chain.height = 200
    chain.add(lease())
    sweep(looker.sources)
    chain.height += 1  # a read of the list's own block would be no newer than the list
    looker.at_due_leases()
    gone.refresh_from_db()
    assert gone.chain_state == LeaseState.ACTIVE
    assert gone.reason == "chain_unknown"
    assert not Teardown.objects.exists()
    assert gone.uuid in chain.exact_reads


def test_a_lease_that_ended_unseen_is_torn_down(looker, chain, listing):
    ended = lease(LeaseState.CLOSED)
    chain.add(ended, lease())
    stored = LeaseFactory(uuid=ended.uuid, chain_state=LeaseState.ACTIVE, phase="active")
    PlacementFactory(lease=stored)
    sweep(looker.sources)
    looker.at_due_leases()
    assert Teardown.objects.get().lease_id == ended.uuid


def test_a_listed_lease_that_has_ended_is_torn_down_where_it_is_listed(looker, chain, listing):
    """LC-90"""
    ended = lease(LeaseState.CLOSED)
    chain.add(ended)
    listing.rows = [row(ended.uuid)]
    sweep(looker.sources)
    looker.at_due_leases()
    teardown = Teardown.objects.get()
    assert (teardown.lease_id, teardown.backend_id) == (ended.uuid, "mock-1")


@pytest.mark.parametrize("state", [None, LeaseState.ACTIVE], ids=["no record", "ACTIVE"])
def test_a_listed_lease_is_never_torn_down_unless_the_chain_says_ended(looker, chain, listing, state):
    """LC-91, LC-92"""
    one = lease(state or LeaseState.ACTIVE)
    if state is not None:
        chain.add(one)
    listing.rows = [row(one.uuid)]
    swept = sweep(looker.sources)
    looker.at_due_leases()
    assert not Teardown.objects.exists()
    assert swept.counts.get("phantoms", 0) == (1 if state is None else 0)


def test_a_silent_chain_ends_nothing(looker, chain, listing):
    """LC-88"""
    stored = LeaseFactory(chain_state=LeaseState.ACTIVE, phase="active")
    listing.rows = [row(stored.uuid), row(uuid4())]
    chain.silent = True
    swept = sweep(looker.sources)
    assert swept.outcome == "error"
    looker.at_due_leases()
    assert not Teardown.objects.exists()
    assert Lease.objects.get(uuid=stored.uuid).chain_state == LeaseState.ACTIVE


def test_a_silent_backend_is_no_evidence(looker, chain, listing):
    """LC-85"""
    active = lease(LeaseState.ACTIVE)
    chain.add(active)
    stored = LeaseFactory(uuid=active.uuid, chain_state=LeaseState.ACTIVE, phase="active")
    PlacementFactory(lease=stored)
    listing.error = "no answer"
    swept = sweep(looker.sources)
    assert (swept.outcome, swept.complete) == ("degraded", False)
    looker.at_due_leases()
    assert not Operation.objects.exists()
    assert not Teardown.objects.exists()
    assert Placement.objects.get().status == "confirmed"
    assert not SweepBackend.objects.get().complete


def test_an_active_lease_missing_from_a_complete_walk_is_degraded_not_closed(looker, chain, listing):
    active = lease(LeaseState.ACTIVE)
    chain.add(active)
    stored = LeaseFactory(uuid=active.uuid, chain_state=LeaseState.ACTIVE, phase="active")
    PlacementFactory(lease=stored)
    sweep(looker.sources)
    looker.at_due_leases()
    stored.refresh_from_db()
    assert (stored.phase, stored.reason) == ("degraded", "missing")
    assert not Operation.objects.exists()
    listing.rows = [row(active.uuid)]
    sweep(looker.sources)
    looker.at_due_leases()
    stored.refresh_from_db()
    assert stored.phase == "active"


def test_a_walk_begun_before_something_changed_for_the_lease_proves_nothing(looker, chain, listing):
    active = lease(LeaseState.ACTIVE)
    chain.add(active)
    stored = LeaseFactory(uuid=active.uuid, chain_state=LeaseState.ACTIVE, phase="active")
    PlacementFactory(lease=stored)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE leases_lease SET touched_at = now() + interval '1 hour'")
    sweep(looker.sources)
    looker.at_due_leases()
    stored.refresh_from_db()
    assert stored.phase == "active"


def test_a_pending_lease_found_ready_is_adopted_and_acknowledged(looker, chain, listing):
    """LC-78"""
    from leases.models import ChainAction

    one = lease()
    chain.add(one)
    listing.rows = [row(one.uuid)]
    sweep(looker.sources)
    looker.at_due_leases()
    action = ChainAction.objects.get()
    assert (action.lease_id, action.verb, action.operation_id) == (one.uuid, "ack", None)
    assert Placement.objects.get().status == "confirmed"
    assert not Operation.objects.exists()


def test_a_lease_twice_in_one_list_makes_the_whole_list_unusable(looker, chain, listing):
    """LC-92"""
    uuid = uuid4()
    listing.rows = [row(uuid), row(uuid)]
    assert not sweep(looker.sources).complete
    assert not Provision.objects.exists()


AWAY, BUG = BackendUnavailable("silent"), KeyError("bug")


@pytest.mark.parametrize(
    ("rows", "raises", "inventory", "fetched", "stage"),
    [
        pytest.param(1, {}, "authoritative", "ok", "", id="whole"),
        pytest.param(2, {}, "untrusted", "error", "", id="one lease twice"),
        pytest.param(1, {"provisions": AWAY}, "unanswered", "error", "", id="silent"),
        pytest.param(1, {"retentions": AWAY}, "provisions_only", "error", "", id="half"),
        pytest.param(1, {"provisions": BUG}, "unanswered", "panic", "fetch_provisions", id="a bug"),
        pytest.param(1, {"retentions": BUG}, "provisions_only", "panic", "fetch_retentions", id="a bug in the second"),
    ],
)
def test_what_became_of_each_backends_lists_is_counted_and_a_bug_ends_no_sweep(
    looker, chain, listing, rows, raises, inventory, fetched, stage
):
    def counts():
        return (
            counted(metrics.BACKEND_INVENTORIES, backend="mock-1", outcome=inventory),
            counted(metrics.BACKEND_FETCHES, backend="mock-1", outcome=fetched),
            counted(metrics.LOOK_CRASHES, stage=stage) if stage else 1,
        )

    listing.rows, listing.raises = [row(uuid4())] * rows, raises
    before = counts()
    swept = sweep(looker.sources)
    assert counts() == (before[0] + 1, before[1] + 1, before[2] + 1 if stage else 1)
    assert (swept.outcome, swept.complete) == (("success", True) if fetched == "ok" else ("degraded", False))
    assert looker.sources.answers("mock-1") is (fetched != "error"), "a bug of ours is no silence of the backend"


def test_only_one_sweep_runs_at_a_time(looker, chain, listing):
    """LC-105"""
    Sweep.objects.create(state="running")
    assert sweep(looker.sources) is None
    assert Sweep.objects.count() == 1


def test_a_live_lease_at_a_backend_that_left_the_configuration_is_an_error_of_each_sweep(looker, chain, listing):
    """LC-36"""
    from backends.models import Backend

    active = lease(LeaseState.ACTIVE)
    chain.add(active)
    Backend.objects.create(name="old-name", url="http://127.0.0.1:3", configured=False)
    stored = LeaseFactory(uuid=active.uuid, chain_state=LeaseState.ACTIVE, phase="active")
    PlacementFactory(lease=stored, backend_id="old-name", backend=None)
    for _ in range(2):
        swept = sweep(looker.sources)
        assert (swept.outcome, swept.counts["lease_errors"]) == ("partial", 1)
    assert Placement.objects.get().backend_id == "old-name"
    assert not Teardown.objects.exists()


@pytest.fixture
def left_alone(looker):
    """Sweep; how many leases it left to work under way, listed as ready and unlisted, and how many were unreported."""

    def swept():
        counters = (metrics.INFLIGHT_SKIPS, metrics.RECONCILER_CONFLICTS, metrics.DEFERRED_LEASES)
        before = [counted(one) for one in counters]
        sweep(looker.sources)
        return tuple(int(counted(one) - value) for one, value in zip(counters, before, strict=True))

    return swept


def under_way(chain, **fields):
    """A PENDING lease whose provision mock-1 was given a moment ago."""
    one = lease()
    chain.add(one)
    stored = LeaseFactory(uuid=one.uuid, chain_state=LeaseState.PENDING, phase="provisioning")
    given = {"backend_id": "mock-1", "backend": None, "first_dispatched_at": now(), **fields}
    OperationFactory(lease=stored, **given)
    PlacementFactory(lease=stored, backend_id="mock-1", backend=None, status="attempted")
    return one.uuid


def test_ready_and_unlisted_leases_whose_operation_is_open_are_left_to_it_and_counted(chain, listing, left_alone):
    """LC-78: a ready lease whose operation is younger than two minutes."""
    listing.rows = [row(under_way(chain)), row(under_way(chain, state="succeeded"))]
    listing.rows += [row(under_way(chain), ProvisionStatus.PROVISIONING)]
    under_way(chain)
    assert left_alone() == (2, 1, 0)
    assert left_alone() == (2, 1, 0), "each sweep counts what it left"


def test_a_ready_lease_of_an_older_operation_is_woken_and_not_left(chain, listing, left_alone):
    """LC-78"""
    uuid = under_way(chain, first_dispatched_at=now() - timedelta(minutes=3))
    listing.rows = [row(uuid)]
    Lease.objects.filter(pk=uuid).update(touched_at=None)
    assert left_alone() == (0, 0, 0)
    assert Lease.objects.get(pk=uuid).due_at is not None


def test_leases_of_a_silent_backend_are_counted_as_such_and_nothing_is_said_of_them(chain, listing, left_alone):
    """LC-85"""
    active = lease(LeaseState.ACTIVE)
    chain.add(active)
    placed = LeaseFactory(uuid=active.uuid, chain_state=LeaseState.ACTIVE, phase="active")
    PlacementFactory(lease=placed, backend_id="mock-1", backend=None)
    unplaced = lease(LeaseState.ACTIVE)
    chain.add(unplaced, lease())
    under_way(chain)
    PlacementFactory(lease=LeaseFactory(chain_state=LeaseState.CLOSED), backend_id="mock-1", backend=None)
    assert left_alone() == (0, 1, 0)
    listing.error = "no answer"
    assert left_alone() == (0, 0, 3)


@pytest.mark.parametrize("count", ["under_way", "unreported"])
def test_a_count_that_fails_fails_no_sweep(chain, listing, left_alone, monkeypatch, count):
    def takes_too_long(_sweep):
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL statement_timeout = 20; SELECT pg_sleep(10)")

    monkeypatch.setattr(sweep_module.sql, count, takes_too_long)
    uuid = under_way(chain, first_dispatched_at=now() - timedelta(minutes=3))
    listing.rows = [row(uuid)]
    Lease.objects.filter(pk=uuid).update(touched_at=None)
    assert left_alone() == (0, 0, 0)
    assert Lease.objects.get(pk=uuid).due_at is not None
    listing.error = "no answer"
    assert left_alone() == (0, 0, 0)
    assert list(Sweep.objects.order_by("id").values_list("outcome", flat=True)) == ["success", "degraded"]


def test_a_sweep_that_a_killed_process_left_open_does_not_hold_up_the_next(looker, chain, listing):
    from django.db.models.functions import Now

    from fred.models import PeriodicTask
    from reconciliation import periodic

    dead = Sweep.objects.create(state="running")
    PeriodicTask.objects.update_or_create(name="sweep", defaults={"due_at": Now()})
    assert "sweep" in periodic.run_due()
    dead.refresh_from_db()
    assert dead.state == "abandoned"
    assert Sweep.objects.filter(state="done").count() == 1
