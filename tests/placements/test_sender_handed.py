"""Rows that are handed to a sender with their claim, and what draining gives back."""

import threading
import time

from django.db import connection
from django.utils import timezone

from leases.models import Lease
from placements import awaited
from placements.models import Operation
from placements.pushes import Claimed
from tests.placements.due_rows import S, due, handed, until
from tests.scripted_backend import Hang
from tests.waiting import wait_until


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


def test_a_row_handed_over_after_the_database_ended_the_idle_connection_is_pushed_at_once(backend, make_sender):
    first, claim = handed()
    sender = make_sender(pulls=False)
    sender.take([claim])
    until(first, state=S.ACCEPTED)
    wait_until(lambda: sender.is_idle)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid, 5000)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
        assert cursor.fetchone()[0] >= 1
    second, claim = handed()
    with awaited.expected(second.pk) as waiter:
        sender.take([claim])
        assert isinstance(waiter.wait(time.monotonic() + 30), awaited.Met)
    until(second, state=S.ACCEPTED, dispatch_count=1)
    assert backend.routes() == ["provision", "provision"]
