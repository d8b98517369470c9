"""Commands of which nobody knows whether they ran: what ends the doubt, and what never does."""

import socket
from datetime import timedelta

from django.utils import timezone

from fred import breaker
from leases.models import Lease
from placements.command_status import CommandState as S
from placements.models import MaintenanceCommand
from placements.sender import Sender
from reconciliation.models import DecisionRecord
from tests.placements.due_rows import targets_to
from tests.tenants_api.calls import envelope
from tests.tenants_api.commands.conftest import OLD
from tests.tenants_api.commands.named import K1, K2, NEW, UNAVAILABLE, only
from tests.tenants_api.vectors import LEASE
from tests.waiting import wait_until


def test_ta125_a_doubt_ends_when_the_backend_is_seen_at_work(ask, lease, backend, look, shows, report, events):
    backend.script["restart"].append((500, b"x"))
    assert ask("restart", key=K1).status == 503
    shows("restarting")
    look()
    assert only().state == S.ACCEPTED
    assert ask("restart", key=K1).status == 202
    assert events() == ["restarting"]
    report("success")
    assert (only().state, events()) == (S.SUCCEEDED, ["restarting", "ready"])
    assert backend.routes().count("restart") == 1


def test_ta125_a_doubt_ends_with_the_next_report(ask, lease, backend, report, events):
    backend.script["restart"].append((500, b"x"))
    assert ask("restart", key=K1).status == 503
    report("failed", "restart failed")
    assert (only().state, only().error) == (S.FAILED, "restart failed")
    assert ask("restart", key=K1).body == envelope("invalid state for restart", 409)
    assert events() == [("failed", "restart failed")]


def test_ta125_a_doubt_ends_with_a_new_release(ask, lease, backend, look, shows, versions, events):
    backend.script["update"].append((500, b"x"))
    assert ask("update", key=K1, payload=NEW).status == 503
    assert versions() == [("current", OLD), ("proposed", NEW)]
    shows("ready", ("superseded", OLD), ("active", NEW))
    look()
    assert (only().state, events()) == (S.SUCCEEDED, ["ready"])
    assert versions() == [("superseded", OLD), ("current", NEW)]
    assert ask("update", key=K1, payload=NEW).status == 202


def test_a_doubt_that_nothing_ends_is_a_failure_after_ten_minutes(ask, lease, backend, look, shows, versions, events):
    backend.script["update"].append((500, b"x"))
    assert ask("update", key=K1, payload=NEW).status == 503
    shows("ready", ("active", OLD))
    MaintenanceCommand.objects.update(first_dispatched_at=timezone.now() - timedelta(seconds=601))
    Lease.objects.update(due_at=timezone.now())
    look()
    command = only()
    assert (command.state, command.refusal, events()) == (S.FAILED, "outcome_unknown", [])
    assert DecisionRecord.objects.filter(lease=LEASE, reason="outcome_unknown").count() == 1
    assert versions() == [("current", OLD), ("failed", NEW)]
    assert ask("update", key=K1, payload=NEW).body == envelope("invalid state for update", 409)
    assert ask("update", key=K2, payload=NEW).status == 202


def test_ta125_what_could_not_be_sent_runs_without_another_request(ask, lease, backend, events):
    port = int(backend.url.rpartition(":")[2])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        targets_to(free.getsockname()[1])
        assert ask("restart", key=K1).body == UNAVAILABLE
    stamp = only().admitted_at
    targets_to(port)
    breaker.forget()
    MaintenanceCommand.objects.update(due_at=timezone.now())
    worker = Sender()
    try:
        worker.pull()
        wait_until(lambda: only().state == S.ACCEPTED)
    finally:
        worker.drain(deadline=0.2)
    again = ask("restart", key=K1)
    assert (again.status, again.replayed, only().admitted_at) == (202, "true", stamp)
    assert (backend.routes(), events()) == (["restart"], ["restarting"])
