"""What an answer means for the row that was pushed, and that late or foreign answers change nothing."""

import time
import uuid
from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from backends.client import Accepted, Ambiguous, BackendTarget, Deferred, Done, NotSent, RefusalKind, Refused
from backends.contract import ProvisionSpec
from leases.models import Lease, StatusEvent
from placements import callbacks, outcomes
from placements.calls import Deprovision, Provision, Restore
from placements.command_calls import Maintenance
from placements.command_status import CommandKind
from placements.models import MaintenanceCommand, Operation, Teardown
from placements.outcomes import Answer, Dropped, Unread, Verdict
from placements.pushes import Push, Table
from placements.status import OperationState
from tests.factories.leases import LeaseFactory
from tests.factories.placements import CommandFactory, OperationFactory
from tests.placements.test_callbacks import said

S, V = OperationState, Verdict
ACCEPTED, NOT_SENT, AMBIGUOUS = Accepted(), NotSent("refused"), Ambiguous("reset")
REFUSED = Refused(RefusalKind.VALIDATION, "bad", "unknown_sku")


def push_of(row, *, epoch=None, first=True, attempts=1, refusal=""):
    """The push that a claim of this row made."""
    is_operation = isinstance(row, Operation)
    return Push(
        id=row.pk,
        table=Table.OPERATIONS if is_operation else Table.TEARDOWNS,
        call=Provision(ProvisionSpec(row.lease_id, "t", None, (), "http://x")) if is_operation else Deprovision(),
        lease_uuid=row.lease_id,
        target=BackendTarget("mock-1", "http://127.0.0.1:9"),
        epoch=row.epoch if epoch is None else epoch,
        attempts=attempts,
        first=first,
        confirmed_at=time.monotonic(),
        held_until=time.monotonic() + 35,
        refusal=refusal,
    )


@pytest.mark.parametrize(
    ("result", "first", "again"),
    [
        (ACCEPTED, V.ACCEPTED, V.ACCEPTED),
        (REFUSED, V.REFUSED, V.REFUSED),
        (NOT_SENT, V.RETURNED, V.LATER),
        (AMBIGUOUS, V.ASK_AGAIN, V.WATCH),
        (Unread("silent"), V.LATER, V.LATER),
        (Dropped(), V.RELEASED, V.KEPT),
    ],
)
def test_verdicts_for_operations(result, first, again):
    operation = OperationFactory.build(id=uuid.uuid4(), lease=LeaseFactory.build())
    assert outcomes.verdict(push_of(operation, first=True), result) is first
    assert outcomes.verdict(push_of(operation, first=False), result) is again


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (Done(), V.GONE),
        (Deferred("later"), V.AGAIN),
        (NOT_SENT, V.AGAIN),
        (AMBIGUOUS, V.AGAIN),
        (Dropped(), V.RELEASED),
    ],
)
def test_verdicts_for_teardowns(result, expected):
    teardown = Teardown(pk=1, lease=LeaseFactory.build())
    assert outcomes.verdict(push_of(teardown), result) is expected


def pushed(**fields):
    """An operation whose call is on the wire."""
    now = timezone.now()
    defaults = {"state": S.IN_DOUBT, "epoch": 4, "due_at": now + timedelta(seconds=5), "first_dispatched_at": now}
    return OperationFactory(**{**defaults, **fields})


def record(row, result, **fields):
    """Record one answer; return the stored row as it is then."""
    outcomes.record([Answer(push_of(row, **fields), result)])
    return type(row).objects.get(pk=row.pk)


@pytest.mark.django_db
def test_every_recorded_outcome_raises_the_epoch():
    for result, first in [(ACCEPTED, True), (REFUSED, True), (NOT_SENT, True), (AMBIGUOUS, True), (AMBIGUOUS, False)]:
        assert record(pushed(), result, first=first).epoch > 4


@pytest.mark.django_db
def test_lc60_a_late_202_changes_nothing_after_the_callback():
    operation = pushed()
    callbacks.apply([said(of=operation)])
    before = Operation.objects.values().get()
    lease = Lease.objects.values().get()
    record(operation, ACCEPTED)
    assert Operation.objects.values().get() == before
    assert Lease.objects.values().get() == lease


@pytest.mark.django_db
def test_a_202_counts_whoever_holds_the_row_by_now():
    operation = pushed(epoch=9)
    assert record(operation, ACCEPTED, epoch=4).state == S.ACCEPTED


@pytest.mark.django_db
@pytest.mark.parametrize("result", [REFUSED, NOT_SENT, AMBIGUOUS, Unread("x"), Dropped()])
def test_a_bad_outcome_counts_only_at_the_epoch_that_was_claimed(result):
    operation = pushed(epoch=9)
    before = Operation.objects.values().get()
    record(operation, result, epoch=4)
    assert Operation.objects.values().get() == before
    assert Lease.objects.get().due_at is None


@pytest.mark.django_db
@pytest.mark.parametrize("result", [REFUSED, NOT_SENT, AMBIGUOUS])
def test_a_failure_callback_wins_over_the_answer_of_a_repeat(result):
    operation = pushed()
    callbacks.apply([said("failed", of=operation, error="pull failed")])
    found = record(operation, result)
    assert (found.state, found.error) == (S.FAILED, "pull failed")


@pytest.mark.django_db
def test_an_acceptance_forgets_that_earlier_tries_were_not_sent():
    assert record(pushed(refusal="not_sent", attempts=3), ACCEPTED).refusal == ""


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("refusal", "stored"),
    [
        (REFUSED, "unknown_sku"),
        (Refused(RefusalKind.VALIDATION, "bad"), "validation"),
        (Refused(RefusalKind.CAPACITY, "full", "insufficient_resources"), "insufficient_resources"),
    ],
)
def test_a_refusal_stores_its_code_or_kind(refusal, stored):
    assert record(pushed(), refusal).refusal == stored


@pytest.mark.django_db
@pytest.mark.parametrize(("attempts", "seconds"), [(1, 1), (2, 2), (3, 5), (4, 10), (5, 30), (6, 60), (9, 60)])
def test_a_teardown_is_tried_again_after_1_2_5_10_30_60_seconds(attempts, seconds):
    teardown = Teardown.objects.create(lease=LeaseFactory(), backend_id=OperationFactory().backend_id, epoch=4)
    teardown.due_at = timezone.now()
    teardown.save()
    before = timezone.now()
    found = record(teardown, AMBIGUOUS, attempts=attempts)
    # The pause is spread a little; what a busy machine took comes on top.
    wait = timedelta(seconds=seconds)
    assert before + wait * 0.9 <= found.due_at <= timezone.now() + wait * 1.25
    assert (found.last_error, found.epoch) == ("reset", 5)


@pytest.mark.django_db
def test_a_teardown_is_done_at_any_epoch_and_only_once():
    teardown = Teardown.objects.create(lease=LeaseFactory(), backend_id=OperationFactory().backend_id, epoch=4)
    found = record(teardown, Done(), epoch=2)
    assert (found.state, found.due_at) == ("done", None)
    lease = Lease.objects.get(pk=teardown.lease_id)
    assert lease.due_at is not None
    assert record(teardown, Done(), epoch=2).done_at == found.done_at
    assert Lease.objects.get(pk=teardown.lease_id).epoch == lease.epoch


def call_of(row):
    """What a claim of this restore, or of this command, sends."""
    if isinstance(row, MaintenanceCommand):
        return Maintenance(CommandKind(row.kind), row.callback_url, keyed=True)
    return Restore(source=row.source_lease_id, tenant="t", provider_uuid=None, items=(), callback_url="http://x")


@pytest.mark.django_db
@pytest.mark.parametrize("table", [Table.OPERATIONS, Table.COMMANDS])
def test_what_many_acceptances_tell_is_one_statement_and_names_each_request(table):
    fields = {"state": S.IN_DOUBT, "epoch": 4, "due_at": timezone.now()}
    if table is Table.OPERATIONS:
        rows = [pushed(kind="restore", source_lease=LeaseFactory(), request_id=f"r-{number}") for number in range(3)]
    else:
        rows = [CommandFactory(**fields, request_id=f"r-{number}") for number in range(3)]
    answers = [
        Answer(replace(push_of(row), call=call_of(row), table=table, request_id=row.request_id), ACCEPTED)
        for row in rows
    ]
    with CaptureQueriesContext(connection) as captured:
        outcomes.record(answers)
    statements = [query for query in captured.captured_queries if "INSERT INTO leases_statusevent" in query["sql"]]
    assert len(statements) == 1
    told = set(StatusEvent.objects.values_list("lease_id", "status", "request_id"))
    assert told == {(row.lease_id, "restarting", row.request_id) for row in rows}
