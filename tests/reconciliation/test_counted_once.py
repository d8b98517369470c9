"""No counter moves inside a transaction: a lock may be in its way, and then all of it is run again."""

from __future__ import annotations

import threading
import traceback
from uuid import uuid4

import pytest
from django.db import OperationalError, connection, transaction
from prometheus_client import Counter, Histogram

from fred import due, metrics
from leases import sql
from leases.models import Lease
from leases.status import LeaseState
from placements.command_status import CommandKind
from reconciliation import command_admission, restores
from tests.factories.leases import LeaseFactory
from tests.factories.placements import CommandFactory, OperationFactory, PlacementFactory
from tests.reconciliation.chains import lease
from tests.reconciliation.story import ROWS, counted

pytestmark = ROWS


@pytest.fixture
def counted_inside(monkeypatch):
    """Where a counter or histogram was written while the thread's connection was in a transaction."""
    found: list[str] = []
    lock = threading.Lock()

    def watched(write):
        def written(self, *args, **kwargs):
            if connection.in_atomic_block:
                with lock:
                    found.append("".join(traceback.format_stack(limit=4)[:-1]))
            return write(self, *args, **kwargs)

        return written

    monkeypatch.setattr(Counter, "inc", watched(Counter.inc))
    monkeypatch.setattr(Histogram, "observe", watched(Histogram.observe))
    return found


def test_the_guard_sees_what_is_counted_in_a_transaction(counted_inside):
    with transaction.atomic():
        metrics.CALLBACK_TIMEOUTS.inc(0)
    metrics.CALLBACK_TIMEOUTS.inc(0)
    assert len(counted_inside) == 1
    assert "test_counted_once" in counted_inside[0]


def test_the_life_of_a_lease_counts_nothing_inside_a_transaction(story, counted_inside):
    acted = counted(metrics.RECONCILER_ACTIONS, action="provisioned")
    ended = counted(metrics.PROVISIONINGS, outcome="success", backend="b1", operation="provision")
    uuid = story.activated()
    story.sweep()
    story.close(uuid)
    story.settle()
    refused = story.create()
    story.settle()
    story.report("failed", refused, error="no image")
    story.settle()
    assert counted_inside == []
    assert counted(metrics.RECONCILER_ACTIONS, action="provisioned") == acted + 2
    assert counted(metrics.PROVISIONINGS, outcome="success", backend="b1", operation="provision") == ended + 1


class DeadlockError(Exception):
    sqlstate = "40P01"


@pytest.fixture
def deadlocks(monkeypatch):
    """Let the first try of each transaction end in a deadlock when its work is done: it is rolled back and repeated."""
    real = due.in_transaction

    def broken(work, **how):
        left = [True]

        def once_too_often():
            result = work()
            if left.pop() if left else False:
                raise OperationalError from DeadlockError()
            return result

        return real(once_too_often, **how)

    monkeypatch.setattr(due, "in_transaction", broken)


def test_a_repeated_look_counts_its_provision_once(story, deadlocks):
    acted = counted(metrics.RECONCILER_ACTIONS, action="provisioned")
    story.create()
    story.look()
    assert counted(metrics.RECONCILER_ACTIONS, action="provisioned") == acted + 1


def test_a_repeated_settling_of_a_restore_counts_it_once(transactional_db, deadlocks, valkey):
    operation = OperationFactory(state="refused", kind="restore", source_lease=LeaseFactory())
    labels = {"outcome": "error", "backend": operation.backend_id, "operation": "restore"}
    before = counted(metrics.PROVISIONINGS, **labels)
    restores.settle_unmade(operation.pk, operation.lease_id)
    operation.refresh_from_db()
    assert operation.settled_at is not None
    assert counted(metrics.PROVISIONINGS, **labels) == before + 1


def test_a_repeated_admission_counts_what_it_forgot_once(transactional_db, deadlocks, valkey, monkeypatch):
    monkeypatch.setattr(command_admission, "KEPT_PER_LEASE", 1)
    placed = PlacementFactory(lease=LeaseFactory(chain_state=LeaseState.ACTIVE))
    CommandFactory(lease=placed.lease, state="succeeded", settled_at=placed.set_at, finished_at=placed.set_at)
    before = counted(metrics.MAINTENANCE_EVICTED)
    wish = command_admission.CommandWish(placed.lease_id, "tenant", CommandKind.RESTART, uuid4(), keyed=True)
    assert isinstance(command_admission.admit_command(wish), command_admission.Admitted)
    assert counted(metrics.MAINTENANCE_EVICTED) == before + 1


def test_a_repeated_listing_counts_its_stale_rows_once(transactional_db):
    one = lease(LeaseState.ACTIVE)
    with transaction.atomic():
        sql.store_reads([(one, 100)], exact=False)
    before = counted(metrics.CHAIN_STALE_READS, query="list_leases")
    older = lease(LeaseState.PENDING, uuid=one.uuid)

    def store_and_fail():
        with transaction.atomic():
            sql.store_reads([(older, 90)], exact=False)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        store_and_fail()
    assert counted(metrics.CHAIN_STALE_READS, query="list_leases") == before
    with transaction.atomic():
        sql.store_reads([(older, 90)], exact=False)
    assert counted(metrics.CHAIN_STALE_READS, query="list_leases") == before + 1
    assert Lease.objects.get().chain_height == 100
