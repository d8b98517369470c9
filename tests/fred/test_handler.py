"""Django's views on their own threads."""

from __future__ import annotations

import asyncio
import threading

import pytest
from django.http import HttpRequest, HttpResponse, UnreadablePostError
from django.urls import path

from fred.handler import SENT, Limits, ThreadedDjango, template_of
from tests.asgi import request
from tests.waiting import wait_until

release = threading.Event()
seen_threads: set[str] = set()
hanging_threads: set[str] = set()


def echo(request: HttpRequest) -> HttpResponse:
    seen_threads.add(threading.current_thread().name)
    try:
        return HttpResponse(request.body, headers={"X-Name": "é"})
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


sent: list[str] = []
urlpatterns = [path("echo", echo), path("hang", hang), path("crash", crash), path("held", held)]
handler500 = "fred.views.server_error"
pytestmark = pytest.mark.urls(__name__)


@pytest.fixture
def django_app():
    release.clear()
    hanging_threads.clear()
    sent.clear()
    app = ThreadedDjango(
        Limits(body_bytes=10, read_s=5.0, answer_s=0.2), threads=2, reserved={"/echo": 1}, middleware=False
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
