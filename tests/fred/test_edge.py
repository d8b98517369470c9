"""What every answer carries, whoever made it."""

from __future__ import annotations

import asyncio
import logging
import re

import pytest
import structlog

from fred import access, metrics
from fred.address_limit import OVER_LIMIT, AddressLimit
from fred.edge import ROUTE, SECURITY_HEADERS, Edge
from tests.asgi import request


async def teapot(scope, receive, send):
    await send({"type": "http.response.start", "status": 418, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"short and stout"})


async def crash(scope, receive, send):
    raise RuntimeError("boom")


def ask(method="GET", *, path="/x", origins=("*",), app=teapot, how=None, **headers):
    edge = Edge(app, cors_origins=origins, **(how or {}))
    named = {name.replace("_", "-"): value for name, value in headers.items()}

    async def main():
        try:
            return await request(edge, method, path, headers=named)
        finally:
            await edge.close()

    return asyncio.run(main())


def without_ids(answer):
    return {name: value for name, value in answer.headers.items() if name not in {"x-request-id", "traceparent"}}


def test_ta23_security_headers_stand_on_every_answer():
    answer = ask(origins=())
    for name, value in SECURITY_HEADERS:
        assert answer.headers[name.decode()] == value.decode()
    assert "vary" not in answer.headers
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_ta24_a_preflight_has_no_security_header_and_reaches_nobody():
    answer = ask(
        "OPTIONS",
        app=crash,
        origin="https://app.example",
        access_control_request_method="POST",
        access_control_request_headers="authorization,content-type",
    )
    assert answer.status == 204
    assert answer.body == b""
    assert without_ids(answer) == {
        "vary": "Origin, Access-Control-Request-Method, Access-Control-Request-Headers",
        "access-control-allow-origin": "*",
        "access-control-allow-methods": "POST",
        "access-control-allow-headers": "authorization,content-type",
        "access-control-max-age": "600",
    }


def test_a_preflight_may_be_about_preflights():
    answer = ask("OPTIONS", origin="https://app.example", access_control_request_method="OPTIONS")
    assert answer.headers["access-control-allow-methods"] == "OPTIONS"
    assert answer.headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize(
    ("origins", "headers"),
    [
        pytest.param(["https://a.example"], {"origin": "https://b.example"}, id="origin"),
        pytest.param(["*"], {"origin": "https://b.example", "access_control_request_method": "DELETE"}, id="method"),
        pytest.param(
            ["*"], {"origin": "https://b.example", "access_control_request_headers": "x-secret"}, id="a header"
        ),
        pytest.param(["*"], {}, id="no origin"),
    ],
)
def test_a_preflight_that_asks_too_much_is_204_without_permissions(origins, headers):
    answer = ask("OPTIONS", origins=origins, **({"access_control_request_method": "GET"} | headers))
    assert answer.status == 204
    assert list(without_ids(answer)) == ["vary"]


@pytest.mark.parametrize(
    ("origins", "origin", "allowed"),
    [
        pytest.param(["*"], "https://x.example", "*", id="all"),
        pytest.param(["https://x.example"], "HTTPS://X.example", "HTTPS://X.example", id="case does not matter"),
        pytest.param(["https://*.example"], "https://a.b.example", "https://a.b.example", id="a star inside"),
        pytest.param(["https://*.example"], "https://.exampl", None, id="a star is no licence"),
        pytest.param(["https://x.example"], "https://y.example", None, id="another"),
    ],
)
def test_simple_answers_name_the_allowed_origin(origins, origin, allowed):
    answer = ask(origins=origins, origin=origin)
    assert answer.headers["vary"] == "Origin"
    assert answer.headers.get("access-control-allow-origin") == allowed


def test_head_gets_no_permission_but_vary():
    answer = ask("HEAD", origin="https://x.example")
    assert answer.headers["vary"] == "Origin"
    assert "access-control-allow-origin" not in answer.headers


def test_options_without_the_preflight_header_reaches_the_application():
    assert ask("OPTIONS", origin="https://x.example").status == 418


def test_ta129_a_preflight_may_ask_for_the_key_of_a_command():
    answer = ask(
        "OPTIONS",
        origin="https://app.example",
        access_control_request_method="POST",
        access_control_request_headers="authorization,content-type,idempotency-key,last-event-id,x-request-id,traceparent",
    )
    assert answer.headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize("value", ["abc", "A-z0._-9", "x" * 128])
def test_ta31_an_id_that_is_well_formed_comes_back(value):
    assert ask(x_request_id=value).headers["x-request-id"] == value


@pytest.mark.parametrize("value", ["a b", "", "x" * 129, "é", "a/b", "a\n"])
def test_ta31_any_other_is_replaced_by_a_new_one(value):
    made = ask(x_request_id=value).headers["x-request-id"]
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", made)
    assert made != ask(x_request_id=value).headers["x-request-id"]


TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        pytest.param(TRACE, TRACE, id="taken over"),
        pytest.param(f"cc{TRACE[2:]}-what-comes", TRACE, id="a later version"),
        pytest.param(f"ff{TRACE[2:]}", None, id="no version"),
        pytest.param(f"{TRACE}-more", None, id="too long for this version"),
        pytest.param(TRACE.upper(), None, id="upper case"),
        pytest.param(f"00-{'0' * 32}-00f067aa0ba902b7-01", None, id="no trace"),
        pytest.param(f"00-4bf92f3577b34da6a3ce929d0e0e4736-{'0' * 16}-01", None, id="no parent"),
        pytest.param("", None, id="empty"),
    ],
)
def test_a_trace_is_taken_over_or_begun(value, kept):
    found = ask(traceparent=value).headers["traceparent"]
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]", found)
    assert found == kept if kept else found[3:35] != value[3:35]


def test_the_id_is_in_scope_and_in_every_line_of_the_log():
    async def logs_something(scope, receive, send):
        assert structlog.contextvars.get_contextvars()["request_id"] == scope["fred.request_id"] == "abc"
        assert scope["fred.traceparent"] == TRACE
        assert scope["fred.client_ip"] == "203.0.113.9"
        await teapot(scope, receive, send)

    assert ask(app=logs_something, x_request_id="abc", traceparent=TRACE).status == 418


@pytest.mark.parametrize(
    "path", ["//x", "/a//b", "/a/../x", "/./x", "/a/%2e%2E/x", "/v1/leases/%2e/status", "/x/..", "/a/./"]
)
def test_doubled_slashes_and_dot_segments_lead_nowhere(path):
    answer = ask(path=path, app=crash)
    assert (answer.status, answer.body) == (404, b'{"error":"not found","code":404}\n')
    assert answer.headers["vary"] == "Origin"
    assert "location" not in answer.headers


@pytest.mark.parametrize(
    ("path", "seen"),
    [
        ("/v1/leases/%7Bx%7D/status", "/v1/leases/{x}/status"),
        ("/v1/leases/a%2Fb/status", "/v1/leases/a%2Fb/status"),
        ("/x/", "/x/"),
        ("/...", "/..."),
        ("/", "/"),
    ],
)
def test_each_segment_of_a_path_is_decoded_once_and_by_itself(path, seen):
    found = []

    async def look(scope, receive, send):
        found.append(scope["path"])
        await teapot(scope, receive, send)

    ask(path=path, app=look)
    assert found == [seen]


def test_a_bug_is_answered_with_500_and_told_only_to_the_log():
    with structlog.testing.capture_logs() as logs:
        answer = ask(app=crash, origin="https://x.example")
    assert (answer.status, answer.body) == (500, b'{"error":"internal server error","code":500}\n')
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["access-control-allow-origin"] == "*"
    assert [line["event"] for line in logs] == ["api.failed"]


def count(path, status, method="GET"):
    return metrics.API_REQUESTS.labels(method=method, path=path, status=str(status))._value.get()


def durations(path, status):
    return metrics.API_REQUEST_DURATION.labels(method="GET", path=path, status=str(status))._sum.get()


def test_ta30_met9_unknown_paths_are_one_series_and_each_answer_counts_in_both_metrics():
    async def lost(scope, receive, send):
        assert scope.pop(ROUTE) == "unmatched"
        await teapot(scope, receive, send)

    before, spent = count("unmatched", 418), durations("unmatched", 418)
    for number in range(5):
        ask(path=f"/random/{number}", app=lost)
    assert count("unmatched", 418) - before == 5
    assert durations("unmatched", 418) > spent


def test_strange_methods_make_no_series():
    before = count("unmatched", 418, "other")
    ask("PROPFIND")
    assert count("unmatched", 418, "other") - before == 1


def test_good_answers_to_probes_leave_no_line(monkeypatch, caplog):
    async def probe(scope, receive, send):
        scope[ROUTE] = scope["path"]
        await send({"type": "http.response.start", "status": 503 if scope["path"] == "/readyz" else 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    told = []
    monkeypatch.setattr(access.logs, "lines", lambda event, lines: told.extend(line["path"] for line in lines))
    for path in ("/health", "/readyz", "/workloads"):
        ask(path=path, app=probe)
    assert told == ["/readyz", "/workloads"]
    caplog.set_level(logging.DEBUG)
    ask(path="/health", app=probe)
    assert [record.msg["msg"] for record in caplog.records if "api." in str(record.msg)] == ["api.probe"]


# --- WebSockets


async def speak(app, *, path="/v1/leases/x/events", headers=(), say=()):
    """What the application sends to a WebSocket that says these messages."""
    sent, messages = [], [{"type": "websocket.connect"}, *say]

    async def receive():
        if messages:
            return messages.pop(0)
        return await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    scope = {"type": "websocket", "path": path, "raw_path": path.encode(), "query_string": b"", "headers": [*headers]}
    scope |= {"client": ("203.0.113.9", 1), "scheme": "ws", "extensions": {"websocket.http.response": {}}}
    await app(scope, receive, send)
    return sent


async def accepts(scope, receive, send):
    scope[ROUTE] = "/events"
    await receive()
    await send({"type": "websocket.accept"})
    assert count("/events", 101) == 0
    await send({"type": "websocket.close", "code": 1000})


async def refuses(scope, receive, send):
    await receive()
    await send({"type": "websocket.http.response.start", "status": 401, "headers": []})
    await send({"type": "websocket.http.response.body", "body": b""})


def test_ta23_an_accepted_websocket_has_only_the_ids_and_counts_as_101_at_its_end():
    sent = asyncio.run(speak(Edge(accepts, cors_origins=["*"])))
    assert {name for name, _ in sent[0]["headers"]} == {b"x-request-id", b"traceparent"}
    assert count("/events", 101) == 1


@pytest.mark.parametrize("app", [refuses, crash])
def test_ta23_ta26_a_failed_upgrade_has_all_headers_of_an_answer(app):
    sent = asyncio.run(speak(Edge(app, cors_origins=["*"]), headers=[(b"origin", b"https://x.example")]))
    named = dict(sent[0]["headers"])
    assert sent[0]["type"] == "websocket.http.response.start"
    assert sent[0]["status"] == (401 if app is refuses else 500)
    assert set(SECURITY_HEADERS) <= set(sent[0]["headers"])
    assert (named[b"access-control-allow-origin"], named[b"vary"]) == (b"*", b"Origin")


# --- the limit of an address


@pytest.fixture
def limited(valkey):
    """A way to ask so many times in one moment."""

    def ask_times(number, method="GET", *, path="/x", app=teapot, rate=0.5, burst=3, **headers):
        async def main():
            limit = AddressLimit(rate=rate, burst=burst)
            edge = Edge(app, cors_origins=["*"], limit=limit, trusts=lambda address: address == "203.0.113.9")
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            try:
                return await asyncio.gather(*(request(edge, method, path, headers=named) for _ in range(number)))
            finally:
                await edge.close()

        return asyncio.run(main())

    return ask_times


def test_ta26_ta34_over_the_limit_it_is_429_with_all_headers_and_no_count_of_requests(limited):
    before = count("unmatched", 429)
    refused_before = metrics.RATE_LIMIT_REJECTIONS.labels("global")._value.get()
    answers = limited(5, origin="https://x.example")
    assert sorted(one.status for one in answers) == [418, 418, 418, 429, 429]
    refused = next(one for one in answers if one.status == 429)
    assert refused.body == b'{"error":"rate limit exceeded","code":429}\n'
    assert without_ids(refused) == {
        "content-type": "application/json",
        "content-length": "43",
        "retry-after": "2",
        "vary": "Origin",
        "access-control-allow-origin": "*",
        "access-control-expose-headers": "Retry-After, X-Request-ID, Idempotency-Replayed",
        **{name.decode(): value.decode() for name, value in SECURITY_HEADERS},
    }
    assert refused.headers["x-request-id"]
    assert count("unmatched", 429) == before
    assert metrics.RATE_LIMIT_REJECTIONS.labels("global")._value.get() - refused_before == 2
    assert [one.status for one in limited(1)] == [429]
    assert [one.status for one in limited(1, x_forwarded_for="198.51.100.7")] == [418]


def test_ta25_preflights_cost_nothing(limited):
    asks = {"origin": "https://x.example", "access_control_request_method": "GET"}
    assert {one.status for one in limited(200, "OPTIONS", **asks)} == {204}
    assert [one.status for one in limited(1)] == [418]


def test_unknown_paths_and_other_methods_cost_one(limited):
    assert [one.status for one in limited(2, path="/a//b")] == [404, 404]
    assert [one.status for one in limited(1, "OPTIONS")] == [418]
    assert [one.status for one in limited(1)] == [429]


def test_ta34_health_is_never_refused_and_knows_that_it_was_over_the_limit(limited):
    over = []

    async def health(scope, receive, send):
        over.append(OVER_LIMIT in scope)
        await teapot(scope, receive, send)

    assert {one.status for one in limited(5, path="/health", app=health)} == {418}
    assert sorted(over) == [False, False, False, True, True]
    assert [one.status for one in limited(1, "POST", path="/health")] == [429]


def test_ta134_callbacks_have_buckets_of_their_own(limited):
    assert {one.status for one in limited(5, "POST", path="/callbacks/provision")} == {418}
    assert [one.status for one in limited(4, "GET", path="/callbacks/provision")].count(429) == 1


def test_an_upgrade_costs_one_and_is_refused_as_an_answer(valkey):
    async def main():
        limit = AddressLimit(rate=0.5, burst=1)
        edge = Edge(refuses, cors_origins=[], limit=limit)
        try:
            return [(await speak(edge))[0] for _ in range(2)]
        finally:
            await edge.close()

    first, second = asyncio.run(main())
    assert (first["status"], second["status"]) == (401, 429)
    assert second["type"] == "websocket.http.response.start"
    assert (b"retry-after", b"2") in second["headers"]


def test_many_refusals_are_one_line(limited):
    with structlog.testing.capture_logs() as logs:
        limited(50)
    assert [(line["event"], line["client_ip"]) for line in logs] == [("api.rate_limited", "203.0.113.9")]
