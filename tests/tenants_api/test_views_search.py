"""Which backends a read asks: all that may know at once, under one deadline, and none for a lease that is lost."""

import threading
import time
from uuid import UUID

import pytest

from backends.models import Backend
from leases.models import Lease
from leases.status import LeaseState
from placements.models import Placement
from tenants_api import backend_reads
from tests.factories.backends import BackendFactory
from tests.factories.placements import OperationFactory
from tests.tenants_api.calls import SKU, bearer, envelope
from tests.tenants_api.placed import placed
from tests.tenants_api.vectors import ALICE, BOB, LEASE

pytestmark = pytest.mark.django_db
PATH = f"/provisions/{LEASE}"
LOST = {
    "error": "the backend storage holding this lease was irrecoverably lost",
    "code": 410,
    "reason": "backend_storage_lost",
}


def found(status="ready", **fields):
    body = "".join(f',"{name}":"{value}"' for name, value in fields.items())
    return 200, f'{{"lease_uuid":"{LEASE}","status":"{status}"{body}}}'.encode()


def test_all_candidates_are_asked_at_once(ask, lease, backends):
    """Neither backend answers before both were asked."""
    both = threading.Barrier(2, timeout=10)

    def answer():
        both.wait()
        return 404, b"{}"

    for one in backends.all:
        one.answers[PATH] = answer
    assert ask("provision").body == envelope("provision not found", 404)


def test_a_hit_ends_the_wait(ask, lease, backends, monkeypatch):
    monkeypatch.setattr(backend_reads, "DEADLINE_S", 20.0)
    held = threading.Event()
    backends.one.answers[PATH] = lambda: held.wait(30) and (404, b"{}")
    backends.two.holds()
    began = time.monotonic()
    assert ask("provision").status == 200
    assert time.monotonic() - began < backend_reads.DEADLINE_S
    held.set()


def test_a_silent_placed_backend_leaves_time_for_the_others(ask, lease, backends, monkeypatch):
    monkeypatch.setattr(backend_reads, "HEAD_START_S", 0.1)
    placed(lease)
    held = threading.Event()
    backends.one.answers[PATH] = lambda: held.wait(30) and (404, b"{}")
    backends.two.holds()
    assert ask("status").body["provision_status"] == "ready"
    held.set()


def test_a_slow_placed_backend_is_asked_again_with_the_others(ask, lease, backends, monkeypatch):
    monkeypatch.setattr(backend_reads, "HEAD_START_S", 0.1)
    placed(lease)
    given_up = threading.Event()

    def answer():
        if len(backends.one.calls) == 1:
            given_up.wait(10)
        given_up.set()
        return found("updating")

    backends.one.answers[PATH] = answer
    assert ask("status").body["provision_status"] == "updating"
    assert len(backends.one.calls) == 2


def test_the_deadline_counts_for_all_together(ask, lease, backends, monkeypatch):
    monkeypatch.setattr(backend_reads, "HEAD_START_S", 0.1)
    monkeypatch.setattr(backend_reads, "DEADLINE_S", 0.4)
    placed(lease)
    held = threading.Event()
    for one in backends.all:
        one.answers[PATH] = lambda: held.wait(30) and (404, b"{}")
    began = time.monotonic()
    assert ask("provision").body == envelope("internal server error", 500)
    assert time.monotonic() - began < 10
    assert ask("status").status == 200
    held.set()


def test_ta132_a_drained_backend_that_only_an_attempt_names_is_asked(ask, lease, backends):
    """Backends of the SKU would be docker-2 alone."""
    Lease.objects.update(items=[{"sku": str(SKU), "quantity": 1}])
    OperationFactory(lease=lease, backend=BackendFactory(name="docker-1", drained=True))
    backends.one.holds(status="provisioning")
    assert ask("status").body["provision_status"] == "provisioning"


def test_every_backend_of_a_conflict_is_asked(ask, lease, backends):
    Lease.objects.update(items=[{"sku": str(SKU), "quantity": 1}])
    Placement.objects.create(lease=lease, status="conflict", candidates=["docker-1", "docker-2"])
    assert ask("provision").body == envelope("service temporarily unavailable", 503)
    assert (len(backends.one.calls), len(backends.two.calls)) == (1, 1)
    backends.one.holds()
    assert ask("provision").body["status"] == "ready"
    assert ask("connection").status == 503


def test_a_fenced_owner_is_503_whatever_the_others_say(ask, lease, backends, house):
    fenced = house.FRED.backends[0].model_copy(update={"fenced": True})
    house.FRED = house.FRED.model_copy(update={"backends": (fenced, house.FRED.backends[1])})
    placed(lease)
    backends.two.holds(code=500)
    found = ask("provision")
    assert (found.body, found.headers["Retry-After"]) == (envelope("service temporarily unavailable", 503), "1")
    for route in ("connection", "logs", "releases"):
        assert ask(route).body == envelope("service unavailable", 503)
    status = ask("status")
    assert (status.status, "provision_status" in status.body) == (200, False)
    assert backends.one.calls == []


def test_ta52_another_backends_record_does_not_hide_the_retained_one(ask, watcher, backends):
    backends.one.holds(status="ready", tenant=ALICE)
    backends.two.holds(status="retained", tenant=ALICE)
    assert ask("provision").body["status"] == "retained"
    assert ask("provision", "bob").body == envelope("lease not found", 404)


@pytest.mark.parametrize("route", ["status", "provision"])
def test_a_state_that_we_do_not_know_is_passed_through(route, ask, lease, backends):
    backends.one.holds(status="hibernating")
    assert ask(route).body["status" if route == "provision" else "provision_status"] == "hibernating"


@pytest.mark.parametrize("route", ["status", "provision"])
def test_ta131_a_terminal_budget_is_passed_on_unchanged(route, ask, lease, backends):
    budget = {"verdict": "exhausted", "consecutive_failures": 3}
    backends.one.holds(terminal_budget=budget)
    assert ask(route).body["terminal_budget"] == budget
    backends.one.holds(status="retained", terminal_budget=budget)
    assert "terminal_budget" not in ask(route).body
    backends.one.holds()
    assert "terminal_budget" not in ask(route).body


def lose(lease, **changes):
    placed(lease, status="lost", **changes)
    Backend.objects.update(retired_at=lease.first_seen_at)


def test_ta130_a_lost_lease_says_so_on_status(ask, lease, backends):
    lose(lease)
    body = ask("status").body
    assert {name: body.get(name) for name in ("provision_status", "reason", "message", "fail_count")} == {
        "provision_status": "failed",
        "reason": "BackendStorageLost",
        "message": LOST["error"],
        "fail_count": None,
    }
    assert (backends.one.calls, backends.two.calls) == ([], [])


@pytest.mark.parametrize("key", [None, "550e8400-e29b-41d4-a716-446655440000"])
@pytest.mark.parametrize("route", ["connection", "provision", "logs", "releases", "restart", "update"])
def test_ta130_every_other_route_of_a_lost_lease_is_410(route, key, ask, chain, lease, backends):
    chain.add(UUID(LEASE))
    lose(lease)
    body = {"restart": b"", "update": b'{"payload":"e30="}'}.get(route)
    named = {} if key is None else {"Idempotency-Key": key}
    gone = ask(route, headers={**bearer(), **named}, body=body)
    assert (gone.status, gone.body) == (410, LOST)
    assert ask(route, headers={**bearer("bob"), **named}, body=body).body == envelope("forbidden", 403)
    assert (backends.one.calls, backends.two.calls) == ([], [])


def test_ta130_an_inactive_lost_lease_is_only_inactive(ask, lease):
    Lease.objects.update(chain_state=LeaseState.CLOSED)
    lose(lease)
    assert ask("connection").body == envelope("lease not found or not active", 404)
    Lease.objects.update(tenant=BOB)
    assert ask("provision").body == envelope("forbidden", 403)
