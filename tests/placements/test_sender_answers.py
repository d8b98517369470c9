"""What a push comes back with is recorded as its outcome; or the row stays in doubt and is looked up."""

from datetime import timedelta

import pytest
from django.db import DataError, transaction
from django.utils import timezone
from structlog.testing import capture_logs

from fred import breaker, metrics
from leases.models import Lease
from placements import outcomes, pushes
from placements.models import Operation, Teardown
from tests.factories.leases import LeaseFactory
from tests.placements.due_rows import S, due, in_doubt, is_put_off, targets_to, until
from tests.scripted_backend import Broken, Reset, row
from tests.waiting import wait_until


def test_bc_a_refusal_is_recorded_with_its_code_and_wakes(backend, sender):
    operation = due()
    backend.script["provision"].append((400, b'{"error":"no such plan","validation_code":"unknown_sku"}'))
    sender.pull()
    until(operation, state=S.REFUSED, refusal="unknown_sku", error="no such plan", due_at=None)
    assert operation.finished_at is not None
    assert Lease.objects.get().due_at is not None


def test_p4_p6_a_body_off_the_contract_is_counted_and_logged_and_refuses_nothing(backend, sender):
    operation = due()
    backend.script["provision"].append((400, b"<html>secret of the backend</html>"))
    before = metrics.MALFORMED_ERROR_BODIES.labels("mock-1", "provision")._value.get()
    with capture_logs() as lines:
        sender.pull()
        until(operation, state=S.IN_DOUBT, attempts=1)
        wait_until(lambda: metrics.MALFORMED_ERROR_BODIES.labels("mock-1", "provision")._value.get() == before + 1)
        wait_until(lambda: any(line["event"] == "malformed error body" for line in lines))
    (line,) = [line for line in lines if line["event"] == "malformed error body"]
    assert (line["backend"], line["operation"], line["log_level"]) == ("mock-1", "provision", "warning")
    assert (line["why"], "secret of the backend" in line["body"]) == ("body is not the JSON error envelope", True)
    operation.refresh_from_db()
    assert (operation.error, operation.refusal) == ("", "")


def test_an_answer_that_meets_a_bug_is_counted_at_its_call_and_leaves_doubt(backend, sender, monkeypatch):
    from placements import push_loop

    def stumble(*_, **__):
        raise KeyError("bug")

    monkeypatch.setattr(push_loop, "count_malformed", stumble)
    counter = metrics.BACKEND_INVOCATION_CRASHES.labels("provision")._value
    before = counter.get()
    operation = due()
    backend.script["provision"].append((400, b"<html></html>"))
    sender.pull()
    wait_until(lambda: counter.get() == before + 1)
    until(operation, state=S.IN_DOUBT, refusal="")


def test_a_fresh_503_is_a_capacity_refusal_only_if_a_point_read_finds_nothing(backend, sender):
    operation = due()
    backend.script["provision"].append((503, b'{"error":"insufficient CPU"}'))
    sender.pull()
    until(operation, state=S.REFUSED, refusal="insufficient_resources", error="insufficient CPU")
    assert backend.routes() == ["provision", "read"]


def test_a_503_or_409_where_something_is_there_keeps_the_attempt(backend, sender):
    operation = due()
    backend.script["provision"].append((503, b'{"error":"insufficient CPU"}'))
    backend.always["read"] = row(operation.lease_id)
    sender.pull()
    until(operation, state=S.ACCEPTED)
    assert backend.routes() == ["provision", "read", "read"]


def test_a_409_without_anything_there_was_not_dispatched(backend, sender):
    operation = due()
    backend.script["provision"].append((409, b"conflict"))
    sender.pull()
    until(operation, state=S.RESERVED, refusal="not_sent")
    assert is_put_off(operation)
    assert backend.routes() == ["provision", "read"]


def test_a_refused_connection_returns_the_first_push_and_wakes_once(backend, sender):
    targets_to(9)
    operation = due()
    sender.pull()
    until(operation, state=S.RESERVED, refusal="not_sent", first_dispatched_at=None, on_wire_until=None)
    assert is_put_off(operation)
    lease = Lease.objects.get()
    assert lease.due_at is not None
    Operation.objects.update(due_at=timezone.now())
    sender.pull()
    wait_until(lambda: Operation.objects.get().attempts == 2 and Operation.objects.get().state == S.RESERVED)
    assert Lease.objects.get().epoch == lease.epoch, "the second failure in a row wakes nobody"


def test_a_repeat_that_could_not_be_sent_stays_in_doubt(backend, sender):
    targets_to(9)
    operation = in_doubt()
    epoch = operation.epoch
    sender.pull()
    wait_until(lambda: Operation.objects.get().epoch == epoch + 2)
    operation.refresh_from_db()
    assert (operation.state, operation.first_dispatched_at is not None) == (S.IN_DOUBT, True)
    assert is_put_off(operation)


def test_the_sixth_push_to_a_failing_backend_is_not_sent(backend, sender):
    backend.always["provision"] = (500, b"")
    for _ in range(5):
        due()
    sender.pull()
    wait_until(lambda: breaker.is_open("mock-1"))
    last = due()
    sender.pull()
    until(last, state=S.RESERVED, refusal="not_sent")
    assert last.due_at > timezone.now() + timedelta(seconds=50)
    assert str(last.lease_id) not in {one.lease for one in backend.seen}


@pytest.mark.parametrize(
    "answer",
    [(500, b"x"), (400, b"<html>bad</html>"), (400, b"{}"), (404, b""), (200, b"{}"), Reset, Broken],
    ids=["500", "html 400", "empty 400", "404", "200", "reset", "broken off"],
)
def test_lc9_doubt_is_looked_up_sent_again_once_and_then_left_to_the_look(backend, sender, answer):
    """P19"""
    operation = due()
    backend.always["provision"] = answer
    sender.pull()
    until(operation, state=S.IN_DOUBT, due_at=None)
    assert backend.routes() == ["provision", "read", "provision"]
    first, again = (one.body for one in backend.seen if one.route == "provision")
    assert first == again
    assert Lease.objects.get().due_at is not None
    assert operation.error == "", "tenants read this column"


def test_what_a_lookup_finds_is_accepted_without_sending_again(backend, sender):
    operation = in_doubt()
    backend.always["read"] = row(operation.lease_id)
    sender.pull()
    until(operation, state=S.ACCEPTED, due_at=None)
    assert backend.routes() == ["read"]


@pytest.mark.parametrize("answer", [(500, b""), (200, b"nonsense"), Reset], ids=["500", "garbage", "reset"])
def test_a_lookup_without_answer_sends_nothing(backend, sender, answer):
    operation = in_doubt()
    backend.script["read"].append(answer)
    epoch = operation.epoch
    sender.pull()
    wait_until(lambda: Operation.objects.get().epoch == epoch + 2)
    operation.refresh_from_db()
    assert (operation.state, backend.routes()) == (S.IN_DOUBT, ["read"])
    assert is_put_off(operation)


def test_a_lookup_that_outlasts_its_claim_is_followed_by_no_push(backend, sender, monkeypatch):
    operation, epoch = in_doubt(), 0
    backend.on_request = lambda _: monkeypatch.setattr(pushes, "START_WITHIN_S", -1.0)
    sender.pull()
    wait_until(lambda: Operation.objects.get().epoch == epoch + 2)
    operation.refresh_from_db()
    assert (operation.state, backend.routes()) == (S.IN_DOUBT, ["read"])
    assert is_put_off(operation)


def test_an_outcome_that_cannot_be_stored_does_not_hold_up_the_others(backend, sender, monkeypatch):
    poisoned, other = due(), due()
    record = outcomes.record

    def choke(answers):
        if any(answer.push.id == poisoned.pk for answer in answers):
            raise DataError("a value that no column takes")
        return record(answers)

    monkeypatch.setattr(outcomes, "record", choke)
    sender.pull()
    until(other, state=S.ACCEPTED)
    wait_until(lambda: sender.is_idle)
    poisoned.refresh_from_db()
    assert poisoned.state == S.IN_DOUBT, "its claim ends by itself, then it is looked up"
    assert is_put_off(poisoned)


def test_a_teardown_is_repeated_until_it_is_done_and_wakes_its_lease(backend, sender):
    teardown = Teardown.objects.create(lease=LeaseFactory(), backend_id="mock-1", due_at=timezone.now())
    backend.script["deprovision"].append((500, b"busy"))
    sender.pull()
    wait_until(lambda: Teardown.objects.get().last_error != "")
    teardown.refresh_from_db()
    assert (teardown.state, teardown.done_at) == ("open", None)
    assert "500" in teardown.last_error
    assert Lease.objects.get().due_at is None
    until(teardown, state="done", due_at=None, last_error="")
    assert backend.routes() == ["deprovision", "deprovision"]
    assert teardown.done_at is not None
    lease = Lease.objects.get()
    assert (lease.due_at is not None, lease.touched_at is not None) == (True, True)


@pytest.mark.parametrize("status", [202, 204, 404, 409])
def test_only_200_ends_a_teardown(backend, sender, status):
    Teardown.objects.create(lease=LeaseFactory(), backend_id="mock-1", due_at=timezone.now())
    backend.script["deprovision"].append((status, b""))
    sender.pull()
    wait_until(lambda: Teardown.objects.get().last_error != "")
    assert Teardown.objects.get().state == "open"


def test_an_outcome_whose_lease_is_busy_waits_without_holding_up_the_others(backend, sender):
    busy, other = due(), due()
    with transaction.atomic():
        Lease.objects.select_for_update().get(pk=busy.lease_id)
        sender.pull()
        wait_until(lambda: Operation.objects.filter(pk=other.pk, state=S.ACCEPTED).exists())
        assert Operation.objects.get(pk=busy.pk).state == S.IN_DOUBT
    until(busy, state=S.ACCEPTED)
