"""Every authenticated callback is counted once by what became of it, and what speaks against our records is noticed."""

import asyncio
import threading
from uuid import uuid4

import pytest
from django.db import OperationalError

from fred import metrics
from placements import callback_batches, callbacks
from placements.callback_request import Selector
from placements.models import Operation, Placement, Teardown
from placements.status import OperationState as S
from tests.factories.backends import BackendFactory
from tests.factories.leases import LeaseFactory
from tests.factories.placements import CommandFactory, OperationFactory, PlacementFactory
from tests.placements.callback_posts import Kept, post, run
from tests.placements.test_callbacks import said
from tests.waiting import wait_until

OUTCOMES = ("applied", "dropped", "retryable")
VERDICTS = ("authorized", "legacy", "invalid", "missing", "stale", "unknown")


def outcomes():
    """How often each outcome was counted, by its labels."""
    return {
        (outcome, verdict, status): metrics.CALLBACK_OUTCOMES.labels(outcome, verdict, status)._value.get()
        for outcome in OUTCOMES
        for verdict in VERDICTS
        for status in ("success", "failed", "deprovisioned")
    }


@pytest.fixture
def counted():
    """What was counted since the last time it was asked, without zeros."""
    before = [outcomes()]

    def since():
        now = outcomes()
        found = {labels: now[labels] - before[0][labels] for labels in now if now[labels] != before[0][labels]}
        before[0] = now
        return found

    return since


def placed(**fields):
    """A lease whose backend reports with an id."""
    return PlacementFactory(**{"lifecycle_id": uuid4(), "backend": BackendFactory(name="mock-1"), **fields})


def about(place, status="failed", **changes):
    """A report with the id of this placement."""
    fields = {"selector": Selector.LIFECYCLE, "selector_id": place.lifecycle_id}
    return said(status, lease=place.lease, **{**fields, **changes})


@pytest.mark.django_db
def test_met11_each_callback_about_a_lease_counts_once_by_what_became_of_it(counted):
    place = placed()
    callbacks.apply([about(place)])
    assert counted() == {("applied", "authorized", "failed"): 1}
    callbacks.apply([about(place, body_sha256=about(place).body_sha256)])
    assert counted() == {("dropped", "authorized", "failed"): 1}
    callbacks.apply([about(place, selector_id=uuid4())])
    assert counted() == {("dropped", "stale", "failed"): 1}
    callbacks.apply([about(place, "deprovisioned", senders=frozenset({"mock-2"}))])
    assert counted() == {("dropped", "invalid", "deprovisioned"): 1}
    callbacks.apply([said("success", lease=place.lease, tokenless=True)])
    assert counted() == {("applied", "legacy", "success"): 1}
    callbacks.apply([said("success", of=OperationFactory.build(lease=place.lease))])
    assert counted() == {("dropped", "unknown", "success"): 1}
    callbacks.apply([said("success", lease=LeaseFactory(), selector=Selector.LIFECYCLE, selector_id=uuid4())])
    assert counted() == {("dropped", "missing", "success"): 1}


@pytest.mark.django_db
def test_met11_a_batch_counts_every_request_and_results_of_open_operations_not_at_all(counted):
    place, operation = placed(), OperationFactory(backend=BackendFactory(name="mock-1"))
    callbacks.apply([said(of=operation), about(place), about(place), about(place, repeated=True)])
    assert counted() == {
        ("applied", "authorized", "failed"): 1,
        ("dropped", "authorized", "failed"): 1,
        ("dropped", "unknown", "failed"): 1,
    }
    assert Operation.objects.get().state == S.SUCCEEDED


@pytest.mark.django_db
def test_a_repeat_that_a_command_waits_for_is_read(counted):
    place = placed()
    CommandFactory(lease=place.lease)
    callbacks.apply([about(place, repeated=True)])
    assert counted() == {("applied", "authorized", "failed"): 1}


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("status", "state", "number"),
    [
        pytest.param("success", "open", 1, id="made while it is removed"),
        pytest.param("success", "parked", 1, id="made while its removal waits"),
        pytest.param("success", "done", 0, id="made again after it was removed"),
        pytest.param("failed", "open", 0, id="not made"),
    ],
)
def test_a_success_for_a_lease_that_is_being_closed_is_noticed(status, state, number):
    operation = OperationFactory(state=S.ENDED, settled_at="2026-01-01T00:00Z")
    Teardown.objects.create(lease=operation.lease, backend=operation.backend, state=state)
    before = metrics.CALLBACK_AFTER_CLOSE._value.get()
    callbacks.apply([said(status, of=operation)])
    assert metrics.CALLBACK_AFTER_CLOSE._value.get() == before + number


@pytest.mark.django_db
@pytest.mark.parametrize(("status", "number"), [("success", 1), ("failed", 0)])
def test_a_success_of_another_backend_than_its_operation_was_given_to_is_noticed(status, number):
    operation = OperationFactory(backend=BackendFactory(name="mock-2"))
    before = metrics.CALLBACK_CONFLICTS._value.get()
    callbacks.apply([said(status, of=operation, senders=frozenset({"mock-1"}))])
    assert metrics.CALLBACK_CONFLICTS._value.get() == before + number


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("status", "number"), [(Placement.Status.CONFIRMED, 1), (Placement.Status.ATTEMPTED, 0)], ids=str
)
def test_a_success_for_a_lease_that_was_placed_elsewhere_meanwhile_counts_and_is_noticed(status, number):
    operation = OperationFactory(backend=BackendFactory(name="mock-1"))
    placed(lease=operation.lease, backend=BackendFactory(name="mock-2"), status=status)
    before = metrics.CALLBACK_CONFLICTS._value.get()
    callbacks.apply([said(of=operation)])
    operation.refresh_from_db()
    assert operation.state == S.SUCCEEDED
    assert metrics.CALLBACK_CONFLICTS._value.get() == before + number


def timeouts():
    return metrics.CALLBACK_CLAIM_TIMEOUTS._value.get()


def test_one_whose_lease_stays_locked_counts_as_that_and_as_to_be_sent_again(monkeypatch, counted):
    monkeypatch.setattr("placements.callbacks_asgi.ANSWER_WITHIN_S", 0.1)
    before = timeouts()
    answer, _ = run(post, apply=set)
    assert answer.status == 503
    assert timeouts() == before + 1
    assert counted() == {("retryable", "unknown", "success"): 1}


@pytest.mark.parametrize("waits", [callback_batches.MOST_WAITING, 0], ids=["broken", "too many"])
def test_one_that_is_not_stored_for_another_reason_waited_for_nobody(monkeypatch, counted, waits):
    monkeypatch.setattr(callback_batches, "MOST_WAITING", waits)
    before = timeouts()
    answer, _ = run(post, apply=Kept(OperationalError("away")))
    assert answer.status == 503
    assert timeouts() == before
    assert counted() == {("retryable", "unknown", "success"): 1}


@pytest.mark.parametrize(("is_busy", "number"), [(False, 0), (True, 1)], ids=["stored after all", "locked"])
def test_one_that_gives_up_while_it_is_being_stored_counts_when_that_is_over(monkeypatch, counted, is_busy, number):
    monkeypatch.setattr("placements.callbacks_asgi.ANSWER_WITHIN_S", 0.05)
    go_on = threading.Event()
    before = timeouts()

    def slow(batch):
        assert go_on.wait(10)
        return set(batch) if is_busy else set()

    async def work(endpoint):
        status = (await post(endpoint)).status
        assert counted() == {}
        go_on.set()
        await asyncio.to_thread(wait_until, endpoint.batcher._runner.done)
        return status

    assert run(work, apply=slow)[0] == 503
    assert timeouts() == before + number
    assert sum(counted().values()) == number
