"""Restart and update with a command key: recorded before anything is sent, run once, answered alike for ever."""

import socket
import time
from uuid import UUID

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from backends import targets
from fred import breaker
from leases.models import Lease
from placements import dispatch
from placements.command_status import CommandState as S
from placements.models import Callback, MaintenanceCommand, Placement, Teardown
from placements.sender import Sender
from reconciliation import facts
from reconciliation.look import Looker
from tests.factories.placements import OperationFactory
from tests.placements.due_rows import targets_to
from tests.scripted_backend import Hang, Reset
from tests.tenants_api.calls import CALL_LEAVES_S, bearer, envelope
from tests.tenants_api.commands.conftest import OLD
from tests.tenants_api.commands.named import K1, K2, NEW, UNAVAILABLE, only
from tests.tenants_api.vectors import ALICE, LEASE
from tests.waiting import wait_until

RESTARTED = {"status": "restarting"}


def test_ta117_the_same_key_twice_is_one_call_and_two_equal_answers(ask, lease, backend, events):
    first, second = ask("restart", key=K1), ask("restart", key=K1)
    assert (first.status, first.body, first.replayed) == (202, RESTARTED, None)
    assert (second.status, second.raw, second.replayed) == (202, first.raw, "true")
    assert backend.routes() == ["restart"]
    assert set(backend.seen[0].body) == {"lease_uuid", "callback_url"}  # an older backend knows no names
    command = only()
    assert (str(command.maintenance_id), command.keyed, command.tenant) == (K1, True, ALICE)
    assert events() == ["restarting"]


def test_ta118_lc120_a_key_names_one_command_of_its_lease(ask, lease, backend):
    assert ask("update", key=K1, payload=NEW).status == 202
    conflict = envelope("Idempotency-Key conflicts with a prior maintenance command", 409)
    assert ask("update", key=K1, payload=b"other bytes").body == conflict
    assert ask("restart", key=K1).body == conflict
    assert ask("update", key=K1, payload=NEW).status == 202
    assert backend.routes() == ["update"]


def test_a_key_is_another_one_on_another_lease(ask, lease, make_lease, backend):
    other = "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5c"
    make_lease(other)
    assert ask("restart", key=K1).replayed is None
    assert ask("restart", key=K1, path=other).replayed is None
    assert [one.lease for one in backend.seen] == [LEASE, other]


def test_ta119_lc120_while_one_is_open_another_is_refused_and_the_same_joins(ask, lease, backend, run_in_threads):
    hang = Hang()
    backend.script["restart"].append(hang)
    answers = []

    def call(number):
        headers = {**bearer(timestamp=int(time.time()) - number), "Idempotency-Key": K1}
        return Client().post(f"/v1/leases/{LEASE}/restart", headers=headers)

    numbers = iter(range(2, 5))

    def one():
        answers.append(call(next(numbers)))

    def other():
        wait_until(lambda: backend.routes() == ["restart"])
        try:
            busy = envelope("lease is already undergoing a lifecycle operation", 409)
            assert ask("restart", key=K2).body == busy
            assert ask("update", key=K2, payload=NEW).body == busy
            assert ask("restart").body == envelope("invalid state for restart", 409)
        finally:
            hang.release()

    works = iter([one, one, one, other])

    def work():
        next(works)()

    run_in_threads(4, work)
    assert [(one.status_code, one.json()) for one in answers] == [(202, RESTARTED)] * 3
    assert sorted(one.headers.get("Idempotency-Replayed", "") for one in answers) == ["", "true", "true"]
    assert backend.routes() == ["restart"]


def test_ta123_a_refusal_is_kept_with_its_text(ask, another, backend, versions):
    said = b'{"error":"services.web.image:\\nregistry is not allowed\\u001b","validation_code":"image_not_allowed"}'
    shown = envelope("services.web.image: registry is not allowed", 400)
    for kind, payload in (("restart", None), ("update", NEW)):
        lease = another()
        backend.script[kind].append((400, said))
        first, second = (ask(kind, key=K1, payload=payload, path=lease) for _ in range(2))
        assert (first.body, first.replayed) == (shown, None)
        assert (second.body, second.replayed) == (shown, "true")
        assert backend.routes(lease) == [kind]
        assert versions(lease) == [("current", OLD)]


EXPIRED = "this command is older than the lease's retained maintenance history and was not run; send a new command"
REFUSALS = [
    ((404, b""), envelope("lease not yet provisioned", 404), None),
    ((409, b"<html>"), envelope("invalid state for update", 409), None),
    (
        (409, b'{"error":"too old","code":"maintenance_expired"}'),
        {**envelope(EXPIRED, 410), "reason": "maintenance_expired"},
        None,
    ),
    ((400, b'{"error":"\\u0007"}'), envelope("the update request was rejected as invalid", 400), None),
    (
        (503, b'{"error":"full","code":"insufficient_resources"}'),
        UNAVAILABLE,
        {**UNAVAILABLE, "reason": "capacity_refused"},
    ),
]


def test_ta124_every_refusal_is_definite_and_replayed(ask, another, backend, versions):
    for answer, first, second in REFUSALS:
        lease = another()
        backend.script["update"].append(answer)
        found, again = (ask("update", key=K1, payload=NEW, path=lease) for _ in range(2))
        assert (found.status, found.body, found.replayed) == (first["code"], first, None)
        assert (again.status, again.body, again.replayed) == (first["code"], second or first, "true")
        assert backend.routes(lease) == ["update"]
        assert versions(lease) == [("current", OLD)]
        assert ask("update", key=K2, payload=NEW, path=lease).status == 202


def test_ta125_lc121_what_may_have_run_is_503_and_is_not_sent_a_second_time(ask, another, backend, look, shows):
    for answer in ((500, b"x"), (503, b'{"error":"x"}'), (400, b"<html>"), Reset):
        breaker.forget()
        lease = another()
        backend.script["restart"].append(answer)
        found = ask("restart", key=K1, path=lease)
        assert (found.status, found.body, found.headers["Retry-After"]) == (503, UNAVAILABLE, "1")
        command = MaintenanceCommand.objects.get(lease=lease)
        assert (command.state, command.refusal) == (S.IN_DOUBT, "ambiguous")
        assert ask("restart", key=K1, path=lease).body == UNAVAILABLE
        shows("ready", lease=lease)
        look()
        stored = Lease.objects.get(pk=lease)
        assert (stored.phase, stored.reason) == ("maintaining", "in_doubt")
        assert ask("restart", key=K2, path=lease).status == 409
        assert backend.routes(lease).count("restart") == 1


def test_ta126_a_failed_update_leaves_the_payload_before_it_in_force(ask, lease, backend, report, shows, versions):
    assert ask("update", key=K1, payload=NEW).status == 202
    assert versions() == [("superseded", OLD), ("current", NEW)]
    shows("ready", ("active", OLD), ("failed", NEW))
    report("failed", "container exited during startup; rolled back to previous version")
    assert versions() == [("current", OLD), ("failed", NEW)]
    again = ask("update", key=K1, payload=NEW)
    assert (again.body, again.replayed) == (envelope("invalid state for update", 409), "true")
    assert ask("update", key=K2, payload=NEW).status == 202
    shows("ready", ("superseded", OLD), ("failed", NEW), ("active", NEW))
    report("success")
    assert versions()[-1] == ("current", NEW)
    assert ask("update", key=K2, payload=NEW).status == 202
    assert backend.routes().count("update") == 2


def test_ta70_a_workload_that_died_later_takes_no_good_update_back(
    ask, lease, backend, report, shows, versions, events
):
    assert ask("update", payload=NEW).status == 202
    shows("ready", ("superseded", OLD), ("active", NEW))
    report("success")
    report("failed", "container exited unexpectedly")
    assert versions() == [("superseded", OLD), ("current", NEW)]
    assert events() == ["updating", "ready", ("failed", "container exited unexpectedly")]


def test_ta70_a_failed_update_without_a_key(ask, lease, backend, report, shows, versions, events):
    assert ask("update", payload=NEW).status == 202
    shows("ready", ("active", OLD), ("failed", NEW))
    report("failed", "update failed")
    assert versions() == [("current", OLD), ("failed", NEW)]
    assert events() == ["updating", ("failed", "update failed")]


def test_ta90_a_restart_and_its_end_as_subscribers_see_it(ask, lease, backend, report, events):
    assert ask("restart").status == 202
    report("success")
    assert events() == ["restarting", "ready"]


def test_ta96_two_changes_of_one_second_end_with_the_same_words(ask, lease, backend, report, events):
    assert ask("update", payload=b"new").status == 202
    report("success", words="same")
    report("success", words="same", repeated=True)
    assert events() == ["updating", "ready"], "a repeat of a delivery has no effect"
    assert ask("restart").status == 202
    report("success", words="same", repeated=True)
    assert events() == ["updating", "ready", "restarting", "ready"]
    report("success", words="same", repeated=True)
    assert len(events()) == 4


@pytest.mark.parametrize("gathered", ["before the second restart", "after it"])
def test_ta96_the_same_words_about_a_second_restart_count_before_a_look_used_the_first(
    ask, lease, backend, report, events, gathered
):
    assert ask("restart").status == 202
    report("success", words="same", unread=True)
    if gathered == "after it":
        assert ask("restart").status == 202
    gathers = []

    def overtaken(epochs, sources):
        known = facts.gather(epochs, sources)
        gathers.append(len(known[0]))
        if len(gathers) == 1:
            if gathered == "before the second restart":
                assert ask("restart").status == 202
            for repeated in (False, True, True):
                report("success", words="same", repeated=repeated, unread=True)
            assert Callback.objects.count() == 2, "deliveries that are repeated are one row"
        return known

    Looker(pushes=False, gather=overtaken).at_due_leases()
    assert [one.state for one in MaintenanceCommand.objects.all()] == [S.SUCCEEDED, S.SUCCEEDED]
    assert (gathers[0], len(gathers) > 1) == (1, True), "a look that had not seen the second report ended"
    assert events() == ["restarting", "restarting", "ready", "ready"]
    assert not Callback.objects.filter(applied_at=None).exists()


def test_ta127_leases_that_can_not_have_commands(ask, lease, make_lease, backend, chain):
    pending, closed, bobs = (f"0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a0{number}" for number in range(3))
    make_lease(pending, chain_state=1)
    make_lease(closed, chain_state=3)
    make_lease(bobs, tenant="manifest1somebodyelse")
    ended = envelope("lease is no longer active", 409)
    assert ask("restart", key=K1, path=pending).body == ended
    assert ask("update", key=K1, path=closed, payload=NEW).body == ended
    assert ask("restart", key=K1, path=bobs).body == envelope("forbidden", 403)
    unknown = "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a0f"
    assert ask("restart", key=K1, path=unknown).body == envelope("lease not found", 404)
    del chain.known[UUID(LEASE)]
    assert ask("restart", key=K1).body == UNAVAILABLE  # it was known once
    chain.fails = True
    assert ask("restart", key=K2).body == UNAVAILABLE
    assert (backend.seen, MaintenanceCommand.objects.count()) == ([], 0)


def test_ta127_ops101_at_a_fenced_backend_nothing_is_recorded(ask, lease, backend):
    lease.placement.backend.fenced = True
    lease.placement.backend.save()
    targets.forget()
    assert ask("restart", key=K1).body == UNAVAILABLE
    Placement.objects.all().delete()
    lease.placement.backend.fenced = False
    lease.placement.backend.save()
    assert ask("restart", key=K1).body == UNAVAILABLE  # placed nowhere
    assert (MaintenanceCommand.objects.count(), backend.seen) == (0, [])


def test_ta127_a_settled_command_is_replayed_without_the_chain(ask, lease, backend, chain, look):
    assert ask("restart", key=K1).status == 202
    Lease.objects.update(chain_state=3, due_at=timezone.now())
    look()
    chain.fails, chain.asked = True, []
    again = ask("restart", key=K1)
    assert (again.status, again.body, again.replayed) == (202, RESTARTED, "true")
    assert chain.asked == []
    assert ask("restart", key=K2).body == envelope("lease is no longer active", 409)


def test_ta130_a_lost_lease_is_410(ask, lease, backend):
    Placement.objects.update(status=Placement.Status.LOST)
    gone = {
        **envelope("the backend storage holding this lease was irrecoverably lost", 410),
        "reason": "backend_storage_lost",
    }
    assert ask("restart", key=K1).body == gone
    assert ask("update", payload=NEW).body == gone
    assert backend.seen == []


def test_an_end_that_comes_before_the_backend_could_be_told_ends_the_command(ask, lease, backend, look, versions):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        targets_to(free.getsockname()[1])
        assert ask("update", key=K1, payload=NEW).body == UNAVAILABLE
    Lease.objects.update(chain_state=3, due_at=timezone.now())
    look()
    command = only()
    assert (command.state, command.refusal, command.due_at) == (S.ENDED, "lease_ended", None)
    assert ask("update", key=K1, payload=NEW).body == envelope("lease is no longer active", 409)
    assert versions() == [("current", OLD)]


def test_lc112_nothing_is_torn_down_while_a_command_is_on_the_wire(ask, lease, backend, look, monkeypatch):
    monkeypatch.setattr("tenants_api.lease_route.WAIT_S", CALL_LEAVES_S)
    hang = Hang()
    backend.script["restart"].append(hang)
    assert ask("restart", key=K1).body == UNAVAILABLE
    Lease.objects.update(chain_state=3, due_at=timezone.now())
    look()
    stored = Lease.objects.get()
    assert (stored.phase, stored.reason) == ("tearing_down", "command_on_wire")
    assert not Teardown.objects.exists()
    hang.release()
    wait_until(lambda: only().state == S.ACCEPTED)
    look()
    assert Teardown.objects.get().backend_id == "docker-1"
    assert (only().state, only().finished_at is None) == (S.ACCEPTED, False)
    assert ask("restart", key=K1).status == 202


def test_another_command_waits_for_an_open_operation(ask, lease, backend):
    operation = OperationFactory(lease=lease, backend_id="docker-1", backend=None)
    busy = envelope("lease is already undergoing a lifecycle operation", 409)
    assert ask("restart", key=K1).body == busy
    operation.delete()
    assert ask("restart", key=K1).status == 202


def test_a_process_without_a_free_slot_leaves_the_sending_to_others(ask, lease, backend, monkeypatch):
    monkeypatch.setattr(dispatch, "free", lambda _: 0)
    worker = Sender()
    try:
        monkeypatch.setattr("reconciliation.command_admission.hint.send", lambda _: worker.pull())
        assert ask("restart", key=K1).body == RESTARTED
    finally:
        worker.drain(deadline=0.2)
    assert backend.routes() == ["restart"]


def test_twenty_requests_with_one_key_are_one_command(lease, backend, run_in_threads):
    moments = iter(range(20))
    now = int(time.time())

    def call():
        headers = {**bearer(timestamp=now + 8 - next(moments)), "Idempotency-Key": K1}
        return Client().post(f"/v1/leases/{LEASE}/restart", headers=headers)

    answers = run_in_threads(20, call)
    assert {(one.status_code, one.content) for one in answers} == {(202, b'{"status":"restarting"}\n')}
    assert sum("Idempotency-Replayed" in one.headers for one in answers) == 19
    assert backend.routes() == ["restart"]


def test_a_database_that_takes_nothing_is_503_with_a_key_and_500_without(ask, lease, backend):
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION full_disk() RETURNS trigger AS $$ BEGIN RAISE EXCEPTION 'no'; END $$ LANGUAGE plpgsql;"
            "CREATE TRIGGER full_disk BEFORE INSERT ON placements_maintenancecommand EXECUTE FUNCTION full_disk();"
        )
    try:
        assert ask("restart", key=K1).body == UNAVAILABLE
        assert ask("restart").body == envelope("internal server error", 500)
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TRIGGER full_disk ON placements_maintenancecommand; DROP FUNCTION full_disk;")
    assert backend.seen == []
