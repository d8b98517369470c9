"""What a callback does to its operation, its lease and the inbox: once, in any order, from any number of processes."""

import hashlib
import threading
import uuid

import pytest
from django.db import connection, transaction

from leases.models import Lease
from placements import callbacks, transitions
from placements.callback_request import Selector, VerifiedCallback
from placements.models import Callback, Operation
from placements.status import OperationState
from tests.factories.backends import BackendFactory
from tests.factories.leases import LeaseFactory
from tests.factories.placements import OperationFactory, PlacementFactory

S = OperationState
pytestmark = pytest.mark.django_db


def said(status="success", *, of=None, lease=None, tokenless=False, **changes):
    """A verified callback about an operation, or about a lease."""
    body = f"{status} {changes}".encode()
    fields = {
        "lease_uuid": of.lease_id if of else lease.pk,
        "selector": Selector.TOKENLESS if tokenless or not of else Selector.OPERATION,
        "selector_id": None if tokenless or not of else of.pk,
        "status": status,
        "error": "",
        "retained": False,
        "storage_id": None,
        "backend_label": "mock-1",
        "maintenance_id": None,
        "maintenance_admitted_at": None,
        "body_sha256": hashlib.sha256(body).digest(),
    }
    return VerifiedCallback(**{**fields, **changes})


def was_woken(lease):
    """Whether the lease is due now, with a higher epoch than it was made with."""
    now = Lease.objects.get(pk=lease.pk)
    return now.due_at is not None and now.epoch > 0


@pytest.mark.parametrize("state", [S.RESERVED, S.IN_DOUBT, S.ACCEPTED])
@pytest.mark.parametrize("tokenless", [False, True])
@pytest.mark.parametrize(("status", "expected"), [("success", S.SUCCEEDED), ("failed", S.FAILED)])
def test_lc38_lc42_lc60_a_result_moves_the_open_operation_and_wakes(state, tokenless, status, expected):
    operation = OperationFactory(state=state, due_at="2026-01-01T00:00Z")
    assert callbacks.apply([said(status, of=operation, tokenless=tokenless, error="image pull failed")]) == set()
    operation.refresh_from_db()
    assert (operation.state, operation.error, operation.due_at) == (expected, "image pull failed", None)
    assert operation.finished_at is not None
    assert operation.settled_at is None
    row = Callback.objects.get()
    assert (row.verdict, row.selector_id) == ("applied", operation.pk)
    assert row.applied_at is not None
    assert was_woken(operation.lease)
    assert operation.lease.touched_at is not None


def test_a_result_raises_the_epoch_of_its_operation_so_that_a_late_outcome_changes_nothing():
    operation = OperationFactory(state=S.IN_DOUBT, epoch=3)
    callbacks.apply([said(of=operation)])
    operation.refresh_from_db()
    assert operation.epoch > 3


def test_lc60_a_202_read_after_the_callback_changes_nothing():
    operation = OperationFactory(state=S.IN_DOUBT, epoch=3)
    callbacks.apply([said(of=operation)])
    assert transitions.move({operation.pk: 3}, S.ACCEPTED) == set()
    assert transitions.move({operation.pk: None}, S.ACCEPTED) == set()
    operation.refresh_from_db()
    assert operation.state == S.SUCCEEDED


def test_the_same_callback_again_has_no_effect():
    operation = OperationFactory()
    callbacks.apply([said(of=operation)])
    epoch = Lease.objects.get().epoch
    assert callbacks.apply([said(of=operation), said(of=operation)]) == set()
    assert Callback.objects.count() == 1
    assert Lease.objects.get().epoch == epoch


def test_twice_in_one_batch_is_once():
    operation = OperationFactory()
    callbacks.apply([said(of=operation), said(of=operation)])
    assert Callback.objects.count() == 1
    assert Lease.objects.get().epoch == 1


@pytest.mark.django_db(transaction=True)
def test_lc59_five_deliveries_at_once_are_one_row_and_one_wake(run_in_threads):
    operation = OperationFactory()

    def deliver():
        callback = said(of=operation)
        while callbacks.apply([callback]):
            pass

    run_in_threads(5, deliver)
    assert Callback.objects.count() == 1
    assert Lease.objects.get().epoch == 1
    assert Operation.objects.get().state == S.SUCCEEDED


@pytest.mark.parametrize("first", ["success", "failed"])
def test_success_and_failure_in_one_batch_the_first_decides(first):
    second = {"success": "failed", "failed": "success"}[first]
    operation = OperationFactory()
    callbacks.apply([said(first, of=operation), said(second, of=operation)])
    operation.refresh_from_db()
    assert operation.state == callbacks.RESULTS[first]
    later = Callback.objects.get(status=second)
    assert (later.verdict, later.applied_at is None) == (("", True) if first == "success" else ("settled", False))


def test_a_failure_after_success_is_left_to_the_look():
    operation = OperationFactory(state=S.SUCCEEDED)
    callbacks.apply([said("failed", of=operation, error="container exited unexpectedly")])
    row = Callback.objects.get()
    assert (row.selector, row.applied_at, row.error) == ("operation", None, "container exited unexpectedly")
    assert was_woken(operation.lease)
    operation.refresh_from_db()
    assert operation.state == S.SUCCEEDED


@pytest.mark.parametrize("state", [S.FAILED, S.REFUSED, S.ENDED])
@pytest.mark.parametrize("settled_at", [None, "2026-01-01T00:00Z"])
@pytest.mark.parametrize("status", ["success", "failed", "deprovisioned"])
def test_lc58_a_word_about_an_operation_that_is_over_changes_nothing(state, settled_at, status):
    """P23"""
    old = OperationFactory(state=state, settled_at=settled_at)
    callbacks.apply([said(status, of=old)])
    old.refresh_from_db()
    assert old.state == state
    row = Callback.objects.get()
    assert (row.verdict, row.applied_at is None) == ("settled", False)
    assert not was_woken(old.lease)


def test_lc58_only_the_new_operation_of_a_lease_can_succeed():
    old = OperationFactory(state=S.FAILED, settled_at="2026-01-01T00:00Z", refusal="callback_timeout")
    new = OperationFactory(lease=old.lease)
    callbacks.apply([said(of=old)])
    new.refresh_from_db()
    assert new.state == S.ACCEPTED
    assert not was_woken(old.lease)
    callbacks.apply([said(of=new)])
    new.refresh_from_db()
    assert new.state == S.SUCCEEDED
    assert was_woken(old.lease)


def settled(**changes):
    """An operation that made what its lease runs, and goes on reporting with its id."""
    operation = OperationFactory(state=S.SUCCEEDED, settled_at="2026-01-01T00:00Z")
    PlacementFactory(lease=operation.lease, **{"lifecycle_id": operation.pk, **changes})
    return operation


@pytest.mark.parametrize("status", ["success", "failed", "deprovisioned"])
def test_lc49_lc51_a_report_on_the_url_of_the_settled_operation_is_an_observation(status):
    operation = settled()
    callbacks.apply([said(status, of=operation, retained=status == "deprovisioned")])
    row = Callback.objects.get()
    assert (row.selector, row.selector_id, row.applied_at, row.verdict) == ("lifecycle", operation.pk, None, "")
    assert row.retained == (status == "deprovisioned")
    assert was_woken(operation.lease)


def test_the_url_of_a_replaced_operation_says_nothing_any_more():
    operation = settled(lifecycle_id=uuid.uuid4())
    callbacks.apply([said("failed", of=operation)])
    assert Callback.objects.get().verdict == "settled"
    assert not was_woken(operation.lease)


def test_an_observation_is_merged_while_no_look_has_used_it_and_kept_afterwards():
    operation = settled()
    callbacks.apply([said("success", of=operation)])
    callbacks.apply([said("success", of=operation)])
    assert Callback.objects.count() == 1
    Callback.objects.update(applied_at="2026-01-01T00:00Z")
    callbacks.apply([said("success", of=operation)])
    assert Callback.objects.filter(applied_at=None).count() == 1


@pytest.mark.parametrize(("own", "verdict"), [(True, ""), (False, "stale")])
def test_a_lifecycle_callback_counts_only_with_the_current_id(own, verdict):
    """BC-95"""
    operation = settled()
    id_ = operation.pk if own else uuid.uuid4()
    callbacks.apply([said("failed", of=operation, selector=Selector.LIFECYCLE, selector_id=id_)])
    assert Callback.objects.get().verdict == verdict
    assert was_woken(operation.lease) == own


def test_a_lifecycle_callback_moves_no_operation():
    """P24, BC-94"""
    operation = OperationFactory()
    PlacementFactory(lease=operation.lease, lifecycle_id=operation.pk)
    callbacks.apply([said("success", of=operation, selector=Selector.LIFECYCLE)])
    operation.refresh_from_db()
    assert operation.state == S.ACCEPTED


@pytest.mark.parametrize("status", ["success", "failed", "deprovisioned"])
def test_lc49_lc51_a_report_without_id_or_open_operation_is_an_observation(status):
    """P36"""
    operation = settled()
    callbacks.apply([said(status, lease=operation.lease)])
    row = Callback.objects.get()
    assert (row.selector, row.selector_id, row.applied_at) == ("tokenless", None, None)
    assert was_woken(operation.lease)


@pytest.mark.parametrize("tokenless", [False, True])
def test_lc52_a_teardown_of_what_is_still_being_made_is_left_to_the_look(tokenless):
    operation = OperationFactory()
    callbacks.apply([said("deprovisioned", of=operation, tokenless=tokenless)])
    operation.refresh_from_db()
    assert operation.state == S.ACCEPTED
    row = Callback.objects.get()
    assert (row.selector_id, row.applied_at, row.verdict) == (operation.pk, None, "")
    assert was_woken(operation.lease)


def test_ta93_a_lease_nobody_knows_is_noted_to_be_read():
    lease = LeaseFactory.build()
    assert callbacks.apply([said(lease=lease)]) == set()
    stub = Lease.objects.get()
    assert (stub.pk, stub.chain_state, stub.due_at is None) == (lease.pk, None, False)


def test_an_unknown_operation_of_an_unknown_lease_has_no_effect_but_that_it_is_read():
    callback = said(of=OperationFactory.build(lease=LeaseFactory.build()))
    callbacks.apply([callback])
    assert Callback.objects.get().verdict == "unknown_operation"
    assert Lease.objects.get().due_at is not None


def test_an_unknown_operation_of_a_known_lease_has_no_effect():
    lease = LeaseFactory()
    callbacks.apply([said(of=OperationFactory.build(lease=lease))])
    assert Callback.objects.get().verdict == "unknown_operation"
    assert not was_woken(lease)


def test_an_operation_is_moved_only_by_a_callback_about_its_own_lease():
    operation, other = OperationFactory(), LeaseFactory()
    callbacks.apply([said(of=operation, lease_uuid=other.pk)])
    operation.refresh_from_db()
    assert operation.state == S.ACCEPTED
    callbacks.apply([said(of=operation)])
    operation.refresh_from_db()
    assert operation.state == S.SUCCEEDED


@pytest.mark.parametrize(
    ("senders", "moved"), [(set(), True), ({"mock-1"}, True), ({"a", "mock-1"}, True), ({"a"}, False)]
)
@pytest.mark.parametrize("tokenless", [False, True])
def test_a_backends_own_key_speaks_only_for_what_it_was_given(senders, moved, tokenless):
    operation = OperationFactory()
    callbacks.apply([said(of=operation, tokenless=tokenless, senders=frozenset(senders))])
    operation.refresh_from_db()
    assert (operation.state == S.SUCCEEDED) == moved
    if not moved:  # the true result still finds its place
        callbacks.apply([said(of=operation, senders=frozenset({"mock-1"}))])
        operation.refresh_from_db()
        assert operation.state == S.SUCCEEDED


def test_another_backends_key_makes_no_observation():
    operation = settled(backend=BackendFactory(name="mock-2"))
    callbacks.apply([said("failed", lease=operation.lease, senders=frozenset({"mock-1"}))])
    assert Callback.objects.get().verdict == "other_backend"


@pytest.mark.django_db(transaction=True)
def test_a_locked_lease_is_busy_and_the_others_are_stored():
    held, free = OperationFactory(), OperationFactory()
    locked, release = threading.Event(), threading.Event()

    def hold():
        with transaction.atomic():
            list(Lease.objects.select_for_update(no_key=True).filter(pk=held.lease_id))
            locked.set()
            release.wait(10)
        connection.close()

    holder = threading.Thread(target=hold)
    holder.start()
    assert locked.wait(10)
    busy, stored = said(of=held), said(of=free)
    assert callbacks.apply([busy, stored]) == {busy}
    assert Callback.objects.get().lease_id == free.lease_id
    release.set()
    holder.join()
    assert callbacks.apply([busy]) == set()
    assert Operation.objects.get(pk=held.pk).state == S.SUCCEEDED


@pytest.mark.django_db(transaction=True)
def test_batches_that_overlap_in_any_order_all_land(run_in_threads):
    operations = OperationFactory.create_batch(40)
    orders = iter([operations, operations[::-1], operations[::2], operations[1::2]])
    guard = threading.Lock()

    def deliver():
        with guard:
            mine = next(orders)
        left = {said(of=operation) for operation in mine}
        while left:
            left = callbacks.apply(list(left))

    run_in_threads(4, deliver)
    assert Callback.objects.count() == 40
    assert set(Operation.objects.values_list("state", flat=True)) == {S.SUCCEEDED}
    assert set(Lease.objects.values_list("epoch", flat=True)) == {1}


@pytest.mark.parametrize(
    ("label", "expected"), [("evil{}", "invalid"), ("", "unknown"), ("mock-1", "mock-1")], ids=repr
)
def test_lc50_a_metric_names_only_backends_of_the_configuration(label, expected):
    from fred import metrics

    operation = settled()
    counter = metrics.NON_IN_FLIGHT_CALLBACKS.labels(backend=expected, status="success")
    before = counter._value.get()
    callbacks.apply([said(of=operation, backend_label=label)])
    assert counter._value.get() == before + 1
