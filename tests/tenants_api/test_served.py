"""The tenant routes through the real server: what a client sees byte for byte, on connections of its own."""

from __future__ import annotations

import hashlib
import json
import time
from contextlib import ExitStack, suppress
from types import SimpleNamespace
from uuid import UUID

import pytest
from django.db import connections

from fred.upgrade import is_events_target
from leases.models import Lease
from leases.status import LeaseState
from tenants_api import auth, tokens
from tests.fred.served import Answer, served, upgrade
from tests.tenants_api.calls import bearer, envelope
from tests.tenants_api.vectors import LEASE

with_rows = pytest.mark.django_db(transaction=True)
ORIGIN = "https://admin.example.com"
SECURITY = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "x-xss-protection": "1; mode=block",
    "cache-control": "no-store",
}
ALWAYS = {*SECURITY, "date", "content-type", "content-length", "x-request-id", "traceparent", "vary"}
OVER_THE_CAP = 1_048_577


def serve():
    from fred.web import compose

    return served(compose(), opens_socket=is_events_target)


@pytest.fixture(scope="module")
def server():
    """The whole application with the settings of all tests, without a database."""
    with serve() as one:
        yield one


@pytest.fixture
def start(settings, valkey):
    """`start(rate_limit_burst=…)`: serve it with other settings until the test ends."""
    with ExitStack() as stack:

        def begin(**changes):
            settings.FRED = settings.FRED.model_copy(update=changes)
            return stack.enter_context(serve())

        yield begin


@pytest.fixture
def server_of_lease(house, chain, lease, monkeypatch):
    """The same with the lease of the acceptance cases; as in that process no thread keeps its connection."""
    monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", 0)
    with serve() as one:
        yield one


def call(method, target, headers=None, body=None):
    """A request as bytes."""
    named = {"Host": "anything.example", **(headers or {})}
    if body is not None:
        named["Content-Length"] = str(len(body))
    head = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    return f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode() + (body or b"")


def route(name, lease=LEASE):
    return f"/v1/leases/{lease}/{name}"


def said(answer: Answer):
    return answer.status, json.loads(answer.body)


@pytest.mark.parametrize(
    ("method", "target", "status", "allow"),
    [
        ("GET", "/nope", 404, None),
        ("POST", "/health", 405, "GET, HEAD"),
        ("GET", route("restart"), 405, "POST"),
        ("GET", "/health/", 404, None),
        ("GET", route("nope"), 404, None),
        ("DELETE", route("status"), 405, "GET, HEAD"),
        ("OPTIONS", route("status"), 405, "GET, HEAD"),
        ("GET", "/callbacks/provision", 405, "POST"),
        ("POST", route("events"), 405, "GET, HEAD"),
        ("GET", route("status/"), 404, None),
        ("GET", "//health", 404, None),
        ("GET", "/a/../health", 404, None),
        ("GET", "/v1/leases/../health", 404, None),
        ("GET", "/v1/leases/%2e%2e/status", 404, None),
        ("GET", route("info"), 404, None),
        ("GET", route("status"), 401, None),
        ("GET", "/v1/leases/a%2Fb/status", 401, None),
    ],
)
def test_ta22_ta23_what_the_router_answers(server, method, target, status, allow):
    texts = {401: "unauthorized", 404: "not found", 405: "method not allowed"}
    for headers in ({}, {"Origin": ORIGIN}):
        answer = server.ask(call(method, target, headers))
        assert said(answer) == (status, envelope(texts[status], status))
        assert answer.headers.get("allow") == allow
        cors = {"access-control-allow-origin", "access-control-expose-headers"} if headers else set()
        if method == "DELETE":
            cors = set()
        assert set(answer.headers) == ALWAYS | cors | ({"allow"} if allow else set())
        assert {name: answer.headers[name] for name in SECURITY} == SECURITY
        assert answer.headers["vary"] == "Origin"
        assert answer.headers["content-type"] == "application/json"


def test_ta23_a_503_of_ours_has_the_same_headers_and_says_when_to_come_back(server):
    answer = server.ask(call("POST", "/callbacks/provision"))  # no database, so nobody knows who is fenced
    assert said(answer) == (503, envelope("service temporarily unavailable", 503))
    assert set(answer.headers) == ALWAYS | {"retry-after"}
    assert answer.headers["retry-after"] == "1"


def test_ta22_head_has_the_head_of_get(server):
    with server.connect() as line:
        line.send(call("GET", "/health"))
        whole = line.answer()
        line.send(call("HEAD", "/health") + call("GET", "/nope"))
        head = line.answer(head_only=True)
        assert (head.status, head.headers["content-type"]) == (200, "application/json")
        assert set(head.headers) == set(whole.headers)
        assert line.answer().status == 404


@with_rows
def test_ta23_ta24_ta26_headers_of_good_and_bad_answers(server_of_lease):
    server = server_of_lease
    good = server.ask(call("GET", route("status"), {**bearer(), "Origin": ORIGIN}))
    assert good.status == 200
    assert good.headers["access-control-allow-origin"] == "*"
    assert {name: good.headers[name] for name in SECURITY} == SECURITY
    refused = server.ask(upgrade(route("events").encode(), Origin=ORIGIN.encode()))
    assert said(refused) == (401, envelope("unauthorized", 401))
    assert {name: refused.headers[name] for name in SECURITY} == SECURITY
    assert (refused.headers["vary"], refused.headers["access-control-allow-origin"]) == ("Origin", "*")
    asked = {
        "Origin": ORIGIN,
        "Access-Control-Request-Method": "GET",
        "Access-Control-Request-Headers": "authorization",
    }
    preflight = server.ask(call("OPTIONS", route("connection"), asked))
    assert (preflight.status, preflight.body) == (204, b"")
    assert set(preflight.headers) == {
        "date",
        "vary",
        "access-control-allow-origin",
        "access-control-allow-methods",
        "access-control-allow-headers",
        "access-control-max-age",
        "x-request-id",
        "traceparent",
    }


def test_ta24_only_configured_origins_may_read(start):
    server = start(cors_origins=(ORIGIN,))
    asked = {"Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "authorization"}
    allowed = server.ask(call("OPTIONS", route("connection"), {**asked, "Origin": ORIGIN}))
    assert allowed.headers["access-control-allow-origin"] == ORIGIN
    evil = server.ask(call("OPTIONS", route("connection"), {**asked, "Origin": "https://evil.example.com"}))
    assert evil.status == 204
    assert "access-control-allow-origin" not in evil.headers


def test_ta24_without_origins_there_is_no_cors_and_a_preflight_is_a_plain_request(start):
    server = start(cors_origins=())
    answer = server.ask(call("GET", "/health", {"Origin": ORIGIN}))
    assert not [name for name in answer.headers if name.startswith("access-control") or name == "vary"]
    asked = {"Origin": ORIGIN, "Access-Control-Request-Method": "GET"}
    assert server.ask(call("OPTIONS", "/health", asked)).status == 405


def test_ta25_ta34_preflights_and_health_cost_nothing_that_anybody_misses(start):
    server = start(rate_limit_rps=0.01, rate_limit_burst=20)
    asked = {"Origin": ORIGIN, "Access-Control-Request-Method": "GET"}
    with server.connect() as line:
        for _ in range(200):
            line.send(call("OPTIONS", route("connection"), asked))
            assert line.answer().status == 204
        statuses = []
        for _ in range(22):
            line.send(call("GET", "/metrics", {"Origin": ORIGIN}))
            statuses.append((answer := line.answer()).status)
        assert statuses == [200] * 20 + [429] * 2
        assert said(answer) == (429, envelope("rate limit exceeded", 429))
        assert answer.headers["retry-after"] == "100"
        assert answer.headers["access-control-allow-origin"] == "*"
        assert {name: answer.headers[name] for name in SECURITY} == SECURITY
        for _ in range(100):
            line.send(call("GET", "/health"))
            assert line.answer().status == 200
        line.send(call("GET", route("status"), {**bearer(), "Accept": "application/problem+json"}))
        problem = line.answer()
    assert problem.status == 429
    assert problem.headers["content-type"] == "application/problem+json"
    assert json.loads(problem.body)["error_code"] == "rate_limited_ip"


@with_rows
def test_ta27_ta31_media_types_do_not_matter_and_an_id_comes_back(server_of_lease):
    server = server_of_lease
    headers = {**bearer(), "Accept": "text/html", "Content-Type": "text/weird", "X-Request-ID": "abc"}
    answer = server.ask(call("GET", route("status"), headers))
    assert (answer.status, answer.headers["x-request-id"]) == (200, "abc")
    other = server.ask(call("GET", "/nope", {"X-Request-ID": "a b"}))
    assert other.headers["x-request-id"] != "a b"


@with_rows
def test_a_pipelined_request_is_judged_by_itself(server_of_lease, monkeypatch):
    """The first one's token is verified ahead of its checks, the second one's by them: a body is announced."""
    later = SimpleNamespace(time=lambda: time.time() + tokens.MAX_AGE_S + 1)
    monkeypatch.setattr(auth, "time", later)
    same = bearer()
    first, second = call("GET", route("status"), same), call("GET", route("status"), same, b"")
    with server_of_lease.connect() as line:
        line.send(first + second)
        assert [line.answer().status for _ in range(2)] == [200, 401]


@with_rows
def test_ta29_a_body_over_the_cap_ends_the_connection(server_of_lease, chain):
    chain.add(UUID(LEASE))  # an update reads it anew
    body = b"x" * OVER_THE_CAP
    assert_closed(server_of_lease, call("POST", route("update"), bearer(), body), 400, "invalid request body")
    digest = hashlib.sha256(b"").digest()
    Lease.objects.update(chain_state=LeaseState.PENDING, meta_hash=digest)
    token = bearer(meta_hash=digest.hex())
    whole = call("POST", route("data"), token, body)
    chunks = call("POST", route("data"), {**token, "Transfer-Encoding": "chunked"}) + b"%x\r\n%b\r\n0\r\n\r\n" % (
        len(body),
        body,
    )
    for request in (whole, chunks):
        assert_closed(server_of_lease, request, 400, "failed to read request body")


def assert_closed(server, request, status, text):
    with server.connect() as line:
        with suppress(OSError):  # it may stop reading before the end
            line.send(request)
        answer = line.answer()
        assert said(answer) == (status, envelope(text, status))
        assert answer.headers["connection"] == "close"
        assert line.rest() == b""


@pytest.mark.parametrize("name", ["data", "update", "restore"])
def test_ta19_without_a_token_an_oversize_body_is_401(server, name):
    assert_closed(server, call("POST", route(name), body=b"x" * OVER_THE_CAP), 401, "unauthorized")


def test_ta30_scans_of_random_paths_are_one_series(server):
    for number in range(5):
        server.ask(call("GET", f"/scan/{number}"))
    answer = server.ask(call("GET", "/metrics"))
    series = [line for line in answer.body.decode().splitlines() if line.startswith("fred_api_requests_total{")]
    assert [line for line in series if "scan" in line] == []
    assert len([line for line in series if 'method="GET",path="unmatched",status="404"' in line]) == 1


def test_an_answer_counts_for_its_route_and_the_routers_own_for_none(server):
    server.ask(call("GET", route("status")))
    server.ask(call("DELETE", route("status")))
    server.ask(call("PROPFIND", route("status")))
    found = server.ask(call("GET", "/metrics")).body.decode()
    assert 'fred_api_requests_total{method="GET",path="/v1/leases/{lease_uuid}/status",status="401"}' in found
    assert 'fred_api_requests_total{method="DELETE",path="unmatched",status="405"}' in found
    assert 'fred_api_requests_total{method="other",path="unmatched",status="405"}' in found
    assert LEASE not in found


def test_ta111_the_routers_errors_have_problem_details_for_who_accepts_them(server):
    answer = server.ask(call("GET", "/nope", {"Accept": "application/problem+json", "X-Request-ID": "abc"}))
    assert answer.headers["content-type"] == "application/problem+json"
    found = json.loads(answer.body)
    assert (found["error"], found["code"], found["status"], found["request_id"]) == ("not found", 404, 404, "abc")
    same = server.ask(call("GET", "//nope", {"Accept": "application/problem+json", "X-Request-ID": "abc"}))
    assert same.body == answer.body


def test_ta99_health_and_readiness_differ_in_their_status_alone(server, monkeypatch):
    from fred import checks, views
    from fred.health import Finding, Part, Prober, Question

    def asked(*findings):
        prober = Prober([Question("q", lambda: Part(findings), lambda: Part(findings))])
        monkeypatch.setattr(views, "_prober", lambda: prober)
        answers = [server.ask(call("GET", path)) for path in ("/health", "/readyz")]
        assert answers[0].body == answers[1].body
        return json.loads(answers[0].body)["status"], [one.status for one in answers]

    assert checks.CHAIN == "chain"
    store, chain, backend = (
        Finding("payload_store", local=True, message="payload store unavailable"),
        Finding("chain", local=False, message="chain connectivity failed"),
        Finding("backend:docker-1", local=False, message="backend health check failed"),
    )
    assert asked(Finding("chain", local=False)) == ("healthy", [200, 200])
    assert asked(backend) == ("degraded", [200, 200])
    assert asked(chain) == ("degraded", [200, 200])
    assert asked(store) == ("unhealthy", [200, 503])
    assert asked(store, chain) == ("unhealthy", [200, 503])
