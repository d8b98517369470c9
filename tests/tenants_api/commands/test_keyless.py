"""Restart and update without a command key: the answers of today's clients."""

import hashlib
import json
import socket
from base64 import b64decode, b64encode
from itertools import repeat
from uuid import UUID, uuid4

import pytest
from django.db import connection

from backends import targets
from fred import breaker, metrics
from leases.status import LeaseState
from placements.command_status import CommandState as S
from placements.models import MaintenanceCommand, Operation, Placement
from tests.factories.leases import PayloadFactory
from tests.factories.placements import CommandFactory, OperationFactory
from tests.placements.due_rows import targets_to
from tests.scripted_backend import Hang, Reset
from tests.tenants_api.calls import CALL_LEAVES_S, bearer, envelope, token
from tests.tenants_api.commands.conftest import LIFECYCLE, OLD
from tests.tenants_api.vectors import LEASE
from tests.waiting import wait_until

NEW = b"the new manifest"
ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141


INTERNAL = envelope("internal server error", 500)
RESTARTS = [
    ((202, b"{}"), 202, {"status": "restarting"}),
    ((404, b"x"), 404, envelope("lease not yet provisioned", 404)),
    ((409, b'{"error":"no"}'), 409, envelope("invalid state for restart", 409)),
    ((409, b'{"error":"old","code":"maintenance_expired"}'), 409, envelope("invalid state for restart", 409)),
    ((400, b'{"error":"no"}'), 500, INTERNAL),
    ((500, b'{"error":"no"}'), 500, INTERNAL),
    ((503, b'{"error":"no","code":"insufficient_resources"}'), 500, INTERNAL),
    (Reset, 500, INTERNAL),
]


def test_ta64_restart(ask, another, backend, events):
    for answer, status, body in RESTARTS:
        breaker.forget()
        lease = another()
        backend.script["restart"].append(answer)
        found = ask("restart", path=lease)
        assert (found.status, found.body) == (status, body), answer
        assert found.headers["Content-Type"] == "application/json"
        assert events(lease) == (["restarting"] if status == 202 else [])
        assert backend.routes(lease) == ["restart"]
        assert backend.seen[-1].body["callback_url"].endswith(f"?lifecycle_id={LIFECYCLE}")


def test_ta64_a_time_out_is_500_and_the_outcome_is_still_recorded(ask, lease, backend, events, monkeypatch):
    monkeypatch.setattr("tenants_api.lease_route.WAIT_S", CALL_LEAVES_S)
    hang = Hang()
    backend.script["restart"].append(hang)
    found = ask("restart")
    assert (found.status, found.body) == (500, envelope("internal server error", 500))
    assert ask("restart").body == envelope("invalid state for restart", 409)
    hang.release()
    wait_until(lambda: events() == ["restarting"])
    assert backend.routes() == ["restart"]


def test_ta64_an_open_breaker_is_500_and_a_backend_that_is_away_too(ask, lease, backend):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        targets_to(free.getsockname()[1])
        assert ask("restart").body == envelope("internal server error", 500)
    command = MaintenanceCommand.objects.get()
    assert (command.state, command.refusal, command.settled_at) == (S.RESERVED, "not_sent", None)
    gate = breaker.of("docker-1")
    for _ in range(5):
        gate.record(gate.enter(limit=1), pulse="failure")
    command.delete()
    assert ask("restart").body == envelope("internal server error", 500)
    assert backend.seen == []


GOOD_BODIES = {
    b'{"payload":"dGVzdA=="}': b"test",
    b'{"payload":"dGVzdA=="} and more': b"test",
    b'{"payload":[104,105]}': b"hi",
    b'{"payload":"dGVzdA=="}{"payload":"aGk="}': b"test",
}
BAD_BODIES = {
    "invalid request body": [
        b'{"payload":"dGVzdA"}',
        b'{"payload":"-_8="}',
        b'{"payload":5}',
        b"[]",
        b"",
        b'{"payload":"' + b"A" * 1_048_576 + b'"}',
    ],
    "payload is required": [b"{}", b"null", b'{"payload":null}', b'{"payload":""}'],
}


@pytest.mark.parametrize("keys", [repeat(None), map(str, iter(uuid4, None))], ids=["keyless", "keyed"])
def test_ta65_update_bodies(ask, lease, backend, versions, keys):
    for text, bodies in BAD_BODIES.items():
        for body in bodies:
            assert ask("update", body=body, key=next(keys)).body == envelope(text, 400)
    assert (backend.seen, versions()) == ([], [("current", OLD)])
    for body, sent in GOOD_BODIES.items():
        assert ask("update", body=body, key=next(keys)).body == {"status": "updating"}
        assert backend.seen[-1].body["payload_hash"] == hashlib.sha256(sent).hexdigest()
        assert versions()[-1] == ("current", sent)


def test_ta66_an_accepted_update_is_what_a_provision_sends_from_now_on(ask, make_lease, backend, events, versions):
    lease = make_lease(meta_hash=hashlib.sha256(OLD).digest())
    PayloadFactory(lease=lease, body=OLD)
    found = ask("update", payload=NEW)
    assert (found.status, found.raw) == (202, b'{"status":"updating"}\n')
    assert versions() == [("superseded", OLD), ("current", NEW)]
    assert events() == ["updating"]
    lease.refresh_from_db()
    assert bytes(lease.meta_hash) == hashlib.sha256(OLD).digest()


def test_ta66_a_lease_that_never_had_a_payload_has_one_then(ask, make_lease, backend, versions):
    make_lease()
    assert ask("update", payload=NEW).status == 202
    assert versions() == [("current", NEW)]


UPDATES = [
    ((400, b'{"error":"service \\"web\\": bad port"}'), 400, 'service "web": bad port'),
    ((400, b'{"error":"\\u0001"}'), 400, "the update request was rejected as invalid"),
    ((404, b""), 404, "lease not yet provisioned"),
    ((409, b"<html>"), 409, "invalid state for update"),
    ((500, b"x"), 500, "internal server error"),
]


def test_ta67_a_refused_update_is_never_stored(ask, another, backend, versions, events):
    for answer, status, text in UPDATES:
        lease = another()
        backend.script["update"].append(answer)
        found = ask("update", payload=NEW, path=lease)
        assert (found.status, found.body) == (status, envelope(text, status))
        assert [body for state, body in versions(lease) if state == "current"] == [OLD]
        assert events(lease) == []


def test_ta68_an_error_that_is_none_is_502_and_nothing_of_it_is_shown(ask, another, backend, versions):
    counter = metrics.MALFORMED_ERROR_BODIES.labels("docker-1", "update")._value
    text = "the provider backend returned an unusable error; the request was not applied"
    for body in (b"no such thing /srv/host", b"<html>/srv/host", b'{"error":"/srv/host', b'{"message":"/srv/host"}'):
        before, lease = counter.get(), another()
        backend.script["update"].append((400, body))
        found = ask("update", payload=NEW, path=lease)
        assert (found.status, found.body) == (502, envelope(text, 502))
        assert versions(lease) == [("current", OLD)]
        assert counter.get() == before + 1
        assert ask("update", payload=NEW, path=lease).status == 202  # nothing of it is left open


def test_ta69_an_update_that_can_not_be_stored_is_500(ask, lease, backend, versions):
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION full_disk() RETURNS trigger AS $$ BEGIN RAISE EXCEPTION 'no'; END $$ LANGUAGE plpgsql;"
            "CREATE TRIGGER full_disk BEFORE UPDATE ON leases_payload EXECUTE FUNCTION full_disk();"
        )
    counter = metrics.PAYLOAD_PERSIST_FAILURES.labels("update")._value
    before = counter.get()
    try:
        found = ask("update", payload=NEW)
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TRIGGER full_disk ON leases_payload; DROP FUNCTION full_disk;")
    assert (found.status, found.body) == (500, envelope("internal server error", 500))
    assert counter.get() == before + 1
    assert ("current", OLD) in versions()


def test_ta119_while_another_command_or_an_operation_is_open_the_backend_is_not_called(ask, lease, backend):
    command = CommandFactory(lease=lease, backend_id="docker-1", backend=None)
    assert ask("restart").body == envelope("invalid state for restart", 409)
    assert ask("update", payload=NEW).body == envelope("invalid state for update", 409)
    command.delete()
    operation = OperationFactory(lease=lease, backend_id="docker-1", backend=None)
    assert ask("restart").body == envelope("invalid state for restart", 409)
    Operation.objects.filter(pk=operation.pk).update(settled_at=lease.first_seen_at)
    assert ask("restart").status == 202
    assert backend.routes() == ["restart"]


def test_who_may_not_gets_the_answer_of_every_route(ask, lease, make_lease, backend, chain):
    assert ask("restart", "bob").body == envelope("forbidden", 403)
    inactive = envelope("lease not found or not active", 404)
    for state, number in ((1, "c"), (3, "d")):
        other = f"0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5{number}"
        make_lease(other, chain_state=state)
        assert ask("restart", path=other).body == inactive
        assert ask("update", "bob", payload=NEW, path=other).body == inactive
    chain.add(UUID(LEASE), state=LeaseState.CLOSED, height=200)
    assert ask("restart").body == inactive  # as the chain says now, not as it is stored
    chain.fails = True
    assert ask("restart", path="0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5c").body == INTERNAL
    assert backend.seen == []


def test_ta43_a_placement_at_an_unknown_or_fenced_backend_is_503_and_none_is_asked_by_default(
    ask, lease, make_lease, backend
):
    lease.placement.backend.fenced = True
    lease.placement.backend.save()
    targets.forget()
    assert ask("restart").body == envelope("service unavailable", 503)
    lease.placement.backend.fenced = False
    lease.placement.backend.save()
    targets.forget()
    Placement.objects.all().delete()
    backend.always["restart"] = (404, b"")
    assert ask("restart").body == envelope("lease not yet provisioned", 404)
    assert backend.routes() == ["restart"]


def test_a_lease_that_was_found_at_its_backend_gets_a_callback_url_of_its_own(ask, lease, backend):
    Placement.objects.update(lifecycle_id=None)
    assert ask("restart").status == 202
    id_ = Placement.objects.get().lifecycle_id
    assert backend.seen[0].body["callback_url"].endswith(f"?lifecycle_id={id_}")


def test_ta05_a_token_is_good_for_one_command(ask, lease, backend):
    headers = bearer()
    assert ask("restart", headers=headers).status == 202
    assert ask("restart", headers=headers).body == envelope("unauthorized", 401)
    assert backend.routes() == ["restart"]


def test_ta06_the_twin_of_a_spent_token_is_spent_too(ask, lease, backend):
    text = token()
    fields = json.loads(b64decode(text))
    signature = b64decode(fields["signature"])
    twin = signature[:32] + (ORDER - int.from_bytes(signature[32:])).to_bytes(32)
    other = b64encode(json.dumps({**fields, "signature": b64encode(twin).decode()}).encode()).decode()
    assert ask("restart", headers={"Authorization": f"Bearer {text}"}).status == 202
    assert ask("restart", headers={"Authorization": f"Bearer {other}"}).body == envelope("unauthorized", 401)
    assert backend.routes() == ["restart"]


def test_two_commands_of_one_lease_have_rising_stamps_and_names_of_their_own(ask, lease, backend):
    assert ask("restart").status == 202
    assert ask("restart").status == 202
    first, second = MaintenanceCommand.objects.order_by("admitted_at")
    assert first.maintenance_id != second.maintenance_id
    assert {first.maintenance_id.version, second.maintenance_id.version} == {4}
    assert first.admitted_at < second.admitted_at
    assert (first.keyed, second.keyed) == (False, False)
