"""Django's views on their own threads."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import orjson
import pytest
import structlog
from django.db import connection, connections
from django.http import HttpRequest, HttpResponse, UnreadablePostError
from django.test import RequestFactory
from django.urls import path

from fred import budget, request_ids
from fred.handler import SENT, Limits, ThreadedDjango, template_of
from tests.asgi import request
from tests.waiting import wait_until

release = threading.Event()
seen_threads: set[str] = set()
hanging_threads: set[str] = set()


def echo(request: HttpRequest) -> HttpResponse:
    seen_threads.add(threading.current_thread().name)
    try:
        fields = str(len(request.GET.getlist("lease_uuid")))
        return HttpResponse(request.body, headers={"X-Name": "é", "X-Fields": fields})
    except UnreadablePostError:
        return HttpResponse("unreadable", status=400)


def hang(request: HttpRequest) -> HttpResponse:
    hanging_threads.add(threading.current_thread().name)
    release.wait(10)
    return HttpResponse("late")


async def both_threads_hang() -> None:
    """Both threads of the pool are inside a view that hangs."""
    await asyncio.to_thread(wait_until, lambda: len(hanging_threads) == 2)


def crash(request: HttpRequest) -> HttpResponse:
    raise RuntimeError("never shown")


def held(request: HttpRequest) -> HttpResponse:
    request.scope[SENT].append(lambda: sent.append("later"))
    if request.GET:
        release.wait(10)
    return HttpResponse("held")


def ids(request: HttpRequest) -> HttpResponse:
    seen = [request_ids.outbound(), structlog.contextvars.get_contextvars()]
    return HttpResponse(orjson.dumps(seen), content_type="application/json")


def restore(request: HttpRequest) -> HttpResponse:
    """Keeps in what it does until it was let go, then lets it out, and is slow once more."""
    budget.keep_in()
    hanging_threads.add(threading.current_thread().name)
    release.wait(10)
    assert 0 <= budget.within(0.1) <= 0.1
    try:
        budget.let_out()
    except budget.TimeIsUp:
        sent.append("kept in")
        return HttpResponse(status=500)
    sent.append("let out")
    released_again.wait(10)
    return HttpResponse("late")


def asks(request: HttpRequest) -> HttpResponse:
    connection.ensure_connection()
    used.append(connection.connection)
    if request.GET:
        raise RuntimeError("never shown")
    return HttpResponse("asked")


used: list[Any] = []
sent: list[str] = []
released_again = threading.Event()
urlpatterns = [
    path("echo", echo),
    path("hang", hang),
    path("crash", crash),
    path("held", held),
    path("restore", restore),
    path("ids", ids),
    path("asks", asks),
]
handler500 = "fred.views.server_error"
pytestmark = pytest.mark.urls(__name__)


@pytest.fixture
def django_app():
    release.clear()
    hanging_threads.clear()
    sent.clear()
    app = ThreadedDjango(
        Limits(body_bytes=10, read_s=10.0, answer_s=1.0), threads=2, reserved={"/echo": 1}, middleware=False
    )
    yield app
    release.set()
    app.close()


def test_a_body_comes_whole_in_parts(django_app):
    answer = asyncio.run(request(django_app, "POST", "/echo", body=[b"12345", b"67890"]))
    assert answer.status == 200
    assert answer.body == b"1234567890"
    assert answer.headers["content-length"] == "10"


def test_a_body_over_the_cap_cannot_be_read_and_ends_the_connection(django_app):
    answer = asyncio.run(request(django_app, "POST", "/echo", body=[b"12345", b"678901"]))
    assert (answer.status, answer.body) == (400, b"unreadable")
    assert answer.headers["connection"] == "close"


def test_the_framework_has_no_limits_of_its_own():
    app = ThreadedDjango(
        Limits(body_bytes=4_000_000, read_s=5.0, answer_s=5.0), threads=1, reserved={}, middleware=False
    )
    body, query = b"x" * 3_000_000, "&".join(f"lease_uuid={number}" for number in range(2_000))
    headers = {"Content-Length": str(len(body)), "Content-Type": "application/json", "Host": "anything_at all"}
    answer = asyncio.run(request(app, "POST", "/echo", body=body, headers=headers, query=query))
    app.close()
    assert (answer.status, len(answer.body), answer.headers["x-fields"]) == (200, 3_000_000, "2000")


def test_threads_are_kept_not_made(django_app):
    seen_threads.clear()

    async def many():
        return [await request(django_app, "GET", "/echo") for _ in range(20)]

    asyncio.run(many())
    assert len(seen_threads) == 1


def test_a_slow_read_is_503_and_a_slow_write_is_undecided(django_app):
    async def both():
        return await asyncio.gather(request(django_app, "GET", "/hang"), request(django_app, "POST", "/hang"))

    read, written = asyncio.run(both())
    assert (read.status, read.body) == (503, b'{"error":"request timeout","code":503}')
    assert (written.status, written.json()) == (500, {"error": "internal server error", "code": 500})


def test_ta28_a_write_that_was_kept_in_is_503_and_stays_in(django_app):
    answer = asyncio.run(request(django_app, "POST", "/restore"))
    assert (answer.status, answer.body) == (503, b'{"error":"request timeout","code":503}')
    assert answer.headers["retry-after"] == "1"
    release.set()
    wait_until(lambda: sent == ["kept in"])


def test_ta28_a_write_that_was_let_out_is_500(django_app):
    release.set()
    released_again.clear()
    answer = asyncio.run(request(django_app, "POST", "/restore"))
    released_again.set()
    assert (answer.status, answer.json()) == (500, {"error": "internal server error", "code": 500})
    assert sent == ["let out"]


def test_reading_and_answering_together_have_a_limit():
    slow = Limits(body_bytes=10, read_s=15.0, answer_s=12.0, whole_s=14.25)
    assert slow.reading_s == 13.25
    assert Limits(body_bytes=10, read_s=15.0, answer_s=12.0, whole_s=1.0).reading_s == 0.5
    assert Limits(body_bytes=10, read_s=3.0, answer_s=12.0).reading_s == 3.0


@pytest.mark.parametrize(
    "limits", [{"read_s": 0.05, "answer_s": 1.0}, {"read_s": 9.0, "answer_s": 9.0, "whole_s": 2.0}]
)
def test_a_body_that_does_not_come_cannot_be_read(limits):
    app = ThreadedDjango(Limits(body_bytes=10, **limits), threads=1, reserved={}, middleware=False)

    async def stalled(scope, receive, send):
        await app(scope, asyncio.Event().wait, send)

    answer = asyncio.run(request(stalled, "POST", "/echo"))
    app.close()
    assert (answer.status, answer.body, answer.headers["connection"]) == (400, b"unreadable", "close")


def test_the_ids_of_a_request_are_in_its_thread_and_go_out_with_what_it_sends(django_app):
    from fred.edge import Edge

    asked = {"X-Request-ID": "abc", "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
    answer = asyncio.run(request(Edge(django_app, cors_origins=()), "GET", "/ids", headers=asked))
    assert answer.json() == [[["X-Request-ID", "abc"], ["traceparent", asked["traceparent"]]], {"request_id": "abc"}]
    assert asyncio.run(request(django_app, "GET", "/ids")).json() == [[], {}]


def test_a_write_that_never_got_a_thread_did_nothing(django_app):
    async def crowd():
        first = [asyncio.ensure_future(request(django_app, "GET", "/hang")) for _ in range(2)]
        await both_threads_hang()
        return [await request(django_app, "POST", "/hang"), *await asyncio.gather(*first)]

    assert asyncio.run(crowd())[0].status == 503


def test_a_reserved_path_answers_while_all_threads_hang(django_app):
    async def crowd():
        stuck = [asyncio.ensure_future(request(django_app, "GET", "/hang")) for _ in range(4)]
        await both_threads_hang()
        answer = await request(django_app, "GET", "/echo")
        await asyncio.gather(*stuck)
        return answer

    assert asyncio.run(crowd()).status == 200


def test_what_a_view_holds_is_let_go_once_its_answer_is_written(django_app):
    async def send(message):
        sent.append(message["type"])

    async def receive():
        return {"type": "http.request"}

    scope = {"type": "http", "method": "GET", "path": "/held", "query_string": b"", "headers": []}
    asyncio.run(django_app(scope, receive, send))
    assert sent == ["http.response.start", "http.response.body", "later"]


def test_what_a_late_view_holds_is_let_go_when_it_ends(django_app):
    assert asyncio.run(request(django_app, "GET", "/held", query="slow=1")).status == 503
    assert sent == []
    release.set()
    wait_until(lambda: sent == ["later"])


def test_who_has_a_request_of_djangos_gets_the_views_answer_alone(django_app):
    assert django_app.get_response(RequestFactory().post("/echo", b"12345", "text/plain")).content == b"12345"


def test_an_exception_stays_inside(django_app):
    answer = asyncio.run(request(django_app, "GET", "/crash"))
    assert answer.status == 500
    assert answer.json() == {"error": "internal server error", "code": 500}


@pytest.mark.parametrize(
    ("route", "template"),
    [
        ("health", "/health"),
        ("v1/leases/<lease_uuid>/status", "/v1/leases/{lease_uuid}/status"),
        ("v1/leases/<str:lease_uuid>/data", "/v1/leases/{lease_uuid}/data"),
    ],
)
def test_a_route_names_its_template(route, template):
    assert template_of(route) == template


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("query", ["", "fails=1"])
def test_a_thread_gives_its_connection_back_with_the_answer(query, django_app, monkeypatch):
    monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", 0)
    used.clear()
    assert asyncio.run(request(django_app, "GET", "/asks", query=query)).status == (500 if query else 200)
    assert [one.closed for one in used] == [True]
