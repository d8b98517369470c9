"""Restarts and updates on their way to the backend: sent once, and written down with all that follows."""

import hashlib
import socket
from base64 import b64decode
from datetime import timedelta

from django.db import connection
from django.utils import timezone

from fred import breaker, metrics
from fred.tasks import DISPATCH
from leases import payload_versions
from leases.models import Lease, Payload, StatusEvent
from leases.status import LeaseState
from placements.command_status import CommandState as S
from placements.models import MaintenanceCommand
from reconciliation import tick
from tests.factories.leases import LeaseFactory, PayloadFactory
from tests.factories.placements import CommandFactory
from tests.placements.due_rows import targets_to, until
from tests.scripted_backend import Broken, Hang, Reset
from tests.waiting import wait_until

OLD, NEW = b"the old manifest", b"the new manifest"


def restart(**fields):
    """A restart of an ACTIVE lease that is due to be sent."""
    lease = fields.pop("lease", None) or LeaseFactory(chain_state=LeaseState.ACTIVE)
    now = timezone.now()
    return CommandFactory(lease=lease, due_at=now, valid_until=now + timedelta(seconds=60), **fields)


def update(**fields):
    """An update, of a lease with a payload, that is due to be sent."""
    lease = LeaseFactory(chain_state=LeaseState.ACTIVE)
    PayloadFactory(lease=lease, body=OLD)
    return restart(lease=lease, kind="update", payload_id=payload_versions.propose(lease.pk, NEW), **fields)


def versions(lease_uuid):
    """States and bytes of a lease's payloads, oldest first."""
    return [(one.state, bytes(one.body)) for one in Payload.objects.filter(lease=lease_uuid).order_by("id")]


def events(lease_uuid):
    return list(StatusEvent.objects.filter(lease=lease_uuid).order_by("id").values_list("status", "error"))


def test_a_restart_is_accepted_and_its_answer_is_decided_with_it(backend, sender):
    command = restart()
    backend.always["restart"] = (202, b'{"status":"restarting"}')
    sender.pull()
    until(command, state=S.ACCEPTED, due_at=None, on_wire_until=None)
    assert command.settled_at is not None
    assert command.finished_at is None
    (seen,) = backend.seen
    assert seen.body == {"lease_uuid": str(command.lease_id), "callback_url": command.callback_url}
    assert events(command.lease_id) == [("restarting", "")]
    lease = Lease.objects.get()
    assert (lease.due_at is not None, lease.touched_at is not None) == (True, True)


def test_ta66_an_update_is_in_force_with_the_202_and_carries_the_digest_an_older_backend_knows(backend, sender):
    command = update()
    backend.always["update"] = (202, b"{}")
    sender.pull()
    until(command, state=S.ACCEPTED)
    body = backend.seen[0].body
    assert set(body) == {"lease_uuid", "callback_url", "payload", "payload_hash"}
    assert body["payload_hash"] == hashlib.sha256(NEW).hexdigest()
    assert b64decode(body["payload"]) == NEW
    assert versions(command.lease_id) == [("superseded", OLD), ("current", NEW)]
    assert events(command.lease_id) == [("updating", "")]


def test_the_request_that_asked_for_it_is_named_to_the_backend_and_in_the_event(backend, sender):
    made = [restart(request_id="r-1"), update(request_id="r-2"), restart()]
    for kind in ("restart", "update"):
        backend.always[kind] = (202, b"{}")
    sender.pull()
    for command in made:
        until(command, state=S.ACCEPTED)
    told = {str(one.body["lease_uuid"]): one.headers.get("x-request-id", "") for one in backend.seen}
    assert told == {str(command.lease_id): command.request_id for command in made}
    named = dict(StatusEvent.objects.values_list("lease_id", "request_id"))
    assert named == {command.lease_id: command.request_id for command in made}


REFUSALS = [
    (True, "restart", (404, b"x"), "not_provisioned", "lease not provisioned"),
    (False, "restart", (409, b'{"error":"busy"}'), "invalid_state", "busy"),
    (True, "restart", (400, b'{"error":"no"}'), "validation", "no"),
    (True, "restart", (409, b'{"error":"old","code":"maintenance_expired"}'), "expired", "old"),
    (False, "restart", (409, b'{"error":"old","code":"maintenance_expired"}'), "invalid_state", "old"),
    (True, "update", (503, b'{"error":"full","code":"insufficient_resources"}'), "capacity", "full"),
    (False, "update", (400, b'{"error":"bad port"}'), "validation", "bad port"),
    (False, "update", (400, b"<html>"), "malformed", ""),
    (False, "restart", (400, b'{"error":"no"}'), "bad_request", ""),
]


def test_ta67_ta124_a_refusal_settles_the_command_and_forgets_the_proposal(backend, sender):
    made = [update(keyed=keyed) if kind == "update" else restart(keyed=keyed) for keyed, kind, *_ in REFUSALS]
    for command, (_, kind, answer, *_) in zip(made, REFUSALS, strict=True):
        backend.script[kind, str(command.lease_id)].append(answer)
    sender.pull()
    for command, (_, kind, _, refusal, error) in zip(made, REFUSALS, strict=True):
        until(command, state=S.REFUSED, refusal=refusal, error=error)
        assert None not in (command.settled_at, command.finished_at)
        assert events(command.lease_id) == []
        assert versions(command.lease_id) == ([("current", OLD)] if kind == "update" else [])


DOUBTS = [
    (False, (500, b'{"error":"x"}')),
    (False, (503, b'{"error":"full","code":"insufficient_resources"}')),
    (True, (503, b'{"error":"x","code":"lifecycle_pending"}')),
    (True, (400, b"<html>")),
    (True, Reset),
    (True, Broken),
]


def test_lc121_what_may_have_arrived_is_never_sent_again(backend, sender):
    made = [update(keyed=keyed) for keyed, _ in DOUBTS]
    for command, (_, answer) in zip(made, DOUBTS, strict=True):
        backend.script["update", str(command.lease_id)].append(answer)
    sender.pull()
    for command in made:
        until(command, state=S.IN_DOUBT, refusal="ambiguous", due_at=None)
        assert command.on_wire_until <= timezone.now()
        assert command.settled_at is None
        assert versions(command.lease_id) == [("current", OLD), ("proposed", NEW)]
    breaker.forget()
    tick.hint_overdue()
    sender.pull()
    wait_until(lambda: sender.is_idle)
    assert backend.routes() == ["update"] * len(DOUBTS)


def test_what_could_not_be_sent_is_sent_when_the_backend_is_there(backend, sender):
    url = backend.url
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        targets_to(free.getsockname()[1])
        command = restart()
        sender.pull()
        until(command, state=S.RESERVED, refusal="not_sent", first_dispatched_at=None)
    assert command.due_at > command.admitted_at + timedelta(seconds=0.8)
    assert command.settled_at is None
    backend.always["restart"] = (202, b"{}")
    targets_to(int(url.rpartition(":")[2]))
    breaker.forget()
    MaintenanceCommand.objects.update(due_at=timezone.now())
    assert DISPATCH in tick.hint_overdue()
    sender.pull()
    until(command, state=S.ACCEPTED, refusal="")


def test_nothing_else_is_sent(backend, sender):
    now = timezone.now()
    for fields in (
        {"valid_until": now - timedelta(seconds=1)},
        {"state": S.IN_DOUBT},
        {"state": S.ENDED, "settled_at": now},
        {"due_at": now + timedelta(seconds=60)},
    ):
        MaintenanceCommand.objects.filter(pk=restart().pk).update(**fields)
    other = restart()
    backend.always["restart"] = (202, b"{}")
    sender.pull()
    until(other, state=S.ACCEPTED)
    assert [one.lease for one in backend.seen] == [str(other.lease_id)]


def test_a_command_of_a_lease_that_has_ended_is_not_sent(backend, sender):
    ended = restart(lease=LeaseFactory(chain_state=LeaseState.CLOSED))
    other = restart()
    backend.always["restart"] = (202, b"{}")
    sender.pull()
    until(other, state=S.ACCEPTED)
    ended.refresh_from_db()
    assert (ended.state, len(backend.seen)) == (S.RESERVED, 1)


def test_a_fenced_backend_gets_nothing(backend, sender):
    command = restart()
    command.backend.fenced = True
    command.backend.save()
    sender.pull()
    wait_until(lambda: sender.is_idle)
    command.refresh_from_db()
    assert (command.state, backend.seen) == (S.RESERVED, [])


def test_the_claim_is_kept_while_the_call_lasts(backend, sender):
    command = restart()
    hang = Hang()
    backend.script["restart"].append(hang)
    sender.pull()
    until(command, state=S.IN_DOUBT)
    first = command.due_at

    def renewed():
        command.refresh_from_db()
        return command.due_at > first

    wait_until(renewed)
    hang.release()
    until(command, state=S.ACCEPTED)


def test_ta69_an_update_that_can_not_be_written_down_is_counted_once_and_stays_open(backend, sender):
    command = update()
    backend.always["update"] = (202, b"{}")
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION full_disk() RETURNS trigger AS $$ BEGIN RAISE EXCEPTION 'no'; END $$ LANGUAGE plpgsql;"
            "CREATE TRIGGER full_disk BEFORE UPDATE ON leases_payload EXECUTE FUNCTION full_disk();"
        )
    lost = metrics.PAYLOAD_PERSIST_FAILURES.labels("update")._value
    before = lost.get()
    try:
        sender.pull()
        wait_until(lambda: lost.get() == before + 1)
        wait_until(lambda: sender.is_idle)
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TRIGGER full_disk ON leases_payload; DROP FUNCTION full_disk;")
    command.refresh_from_db()
    assert (lost.get(), command.state, command.settled_at) == (before + 1, S.IN_DOUBT, None)
    assert versions(command.lease_id) == [("current", OLD), ("proposed", NEW)]
    assert events(command.lease_id) == []
