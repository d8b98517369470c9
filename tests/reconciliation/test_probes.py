"""Probes: every source is asked at once, none is waited for, what was heard is stored."""

import threading
import time
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from uuid import UUID

import pytest
from prometheus_client import REGISTRY

from backends.client import Health
from backends.models import HealthCheck
from fred.conf import BackendConfig
from leases.chain.client import Absent, BlockHead, Unknown
from reconciliation import probes

WELL = Health(healthy=True)


def test_answers_come_from_all_at_once():
    """P18, BC-72: nobody answers before all were asked, and each stands where it was asked"""
    meeting = threading.Barrier(3)

    def meet():
        meeting.wait(5)
        return WELL

    found = probes.ask(dict.fromkeys("bca", meet))
    assert list(found.items()) == [("b", WELL), ("c", WELL), ("a", WELL)]


def test_who_does_not_answer_in_time_is_unhealthy_and_delays_nobody():
    """P18, BC-72, BC-74"""
    never = threading.Event()

    def hang():
        never.wait(20)
        return WELL

    started = time.monotonic()
    found = probes.ask({"quick": lambda: WELL, "slow": hang}, limit_s=0.2)
    never.set()
    assert time.monotonic() - started < 5
    assert found["quick"] == WELL
    assert found["slow"] == Health(healthy=False, error="no answer within 0.2 s")


def test_a_crashing_probe_is_counted_and_unhealthy():
    """P18, BC-73"""

    def crashes():
        names = ("fred_backend_health_probe_panics_total", "fred_chain_health_probe_panics_total")
        return [REGISTRY.get_sample_value(name) for name in names]

    def crash():
        raise RuntimeError("boom")

    backends, chain = crashes()
    sick = Health(healthy=False, error="health probe panicked")
    assert probes.ask({"backend:x": crash, "backend:y": lambda: WELL}) == {"backend:x": sick, "backend:y": WELL}
    assert crashes() == [backends + 1, chain]
    assert probes.ask({"chain": crash}) == {"chain": sick}
    assert crashes() == [backends + 1, chain + 1]


def test_every_probe_is_timed_under_its_name_however_it_ends():
    def timed(check, backend):
        labels = {"check": check, "backend": backend}
        return REGISTRY.get_sample_value("fred_health_check_duration_seconds_count", labels) or 0

    def crash():
        raise RuntimeError("boom")

    before = timed("chain", ""), timed("backend", "timed")
    probes.ask({"chain": crash, "backend:timed": lambda: WELL})
    assert (timed("chain", ""), timed("backend", "timed")) == (before[0] + 1, before[1] + 1)


@pytest.fixture
def backend():
    """A backend that answers its health route with the status it is told to."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(self.server.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.status = 200
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join(10)
    server.server_close()


@pytest.mark.django_db(transaction=True)
def test_what_was_heard_is_stored_and_renewed(settings, backend):
    entries = (
        BackendConfig(name="up", url=f"http://127.0.0.1:{backend.server_port}"),
        BackendConfig(name="down", url="http://127.0.0.1:1"),
    )
    settings.FRED = settings.FRED.model_copy(update={"backends": entries})
    probes.probe_all()
    first = {check.name: (check.healthy, check.checked_at) for check in HealthCheck.objects.all()}
    assert {name: healthy for name, (healthy, _) in first.items()} == {
        "backend:up": True,
        "backend:down": False,
        "chain": False,
    }
    backend.status = 503
    probes.probe_all()
    again = HealthCheck.objects.get(name="backend:up")
    assert not again.healthy
    assert again.detail == "backend unhealthy: status 503"
    assert again.checked_at > first["backend:up"][1]


class Node:
    """A node that answers everything, at this height and time."""

    def __init__(self, *, height, age, lease):
        self.head, self.found = BlockHead(height, datetime.now(UTC) - age), lease

    def account(self, address):
        return None

    def latest_height(self):
        return self.head

    def lease(self, uuid):
        return self.found


LEASE = UUID("01890a5d-ac96-774b-bcce-b302099a8057")
READ = object()  # what a lease that is found looks like does not matter


@pytest.mark.parametrize(
    ("age_s", "found", "complaint"),
    [
        pytest.param(0, READ, "", id="as before"),
        pytest.param(25, READ, "", id="a little behind"),
        pytest.param(40, READ, "far behind", id="a lagging node"),
        pytest.param(0, Absent(100), "does not know lease", id="an empty chain"),
        pytest.param(0, Absent(99), "", id="a node of a moment before"),
        pytest.param(0, Unknown("silent"), "", id="no word about the lease"),
    ],
)
def test_a_node_that_contradicts_what_was_seen_is_unhealthy(monkeypatch, age_s, found, complaint):
    monkeypatch.setattr(probes.node, "client", lambda: Node(height=100, age=timedelta(seconds=age_s), lease=found))
    health = probes.probe_chain(probes.Known(datetime.now(UTC), LEASE, 100))
    assert health.healthy == (not complaint)
    assert complaint in health.error
