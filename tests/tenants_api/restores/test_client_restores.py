"""What the network's TypeScript client concludes from the answer to a restore, and whether it is right.

At some statuses it cancels the new lease at once, because nothing can have been restored into it; were that wrong, data
would be lost. docs/tenant-clients.md lists the branches.
"""

import json

from backends.client import Pulse
from fred import breaker
from placements.models import Operation
from tests.scripted_backend import Broken, Hang, Reset
from tests.tenants_api.calls import CALL_LEAVES_S, bearer
from tests.tenants_api.restores.restoring import ROWS
from tests.tenants_api.vectors import BOB

pytestmark = ROWS

CANCELS = {400, 401, 404, 409, 422, 429, 503}
TRIES_AGAIN = {429, 503}
"""Of these it says that the same may work later."""

BACKEND = [
    (202, b"{}"),
    (200, b"{}"),
    (400, b'{"error":"no"}'),
    (404, b"404 page not found"),
    (409, b""),
    (422, b""),
    (422, b'{"error":"too big","code":"demote_exceeds_tier"}'),
    (400, b"<html>"),
    (409, b"{}"),
    (422, b"null"),
    (500, b'{"error":"boom"}'),
    (502, b"bad gateway"),
    (503, b'{"error":"full","code":"insufficient_resources"}'),
    (504, b""),
    Reset,
    Broken,
]


def test_a_lease_that_the_client_cancels_has_nothing_under_way(restoring):
    """TA-79 too: what may have happened has none of the seven statuses."""
    gate, source, seen = breaker.of("docker-1"), restoring.source(), set()
    for answer in BACKEND:
        target = restoring.lease()
        restoring.backend.script["restore"].append(answer)
        found = restoring.ask(target, source)
        seen.add(found.status)
        if found.status in CANCELS:
            assert not restoring.in_flight(target), answer
            assert restoring.placed(target) is None, answer
        else:
            assert found.status in {202, 500, 502}, answer
        assert (found.headers.get("Retry-After") is not None) <= (found.status in TRIES_AGAIN), answer
        Operation.objects.filter(lease=target).delete()  # or it would own the source
        gate.record(gate.enter(limit=1.0), pulse=Pulse.SUCCESS)
    assert seen == {202, 400, 404, 409, 422, 500, 502, 503}


def test_what_the_client_sends_is_accepted_with_a_body_of_json(restoring):
    """A success without a body would count as one too; anything but a 2xx would not."""
    source, target = restoring.source(), restoring.lease()
    body = json.dumps({"from_lease_uuid": str(source.pk)}, separators=(",", ":"))
    found = restoring.ask(target, body=body)
    assert (found.status, found.raw) == (202, b'{"status":"provisioning"}\n')
    assert found.headers["Content-Type"] == "application/json"


def test_silence_after_the_call_left_is_undecided(restoring, monkeypatch):
    source, target = restoring.source(), restoring.lease()
    hang = Hang()
    restoring.backend.script["restore"].append(hang)
    monkeypatch.setattr("tenants_api.lease_route.WAIT_S", CALL_LEAVES_S)
    found = restoring.ask(target, source)
    hang.release()
    assert found.status == 500
    assert restoring.in_flight(target)
    restoring.until_sender_rests()


def test_what_is_refused_before_a_backend_is_asked(restoring, settings):
    """403 is one that the client takes for undecided: it is only sent for what is not the caller's."""
    source, target = restoring.source(), restoring.lease()
    used = bearer(lease=target.pk)
    foreign = restoring.lease(tenant=BOB)
    statuses = [
        restoring.ask(target, body="{}", headers=used).status,
        restoring.ask(target, source, headers=used).status,
        restoring.ask(foreign, source).status,
        restoring.ask("0190a1b2-c3d4-7e5f-8a9b-ffffffffffff", source).status,
    ]
    assert statuses == [400, 401, 403, 404]
    settings.FRED = settings.FRED.model_copy(update={"tenant_rate_limit_rps": 0.1, "tenant_rate_limit_burst": 1})
    assert restoring.ask(target, body="{}").status == 400
    limited = restoring.ask(target, source)
    assert (limited.status, limited.headers["Retry-After"]) == (429, "10")
    assert restoring.posts() == []
