"""POST restore: what becomes of the backend's answers, and of its silence."""

import json
import socket

import pytest

from backends import targets
from backends.client import Pulse
from fred import breaker
from leases.models import StatusEvent
from placements import dispatch
from placements.models import Operation, Placement
from placements.status import OperationState
from tests.placements.due_rows import handed
from tests.scripted_backend import Broken, Hang, Reset, row
from tests.tenants_api.calls import CALL_LEAVES_S
from tests.tenants_api.restores.restoring import ROWS, error
from tests.waiting import wait_until

pytestmark = ROWS
S = OperationState
UNUSABLE = error("the provider backend returned an unusable error; the request was not applied", 502)
INTERNAL = error("internal server error", 500)


DEMOTE = 'retained data exceeds the requested smaller tier: service "app": 2097152 bytes used exceeds disk_mb=1 cap'


def said(text, code=""):
    """An error body."""
    return json.dumps({"error": text, **({"code": code} if code else {})}).encode()


DEFINITE = {
    "400": (400, said("shape mismatch"), 400, "shape mismatch"),
    "400 without words": (400, said("\x01"), 400, "the restore request was rejected as invalid"),
    "409 empty": (409, b"", 409, "lease not in a restorable state"),
    "409": (409, said("reaping"), 409, "lease not in a restorable state"),
    "409 unknown code": (409, said("x", "draining"), 409, "lease not in a restorable state"),
    "409 but not there": (409, said("dup", "already_provisioned"), 409, "lease already provisioned"),
    "422 empty": (422, b"", 404, "no retained data found for that lease"),
    "422": (422, said("nope"), 404, "no retained data found for that lease"),
    "ta76 422 tier": (422, said(DEMOTE, "demote_exceeds_tier"), 422, DEMOTE),
    "ta77 422 unknown code": (422, said("draining, retry later", "draining"), 422, "draining, retry later"),
    "503": (503, said("full"), 503, "insufficient resources to restore"),
    "503 empty": (503, b"", 503, "insufficient resources to restore"),
    "404, no such route": (404, b"404 page not found", 500, "internal server error"),
}


def test_ta75_ta76_ta77_lc117_after_a_refusal_the_lease_is_free(restoring):
    source, target = restoring.source(), restoring.lease()
    for name, (status, body, answered, text) in DEFINITE.items():
        restoring.backend.script["restore"].append((status, body))
        found = restoring.ask(target, source)
        assert (found.status, found.body) == (answered, error(text, answered)), name
        assert not restoring.in_flight(target), name
        assert restoring.placed(target) is None, name
    assert restoring.placed(source) == ("docker-1", "confirmed")
    assert StatusEvent.objects.count() == 0
    assert restoring.ask(target, source).status == 202


def test_bc21_refusals_say_nothing_against_the_backend_and_all_reach_it(restoring):
    source, target = restoring.source(), restoring.lease()
    restoring.backend.script["restore"] += [(422, b"")] * 12
    assert {restoring.ask(target, source).status for _ in range(12)} == {404}
    assert not restoring.backend.script["restore"]
    assert breaker.of("docker-1").view().failures == 0


MALFORMED = [b"<html>", b"{}", b"null", b'{"message":"p"}', b'{"code":"already_provisioned"}', b'{"er']
UNKNOWN = [
    *(((status, body), 502) for status, body in zip((400, 409, 422) * 2, MALFORMED, strict=True)),
    ((400, b""), 502),
    ((500, said("boom")), 500),
    ((418, b""), 500),
    ((200, b"{}"), 500),
    (Reset, 500),
    (Broken, 500),
]


def test_ta75_ta79_after_an_unknown_outcome_the_lease_stays_in_flight(restoring):
    gate = breaker.of("docker-1")
    for answer, status in UNKNOWN:
        source, target = restoring.source(), restoring.lease()
        restoring.backend.script["restore"].append(answer)
        found = restoring.ask(target, source)
        assert (found.status, found.body) == (status, UNUSABLE if status == 502 else INTERNAL), answer
        assert restoring.operation(target).state == S.IN_DOUBT, answer
        again = restoring.ask(target, source)
        assert (again.status, again.body["reason"]) == (409, "target_busy"), answer
        assert restoring.placed(target) == ("docker-1", "attempted"), answer
        gate.record(gate.enter(limit=1.0), pulse=Pulse.SUCCESS)  # so that it stays closed
    assert len(restoring.posts()) == len(UNKNOWN)


@pytest.mark.parametrize(
    ("status", "body", "answered"), [(409, said("dup", "already_provisioned"), 409), (503, said("full"), 500)]
)
def test_ta75_what_the_backend_holds_after_all_stays_in_flight(restoring, status, body, answered):
    source, target = restoring.source(), restoring.lease()
    restoring.backend.script["restore"].append((status, body))
    restoring.backend.always["read"] = row(target.pk)
    assert restoring.ask(target, source).status == answered
    assert restoring.in_flight(target)


@pytest.mark.parametrize(
    ("answer", "counts"),
    [
        ((422, b"<html>"), True),
        ((500, said("boom")), True),
        ((409, said("x", "new")), False),
        ((400, said("shape mismatch")), False),
        ((422, said(DEMOTE, "demote_exceeds_tier")), False),
        ((503, said("full")), False),
    ],
    ids=str,
)
def test_ta75_the_breaker_counts_what_is_malformed_and_the_500s(restoring, answer, counts):
    source = restoring.source()
    for _ in range(5):
        restoring.backend.script["restore"].append(answer)
        target = restoring.lease()
        restoring.ask(target, source)
        Operation.objects.filter(lease=target, settled_at=None).update(settled_at="2026-01-01T00:00Z", state="ended")
    assert breaker.is_open("docker-1") is counts


def test_ta137_an_open_breaker_is_503_and_nothing_is_in_flight(restoring):
    source, target = restoring.source(), restoring.lease()
    gate = breaker.of("docker-1")
    for _ in range(5):
        gate.record(gate.enter(limit=1.0), pulse=Pulse.FAILURE)
    found = restoring.ask(target, source)
    assert (found.status, found.body) == (503, error("restore backend is temporarily unavailable", 503))
    assert restoring.backend.seen == []
    assert not restoring.in_flight(target)
    assert restoring.placed(target) is None


def test_a_connection_that_is_refused_is_500_and_nothing_is_in_flight(restoring, settings):
    source, target = restoring.source(), restoring.lease()
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        one, two = settings.FRED.backends
        settings.FRED = settings.FRED.model_copy(update={"backends": (one.model_copy(update={"url": url}), two)})
        targets.forget()
        found = restoring.ask(target, source)
    assert (found.status, found.body) == (500, INTERNAL)
    assert not restoring.in_flight(target)
    assert restoring.placed(target) is None


def test_when_the_budget_ends_after_the_call_left_it_is_500_and_the_answer_is_taken_when_it_comes(
    restoring, monkeypatch
):
    source, target = restoring.source(), restoring.lease()
    hang = Hang()
    restoring.backend.script["restore"].append(hang)
    monkeypatch.setattr("tenants_api.lease_route.WAIT_S", CALL_LEAVES_S)
    found = restoring.ask(target, source)
    assert (found.status, found.body) == (500, INTERNAL)
    hang.release()
    wait_until(lambda: restoring.operation(target).state == S.ACCEPTED)
    wait_until(lambda: StatusEvent.objects.filter(lease=target, status="restarting").exists())


def test_when_the_budget_ends_before_the_call_left_it_is_503_and_nothing_is_in_flight(restoring, monkeypatch):
    source, target = restoring.source(), restoring.lease()
    hangs = [Hang() for _ in range(32)]
    restoring.backend.script["provision"].extend(hangs)
    others = [handed(backend=Placement.objects.get(lease=source).backend)[1] for _ in hangs]
    dispatch.take(others)
    wait_until(lambda: len(restoring.backend.seen) == len(hangs))
    monkeypatch.setattr("tenants_api.lease_route.WAIT_S", 0.2)
    found = restoring.ask(target, source)
    assert (found.status, found.raw) == (503, b'{"error":"request timeout","code":503}')
    assert restoring.operation(target).refusal == "not_sent"
    assert not restoring.in_flight(target)
    assert restoring.placed(target) is None
    for hang in hangs:
        hang.release()
    restoring.until_sender_rests()
    assert restoring.posts() == []
