"""Requests that wait for what becomes of a row that they hand to their process's sender."""

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from backends.client import Accepted, Ambiguous, NotSent, Refused
from placements import awaited, dispatch
from placements.awaited import Met, Silent
from placements.models import Operation
from placements.pushes import Claimed
from tests.placements.due_rows import S, handed, targets_to, until
from tests.scripted_backend import Hang, Reset
from tests.waiting import wait_until


@pytest.fixture
def web(backend):
    """The sender of a web process."""
    dispatch.drain(deadline=0.2)
    dispatch.use_in_web()
    yield backend
    dispatch.drain(deadline=0.2)
    dispatch._pulls = True


def soon(seconds=10.0):
    """A deadline."""
    return time.monotonic() + seconds


@pytest.mark.parametrize(
    ("answer", "result", "state"),
    [
        ((202, b"{}"), Accepted, S.ACCEPTED),
        ((400, b'{"error":"no"}'), Refused, S.REFUSED),
        (Reset, Ambiguous, S.IN_DOUBT),
    ],
)
def test_the_outcome_is_told_once_it_is_stored(web, answer, result, state):
    web.script["provision"].append(answer)
    operation, claim = handed()
    told = dispatch.push_and_wait(claim, until=soon())
    assert isinstance(told, Met)
    assert isinstance(told.answer.result, result)
    operation.refresh_from_db()
    assert operation.state == state


def test_a_refused_connection_is_told_as_not_sent(web):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        targets_to(free.getsockname()[1])
        operation, claim = handed()
        told = dispatch.push_and_wait(claim, until=soon())
    assert isinstance(told.answer.result, NotSent)
    operation.refresh_from_db()
    assert operation.state == S.RESERVED


def test_a_request_that_can_wait_no_longer_learns_that_its_call_is_under_way(web):
    hang = Hang()
    web.script["provision"].append(hang)
    operation, claim = handed()
    assert dispatch.push_and_wait(claim, until=soon(0.3)) == Silent(sent=True)
    hang.release()
    until(operation, state=S.ACCEPTED)


def test_what_has_not_left_by_the_deadline_never_leaves_and_is_given_back(web):
    hangs = [Hang() for _ in range(32)]
    web.script["provision"].extend(hangs)
    dispatch.take([handed()[1] for _ in hangs])
    wait_until(lambda: len(web.seen) == 32)
    operation, claim = handed()
    told = []
    waiting = threading.Thread(target=lambda: told.append(dispatch.push_and_wait(claim, until=soon(0.2))))
    waiting.start()
    wait_until(lambda: claim.id in awaited._registry._withdrawn)
    for hang in hangs:
        hang.release()
    waiting.join(10)
    assert told == [Silent(sent=False)]
    until(operation, state=S.RESERVED, first_dispatched_at=None)
    assert len(web.seen) == 32
    assert awaited._registry.is_empty


def test_a_row_that_somebody_else_took_meanwhile_may_be_sent_by_them(web):
    claim = handed()[1]
    Operation.objects.update(epoch=2)
    assert dispatch.push_and_wait(claim, until=soon()) == Silent(sent=True)
    assert web.seen == []


def test_a_claim_that_is_too_old_to_start_is_told_as_never_sent(web):
    _, claim = handed()
    old = Claimed(claim.id, claim.epoch, claim.backend, claim.claimed_at - 3.1)
    assert dispatch.push_and_wait(old, until=soon()) == Silent(sent=False)
    assert web.seen == []


def test_many_requests_wait_at_once_and_others_may_join_one(web):
    claims = [handed()[1] for _ in range(20)]
    with awaited.expected(claims[0].id) as joined, ThreadPoolExecutor(20) as pool:
        told = list(pool.map(lambda claim: dispatch.push_and_wait(claim, until=soon()), claims))
        assert joined.wait(soon()) == told[0]
    assert [type(one.answer.result) for one in told] == [Accepted] * 20
    assert {one.answer.push.id for one in told} == {claim.id for claim in claims}
    assert awaited._registry.is_empty
