"""What is due reaches its backend once, in time, and comes back with an outcome; or it stays in doubt."""

import threading
import time
from datetime import timedelta

import pytest
from django.conf import settings
from django.db import DataError, connection, transaction
from django.utils import timezone
from structlog.testing import capture_logs

from backends import targets
from fred import breaker, metrics
from leases.models import Lease
from placements import dispatch, outcomes, pushes
from placements.models import Operation, Teardown
from placements.pushes import Claimed
from placements.status import OperationState
from tests.factories.leases import LeaseFactory, PayloadFactory
from tests.factories.placements import OperationFactory
from tests.scripted_backend import Broken, Hang, Reset, row
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


def until(row, **fields):
    """Wait until the stored row has these values; return it."""

    def there():
        row.refresh_from_db()
        return all(getattr(row, name) == value for name, value in fields.items())

    wait_until(there, message=f"{row} with {fields}")
    return row


def test_lc1_a_due_operation_is_posted_once_as_it_was_stored_and_accepted(backend, sender):
    operation = due(items=[{"sku": "s1", "quantity": 2, "service_name": "web"}])
    sender.pull()
    until(operation, state=S.ACCEPTED, due_at=None, on_wire_until=None)
    assert backend.routes() == ["provision"]
    assert backend.seen[0].body == {
        "lease_uuid": str(operation.lease_id),
        "tenant": operation.tenant,
        "provider_uuid": str(operation.provider_uuid),
        "items": [{"sku": "s1", "quantity": 2, "service_name": "web"}],
        "callback_url": operation.callback_url,
    }
    assert "x-fred-signature" in backend.seen[0].headers
    assert operation.dispatch_count == 1
    assert operation.first_dispatched_at is not None
    lease = Lease.objects.get()
    assert lease.touched_at is not None
    assert lease.due_at is None, "an acceptance wakes nobody"


def test_the_payload_goes_as_uploaded_with_the_digest_of_the_operation(backend, sender):
    payload = PayloadFactory(body=b"\x00manifest\xff")
    operation = due(lease=payload.lease, payload_sha256=payload.sha256)
    sender.pull()
    until(operation, state=S.ACCEPTED)
    assert backend.seen[0].body["payload"] == "AG1hbmlmZXN0/w=="
    assert backend.seen[0].body["payload_hash"] == payload.sha256.hex()


def test_an_operation_whose_payload_is_gone_is_never_sent_without_it(backend, sender):
    operation = due(payload_sha256=b"1" * 32)
    sender.pull()
    until(operation, state=S.RESERVED, refusal="not_sent")
    assert backend.seen == []
    assert Lease.objects.get().due_at is not None


def test_a_burst_arrives_whole_each_once_and_32_at_most_at_the_same_time(backend, sender):
    operations = [due() for _ in range(150)]
    sender.pull()
    wait_until(lambda: Operation.objects.filter(state=S.ACCEPTED).count() == 150)
    assert sorted(one.lease for one in backend.seen) == sorted(str(one.lease_id) for one in operations)
    assert backend.most_in_flight <= 32


def test_a_slow_call_holds_up_nobody(backend, sender):
    slow, quick = due(), due()
    hang = Hang()
    backend.script["provision", str(slow.lease_id)].append(hang)
    sender.pull()
    until(quick, state=S.ACCEPTED)
    slow.refresh_from_db()
    assert slow.state == S.IN_DOUBT
    assert slow.on_wire_until > timezone.now() + timedelta(seconds=30)
    hang.release()
    until(slow, state=S.ACCEPTED)


def test_a_row_on_the_wire_is_renewed(backend, sender):
    operation, hang = due(), Hang()
    backend.script["provision"].append(hang)
    sender.pull()
    wait_until(lambda: backend.seen)
    operation.refresh_from_db()
    first, epoch = operation.due_at, operation.epoch
    wait_until(lambda: Operation.objects.get().due_at > first)
    assert Operation.objects.get().epoch == epoch
    hang.release()
    until(operation, state=S.ACCEPTED)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"valid_until": timezone.now() - timedelta(seconds=1)}, id="stale"),
        pytest.param({"due_at": timezone.now() + timedelta(hours=1)}, id="not due"),
        pytest.param({"state": S.ACCEPTED}, id="accepted"),
        pytest.param({"state": S.SUCCEEDED}, id="has an outcome"),
        pytest.param({"settled_at": timezone.now()}, id="settled"),
    ],
)
def test_what_is_not_to_be_pushed_is_not(backend, sender, fields):
    due(**fields)
    other = due()
    sender.pull()
    until(other, state=S.ACCEPTED)
    assert [one.lease for one in backend.seen] == [str(other.lease_id)]


@pytest.mark.parametrize("state", [S.RESERVED, S.IN_DOUBT])
def test_past_its_validity_nobody_pushes_and_its_lease_is_looked_at(backend, sender, state):
    operation = due(state=state, valid_until=timezone.now() - timedelta(seconds=1))
    sender.pull()
    until(operation, state=state, due_at=None)
    assert Lease.objects.get().due_at is not None
    assert backend.seen == []


@pytest.mark.parametrize("fields", [{"fenced": True}, {"configured": False}])
def test_a_fenced_backend_gets_nothing(backend, sender, fields):
    operation = due()
    type(operation.backend).objects.update(**fields)
    sender.pull()
    wait_until(lambda: sender.is_idle)
    operation.refresh_from_db()
    assert (operation.state, operation.dispatch_count, backend.seen) == (S.RESERVED, 0, [])


@pytest.mark.parametrize("kind", ["provision", "deprovision"])
def test_op_rbk9_a_fence_breaks_off_what_runs_and_its_end_goes_on(backend, sender, kind):
    held = Hang(202 if kind == "provision" else 200)
    backend.script[kind].append(held)
    if kind == "provision":
        pushed = due()
    else:
        pushed = Teardown.objects.create(
            lease=LeaseFactory(), backend=OperationFactory().backend, due_at=timezone.now(), state="open"
        )
    sender.pull()
    wait_until(lambda: backend.in_flight == 1)
    failures = breaker.of("mock-1").view().failures
    type(pushed.backend).objects.update(fenced=True)
    wait_until(lambda: sender.is_idle, timeout=5.0)
    pushed.refresh_from_db()
    assert pushed.due_at is not None
    assert pushed.state == (S.IN_DOUBT if kind == "provision" else "open")
    assert breaker.of("mock-1").view().failures == failures
    seen = len(backend.seen)
    sender.pull()
    wait_until(lambda: sender.is_idle)
    assert len(backend.seen) == seen
    held.release()
    type(pushed.backend).objects.update(fenced=False)
    targets.forget()
    type(pushed).objects.filter(pk=pushed.pk).update(due_at=timezone.now())
    sender.pull()
    until(pushed, state=S.ACCEPTED if kind == "provision" else "done")


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
    assert operation.due_at > timezone.now()
    assert backend.routes() == ["provision", "read"]


def test_a_refused_connection_returns_the_first_push_and_wakes_once(backend, sender):
    targets_to(9)
    operation = due()
    sender.pull()
    until(operation, state=S.RESERVED, refusal="not_sent", first_dispatched_at=None, on_wire_until=None)
    assert operation.due_at > timezone.now()
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
    assert operation.due_at > timezone.now()


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
    assert operation.due_at > timezone.now()


def handed(**fields):
    """An operation that was inserted in doubt and claimed, and its claim."""
    operation = in_doubt(due_at=timezone.now() + timedelta(seconds=5), epoch=1, **fields)
    return operation, Claimed(operation.pk, 1, operation.backend_id, time.monotonic())


def test_a_row_that_is_handed_over_is_pushed_without_a_claim(backend, make_sender):
    operation, claim = handed()
    sender = make_sender(pulls=False)
    sender.take([claim])
    until(operation, state=S.ACCEPTED)
    assert backend.routes() == ["provision"]
    wait_until(lambda: sender.free("mock-1") == 32)


def test_in_web_nothing_is_pulled(backend, make_sender):
    waiting = due()
    operation, claim = handed()
    sender = make_sender(pulls=False)
    sender.pull()
    sender.take([claim])
    until(operation, state=S.ACCEPTED)
    waiting.refresh_from_db()
    assert (waiting.state, len(backend.seen)) == (S.RESERVED, 1)


def test_a_claim_older_than_three_seconds_starts_nothing_and_goes_back(backend, make_sender):
    operation, claim = handed()
    make_sender(pulls=False).take([Claimed(claim.id, claim.epoch, claim.backend, claim.claimed_at - 3.1)])
    until(operation, state=S.RESERVED, first_dispatched_at=None)
    assert operation.due_at <= timezone.now()
    assert (operation.refusal, backend.seen) == ("", [])
    assert Lease.objects.get().due_at is None


def test_a_handed_row_that_somebody_else_claimed_meanwhile_is_left_alone(backend, make_sender):
    operation, claim = handed()
    Operation.objects.update(epoch=2)
    sender = make_sender()
    sender.take([claim])
    wait_until(lambda: sender.is_idle and sender.free("mock-1") == 32)
    operation.refresh_from_db()
    assert (operation.epoch, operation.state, backend.seen) == (2, S.IN_DOUBT, [])


def test_draining_gives_back_what_was_not_started_and_lets_calls_end(backend, make_sender):
    hangs = [Hang() for _ in range(32)]
    backend.script["provision"].extend(hangs)
    sender = make_sender()
    running = [due() for _ in range(32)]
    sender.pull()
    wait_until(lambda: len(backend.seen) == 32)
    operation, claim = handed()
    sender.take([claim])
    draining = threading.Thread(target=sender.drain, kwargs={"deadline": 1.0})
    draining.start()
    until(operation, state=S.RESERVED, first_dispatched_at=None)
    assert sender.free("mock-1") == 0
    for hang in hangs[:-1]:
        hang.release()
    draining.join(10)
    assert Operation.objects.filter(state=S.ACCEPTED).count() == 31
    assert Operation.objects.filter(state=S.IN_DOUBT, pk__in=[one.pk for one in running]).count() == 1
    assert len(backend.seen) == 32


def test_a_lookup_that_outlasts_its_claim_is_followed_by_no_push(backend, sender, monkeypatch):
    operation, epoch = in_doubt(), 0
    backend.on_request = lambda _: monkeypatch.setattr(pushes, "START_WITHIN_S", -1.0)
    sender.pull()
    wait_until(lambda: Operation.objects.get().epoch == epoch + 2)
    operation.refresh_from_db()
    assert (operation.state, backend.routes()) == (S.IN_DOUBT, ["read"])
    assert operation.due_at > timezone.now()


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
    assert poisoned.due_at > timezone.now()


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


def test_the_sender_outlives_its_database_connection(backend, sender):
    operation, hang = due(), Hang()
    backend.script["provision"].append(hang)
    sender.pull()
    wait_until(lambda: backend.seen)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    hang.release()
    until(operation, state=S.ACCEPTED)
    assert backend.routes() == ["provision"]


def test_a_fork_gets_a_sender_of_its_own(backend):
    mine = dispatch.sender()
    assert dispatch.sender() is mine
    dispatch._pid = 1
    other = dispatch.sender()
    assert other is not mine
    dispatch.drain()


def targets_to(port):
    """Point the configured backend to this port of loopback."""
    (config,) = settings.FRED.backends
    moved = config.model_copy(update={"url": f"http://127.0.0.1:{port}"})
    settings.FRED = settings.FRED.model_copy(update={"backends": (moved,)})
    targets.forget()
