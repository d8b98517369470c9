"""Health, readiness, metrics and the router's own answers, through the whole application."""

from __future__ import annotations

import asyncio
import gzip
import threading
from datetime import timedelta

import orjson
import pytest
from django.db import connection
from django.http import HttpRequest
from django.utils.timezone import now

from backends.models import Backend, HealthCheck
from fred import checks, views
from fred.address_limit import OVER_LIMIT
from fred.asgi import application
from fred.health import Finding, Part, Prober, Question, Verdict
from reconciliation.models import Sweep, SweepBackend
from tests.asgi import request


def ask(method: str, path: str, **kwargs):
    return asyncio.run(request(application, method, path, **kwargs))


@pytest.fixture(autouse=True)
def fresh_prober():
    views._prober.cache_clear()
    prober = views._prober
    yield
    prober.cache_clear()


@pytest.fixture
def probed(transactional_db, valkey):
    HealthCheck.objects.create(name="chain", healthy=True)
    HealthCheck.objects.create(name="backend:mock-1", healthy=True)
    HealthCheck.objects.create(name="watcher", healthy=True)
    Backend.objects.create(name="mock-1", url="http://127.0.0.1:9000")
    sweep = Sweep.objects.create(state=Sweep.State.DONE, complete=True)
    SweepBackend.objects.create(sweep=sweep, backend="mock-1", complete=True)
    for process in ("worker", "beat"):
        valkey.set(f"fred:up:{process}:host:1", '{"version": "1", "fingerprint": "a"}')


@pytest.mark.parametrize("path", ["/health", "/readyz"])
def test_all_well_is_healthy(path, probed):
    answer = ask("GET", path)
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.body.endswith(b"}\n")
    body = answer.json()
    assert body["status"] == "healthy"
    assert body["provider_uuid"] == "01890a5d-ac96-774b-bcce-b302099a8057"
    assert list(body["checks"]) == [
        "backend:mock-1",
        "beat",
        "broker",
        "cache",
        "chain",
        "database",
        "payload_store",
        "placement_inventory",
        "placement_store",
        "token_tracker",
        "watcher",
        "workers",
    ]
    assert all(check == {"status": "healthy"} for check in body["checks"].values())
    assert body["stats"] == {"in_flight_provisions": 0}


def test_a_probe_older_than_a_minute_is_unhealthy_and_degrades(probed):
    with connection.cursor() as cursor:
        cursor.execute("UPDATE backends_healthcheck SET checked_at = now() - interval '61 s' WHERE name = 'chain'")
    answer = ask("GET", "/readyz")
    assert answer.status == 200
    assert answer.json()["status"] == "degraded"
    assert answer.json()["checks"]["chain"] == {"status": "unhealthy", "message": "chain connectivity failed"}


def test_before_any_backend_was_listed_to_the_end_nothing_is_ready(probed):
    SweepBackend.objects.update(complete=False)
    answer = ask("GET", "/readyz")
    assert answer.status == 503
    assert answer.json()["checks"]["placement_inventory"]["message"] == "placement inventory not ready"
    assert ask("GET", "/health").status == 200


def test_a_backend_that_was_never_listed_to_the_end_only_degrades_and_is_named(probed):
    SweepBackend.objects.update(backend="another")
    answer = ask("GET", "/readyz")
    assert (answer.status, answer.json()["status"]) == (200, "degraded")
    assert answer.json()["checks"]["placement_inventory"]["message"] == "never listed to the end: mock-1"


@pytest.mark.parametrize(
    "state",
    [
        pytest.param({"fenced": True, "fenced_by": Backend.BY_OPERATOR}, id="fenced"),
        pytest.param({"retired_at": "2026-01-01T00:00Z"}, id="retired"),
        pytest.param({"configured": False}, id="unconfigured"),
    ],
)
def test_a_backend_that_nobody_lists_is_not_missed(probed, state):
    SweepBackend.objects.update(backend="another")
    Backend.objects.update(**state)
    assert ask("GET", "/readyz").json()["checks"]["placement_inventory"] == {"status": "healthy"}


def test_probes_leave_no_log_line_and_a_change_of_the_verdict_leaves_one(probed, settings, caplog):
    good, settings.CELERY_BROKER_URL = settings.CELERY_BROKER_URL, "redis://127.0.0.1:1/0"
    prober = views._prober()
    prober._shared_for_s = -1.0
    assert {ask("GET", path).status for path in ("/readyz", "/health", "/readyz", "/readyz")} == {200, 503}
    settings.CELERY_BROKER_URL = good
    assert ask("GET", "/readyz").status == 200
    told = [(record.name, record.msg) for record in caplog.records if record.name in {"fred.health", "django.request"}]
    assert [event["msg"] for _, event in told] == ["health.check_failed", "health.verdict", "health.recovered"]
    assert told[1][1]["checks"] == {"broker": "broker unavailable"}


def test_a_sweep_that_missed_a_backend_leaves_the_last_complete_one_standing(probed):
    later = Sweep.objects.create(state=Sweep.State.DONE, complete=False)
    SweepBackend.objects.create(sweep=later, backend="mock-1", complete=False)
    assert ask("GET", "/readyz").json()["status"] == "healthy"


@pytest.mark.parametrize(
    ("break_it", "check"),
    [
        pytest.param(lambda valkey: valkey.delete("fred:up:worker:host:1"), "workers", id="no worker"),
        pytest.param(lambda valkey: valkey.delete("fred:up:beat:host:1"), "beat", id="no beat"),
        pytest.param(
            lambda _: HealthCheck.objects.filter(name="watcher").update(checked_at=now() - timedelta(seconds=61)),
            "watcher",
            id="a silent watcher",
        ),
        pytest.param(
            lambda _: HealthCheck.objects.filter(name="watcher").update(healthy=False, detail="no events"),
            "watcher",
            id="a watcher that complains",
        ),
        pytest.param(
            lambda _: HealthCheck.objects.filter(name="backend:mock-1").update(healthy=False),
            "backend:mock-1",
            id="backend",
        ),
    ],
)
def test_ta99_ta100_what_is_missing_elsewhere_only_degrades(probed, valkey, break_it, check):
    """A backend that accepts and never answers is one whose probe failed: whoever asks here waits for nobody."""
    break_it(valkey)
    answer = ask("GET", "/readyz")
    assert answer.status == 200
    body = answer.json()
    assert body["status"] == "degraded"
    assert [name for name, found in body["checks"].items() if found["status"] == "unhealthy"] == [check]


def test_ta99_a_backend_that_an_operator_fenced_is_said_to_be_fenced_at_once(probed, monkeypatch):
    Backend.objects.update(fenced=True, fenced_by=Backend.BY_OPERATOR)
    fenced = {"status": "unhealthy", "message": "backend is fenced"}
    answer = ask("GET", "/readyz")
    assert (answer.status, answer.json()["status"]) == (200, "degraded")
    assert answer.json()["checks"]["backend:mock-1"] == fenced
    monkeypatch.setattr(checks, "ask_database", None)  # the database is away: what was told last stands
    views._prober.cache_clear()
    answer = ask("GET", "/health")
    assert answer.json()["status"] == "unhealthy"
    assert answer.json()["checks"]["backend:mock-1"] == fenced


def test_without_broker_ready_is_503_and_health_200(probed, settings):
    settings.CELERY_BROKER_URL = "redis://127.0.0.1:1/0"
    ready = ask("GET", "/readyz")
    assert ready.status == 503
    assert ready.json()["checks"]["broker"] == {"status": "unhealthy", "message": "broker unavailable"}
    assert ask("GET", "/health").status == 200


def test_without_database_its_stores_are_unhealthy_and_remote_results_stay(probed, monkeypatch):
    assert ask("GET", "/readyz").status == 200

    def broken() -> Part:
        raise OSError("secret host name")

    monkeypatch.setattr(checks, "ask_database", broken)
    views._prober.cache_clear()
    answer = ask("GET", "/readyz")
    assert answer.status == 503
    body = answer.json()
    assert {name for name, check in body["checks"].items() if check["status"] == "unhealthy"} == {
        "database",
        "token_tracker",
        "placement_store",
        "payload_store",
        "placement_inventory",
    }
    assert "stats" not in body
    assert b"secret" not in answer.body


def test_a_check_that_hangs_costs_the_deadline_once_and_one_thread():
    release = threading.Event()
    started = []

    def hang() -> Part:
        started.append(1)
        release.wait(10)
        return Part([Finding("slow", local=True)])

    prober = Prober(
        [Question("slow", hang, lambda: Part([Finding("slow", local=True, message="slow unavailable")]))],
        deadline_s=0.05,
        shared_for_s=0.0,
    )
    assert prober.report().verdict is Verdict.UNHEALTHY
    assert prober.report().verdict is Verdict.UNHEALTHY
    assert len(started) == 1
    release.set()


def test_ta34_health_over_the_limit_tells_what_was_known_and_asks_nobody(monkeypatch):
    asked = []
    monkeypatch.setattr(views, "_prober", lambda: prober)
    prober = Prober(
        [Question("q", lambda: asked.append(1) or Part([Finding("x", local=True)]), lambda: Part([]))],
        shared_for_s=-1.0,
    )
    over = HttpRequest()
    over.method, over.scope = "GET", {OVER_LIMIT: True}
    within = HttpRequest()
    within.method = "GET"
    bodies = [orjson.loads(views.health(one).content) for one in (over, within, over, over)]
    assert [body["checks"] for body in bodies] == [{"x": {"status": "healthy"}}] * 4
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("findings", "verdict"),
    [
        pytest.param([Finding("a", local=True), Finding("b", local=False)], Verdict.HEALTHY, id="all good"),
        pytest.param([Finding("a", local=True), Finding("b", local=False, message="x")], Verdict.DEGRADED, id="remote"),
        pytest.param([Finding("a", local=True, message="x"), Finding("b", local=False)], Verdict.UNHEALTHY, id="local"),
        pytest.param(
            [Finding("a", local=True, message="x"), Finding("b", local=False, message="x")],
            Verdict.UNHEALTHY,
            id="both: the worse",
        ),
    ],
)
def test_verdict(findings, verdict):
    prober = Prober([Question("q", lambda: Part(findings), lambda: Part([]))])
    assert prober.report().verdict is verdict


def test_metrics_are_text_and_gzip_when_asked():
    ask("GET", "/metrics")
    plain = ask("GET", "/metrics")
    assert plain.status == 200
    assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert b"fred_api_requests_total" in plain.body
    packed = ask("GET", "/metrics", headers={"Accept-Encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert b"fred_api_requests_total" in gzip.decompress(packed.body)
    assert (
        ask("GET", "/metrics", headers={"Accept": "application/openmetrics-text"})
        .headers["content-type"]
        .startswith("application/openmetrics-text")
    )


def test_metrics_name_routes_never_paths():
    ask("GET", "/nobody/knows/this")
    assert b'path="unmatched"' in ask("GET", "/metrics").body
    ask("GET", "/metrics")
    body = ask("GET", "/metrics").body
    assert b'path="/metrics"' in body
    assert b"nobody" not in body


@pytest.mark.parametrize("path", ["/nothing", "/health/", "//health", "/a/../health", "/admin/", "/v1"])
def test_an_unknown_path_is_404_with_the_envelope(path):
    answer = ask("GET", path)
    assert answer.status == 404
    assert answer.body == b'{"error":"not found","code":404}\n'
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize("path", ["/health", "/readyz", "/metrics"])
@pytest.mark.parametrize("method", ["POST", "PUT", "OPTIONS"])
def test_another_method_is_405_and_names_those_allowed(method, path):
    answer = ask(method, path)
    assert answer.status == 405
    assert answer.headers["allow"] == "GET, HEAD"
    assert answer.json() == {"error": "method not allowed", "code": 405}


def test_the_callback_route_is_served_beside_django(transactional_db):
    assert ask("GET", "/callbacks/provision").headers["allow"] == "POST"
    refused = ask("POST", "/callbacks/provision", body=orjson.dumps({"lease_uuid": "x"}))
    assert refused.status == 401
    assert refused.headers["x-content-type-options"] == "nosniff"
