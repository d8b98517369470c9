"""Django's views on the event loop."""

from __future__ import annotations

import asyncio
import threading

import pytest
import structlog
from django.db import connection
from django.http import HttpRequest, HttpResponse, UnreadablePostError
from django.urls import path

from fred import budget, handler, on_loop, request_ids
from fred.edge import BUSY, ROUTE, Edge
from fred.handler import SENT, Limits, Room, ThreadedDjango
from fred.loop_handler import LoopDjango
from tests.asgi import request

said: list[object] = []
BUSY_BODY = b'{"error":"%b","code":503}\n' % BUSY.encode()


def echo(request: HttpRequest) -> HttpResponse:
    said.append((on_loop.is_here(), threading.current_thread() is threading.main_thread()))
    try:
        return HttpResponse(request.body, headers={"X-Name": "é"})
    except UnreadablePostError:
        return HttpResponse("unreadable", status=400)


def hang(request: HttpRequest) -> HttpResponse:
    request.scope[SENT].append(lambda: said.append("sent"))
    try:
        on_loop.wait(asyncio.Event().wait())
    except asyncio.CancelledError:
        said.append(("ended where it waits", budget.within(1.0) < 0.01))
        raise
    return HttpResponse("never")


def crash(request: HttpRequest) -> HttpResponse:
    on_loop.wait(asyncio.sleep(0))
    raise RuntimeError("never shown")


def statement(request: HttpRequest) -> HttpResponse:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return HttpResponse("never")


def aside(request: HttpRequest) -> HttpResponse:
    def ask() -> str:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 'asked'")
            said.append((connection, connection.connection))
            return f"{cursor.fetchone()[0]} {threading.current_thread().name} {structlog.contextvars.get_contextvars()}"

    return HttpResponse(on_loop.blocking(ask))


def ids(request: HttpRequest) -> HttpResponse:
    on_loop.wait(asyncio.sleep(0))
    return HttpResponse(f"{request_ids.outbound()} {structlog.contextvars.get_contextvars()}")


def held(request: HttpRequest, name: str) -> HttpResponse:
    request.scope[SENT].append(lambda: said.append("later"))
    on_loop.wait(asyncio.sleep(0))
    return HttpResponse("held")


urlpatterns = [
    path("echo", echo),
    path("hang", hang),
    path("crash", crash),
    path("statement", statement),
    path("aside", aside),
    path("ids", ids),
    path("held/<str:name>", held),
]
handler500 = "fred.views.server_error"
pytestmark = pytest.mark.urls(__name__)


@pytest.fixture
def loop_app():
    """`loop_app(answer_s=…)`: views on the loop, with one thread for what blocks."""
    made = []

    def make(**limits):
        whole = Limits(**{"body_bytes": 10, "read_s": 5.0, "answer_s": 10.0, **limits})
        made.append(ThreadedDjango(whole, threads=1, reserved={}, middleware=False))
        return LoopDjango(made[-1])

    said.clear()
    yield make
    for one in made:
        one.close()


def asked(app, *what, **how):
    """What the application answers; a view that hangs fails the test."""

    async def main():
        async with asyncio.timeout(60):
            return await request(app, *what, **how)

    return asyncio.run(main())


def test_a_view_answers_on_the_loop(loop_app):
    answer = asked(loop_app(), "POST", "/echo", body=[b"12345", b"67890"])
    assert (answer.status, answer.body, answer.headers["x-name"]) == (200, b"1234567890", "é")
    assert answer.headers["content-length"] == "10"
    assert said == [(True, True)]


def test_a_body_over_the_cap_cannot_be_read_and_ends_the_connection(loop_app):
    answer = asked(loop_app(), "POST", "/echo", body=[b"12345", b"678901"])
    assert (answer.status, answer.body, answer.headers["connection"]) == (400, b"unreadable", "close")


def test_a_request_whose_time_is_over_ends_where_it_waits(loop_app):
    answer = asked(loop_app(answer_s=0.05), "GET", "/hang")
    assert (answer.status, answer.body) == (503, b'{"error":"request timeout","code":503}')
    assert answer.headers["retry-after"] == "1"
    assert said == [("ended where it waits", True), "sent"]


def test_a_request_without_any_time_left_ends_at_its_first_wait(loop_app):
    answer = asked(loop_app(whole_s=0.0), "GET", "/hang")
    assert (answer.status, said) == (503, [("ended where it waits", True), "sent"])


def test_others_are_answered_while_one_hangs(loop_app):
    async def main():
        app = loop_app()
        stuck = asyncio.ensure_future(request(app, "GET", "/hang"))
        answers = [await request(app, "GET", "/echo") for _ in range(3)]
        assert not stuck.done()
        stuck.cancel()
        await asyncio.wait([stuck])
        return [one.status for one in answers]

    assert asyncio.run(main()) == [200] * 3


def test_who_is_cancelled_with_its_connection_ends_too(loop_app):
    async def main():
        stuck = asyncio.ensure_future(request(loop_app(), "GET", "/hang"))
        await asyncio.sleep(0)
        stuck.cancel()
        await asyncio.wait([stuck])
        return stuck.cancelled()

    assert asyncio.run(main())
    assert (said[0][0], *said[1:]) == ("ended where it waits", "sent")


def test_an_exception_stays_inside(loop_app):
    answer = asked(loop_app(), "GET", "/crash")
    assert (answer.status, answer.json()) == (500, {"error": "internal server error", "code": 500})


@pytest.mark.django_db(transaction=True)
def test_a_statement_of_djangos_is_refused_and_one_aside_is_not(loop_app, monkeypatch):
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", 0)
    headers = {"X-Request-ID": "abc"}
    app = Edge(loop_app(), cors_origins=())
    connection.ensure_connection()  # it would be at hand
    refused = asked(app, "GET", "/statement")
    assert (refused.status, refused.json()) == (500, {"error": "internal server error", "code": 500})
    found = asked(app, "GET", "/aside", headers=headers)
    assert (found.status, found.body) == (200, b"asked aside_0 {'request_id': 'abc'}")
    ((_, used),) = said
    assert used.closed  # given back by the thread


def test_requests_at_once_keep_their_ids_apart(loop_app):
    async def main():
        app = Edge(loop_app(), cors_origins=())
        both = [request(app, "GET", "/ids", headers={"X-Request-ID": name}) for name in ("abc", "def")]
        return [one.body.decode() for one in await asyncio.gather(*both)]

    for name, found in zip(("abc", "def"), asyncio.run(main()), strict=True):
        assert f"('X-Request-ID', '{name}')" in found
        assert f"{{'request_id': '{name}'}}" in found


def test_what_a_view_holds_is_let_go_once_its_answer_is_written(loop_app):
    async def send(message):
        said.append(message["type"])

    async def receive():
        return {"type": "http.request"}

    scope = {"type": "http", "method": "GET", "path": "/held/x", "query_string": b"", "headers": []}
    asyncio.run(loop_app()(scope, receive, send))
    assert said == ["http.response.start", "http.response.body", "later"]
    assert scope[ROUTE] == "/held/{name}"


def test_so_many_are_in_work_at_once_and_one_more_is_told_so():
    async def main():
        room = Room(2)
        django = ThreadedDjango(
            Limits(body_bytes=10, read_s=5.0, answer_s=10.0),
            threads=1,
            reserved={"/echo": 1},
            middleware=False,
            room=room,
        )
        loop_way, thread_way = LoopDjango(django), django
        for _ in range(3):  # whoever fails has left
            assert (await request(loop_way, "GET", "/crash")).status == 500
        slow = [asyncio.ensure_future(request(loop_way, "GET", "/hang")) for _ in range(2)]
        await asyncio.sleep(0)
        edges = [Edge(way, cors_origins=()) for way in (loop_way, thread_way)]
        refused = [await request(edge, "GET", "/ids") for edge in edges]
        accept = {"Accept": "application/problem+json"}
        probe = await request(thread_way, "GET", "/echo", headers=accept)
        slow[0].cancel()
        await asyncio.wait([slow[0]])
        after = await request(loop_way, "GET", "/ids")
        slow[1].cancel()
        await asyncio.wait([slow[1]])
        django.close()
        return refused, probe.status, after.status

    refused, *others = asyncio.run(main())
    for one in refused:
        assert (one.status, one.body, one.headers["retry-after"]) == (503, BUSY_BODY, "1")
        assert one.headers["content-type"] == "application/json"
    assert others == [200, 200]


def test_a_request_whose_body_is_still_coming_takes_no_place():
    async def main():
        django = ThreadedDjango(
            Limits(body_bytes=10, read_s=5.0, answer_s=5.0), threads=1, reserved={}, middleware=False, room=Room(1)
        )
        never = asyncio.Event()

        async def receive():
            await never.wait()

        scope = {"type": "http", "method": "POST", "path": "/echo", "query_string": b"", "headers": []}
        slow = asyncio.ensure_future(django(scope, receive, None))
        await asyncio.sleep(0)
        answer = await request(LoopDjango(django), "GET", "/ids")
        slow.cancel()
        await asyncio.wait([slow])
        django.close()
        return answer.status

    assert asyncio.run(main()) == 200


def test_what_takes_moments_waits_behind_nothing_that_takes_long():
    release = threading.Event()

    async def main():
        django = ThreadedDjango(
            Limits(body_bytes=10, read_s=5.0, answer_s=5.0), threads=1, reserved={}, middleware=False
        )
        long = asyncio.ensure_future(django.aside(release.wait))
        try:
            return await on_loop.run(lambda: on_loop.brief(lambda: "brief"), aside=django.aside, briefly=django.briefly)
        finally:
            release.set()
            await long
            django.close()

    assert asyncio.run(main()) == "brief"


def test_so_many_wait_for_a_thread_and_one_more_is_told_so_at_once(monkeypatch):
    monkeypatch.setattr(handler, "MOST_ASIDE", 2)
    release = threading.Event()

    async def main():
        django = ThreadedDjango(
            Limits(body_bytes=10, read_s=5.0, answer_s=5.0), threads=1, reserved={}, middleware=False
        )

        def blocks():
            return on_loop.run(lambda: on_loop.blocking(release.wait), aside=django.aside, briefly=django.briefly)

        try:
            two = [asyncio.ensure_future(blocks()) for _ in range(2)]
            await asyncio.sleep(0)
            with pytest.raises(on_loop.NoRoom):
                await blocks()
            assert (await request(django, "GET", "/echo")).status == 200  # a view has a thread all the same
            two[0].cancel()
            await asyncio.wait([two[0]])
            third = asyncio.ensure_future(blocks())
            await asyncio.sleep(0)
            release.set()
            return await asyncio.gather(two[1], third)
        finally:
            release.set()
            django.close()

    assert asyncio.run(main()) == [True, True]


def test_the_web_process_has_such_a_limit_and_probes_stand_beside_it(settings, monkeypatch, valkey):
    from fred import web

    monkeypatch.setattr(web, "Room", lambda: Room(0))

    async def main():
        app = web.compose()
        try:
            paths = ("/v1/leases/x/status", "/v1/leases/x/logs", "/metrics")
            return [await request(app, "GET", name) for name in paths]
        finally:
            for close in app._closers:
                await close()

    settings.ROOT_URLCONF = "fred.urls"
    quick, threaded, probe = asyncio.run(main())
    for one in (quick, threaded):
        assert (one.status, one.body, one.headers["retry-after"]) == (503, BUSY_BODY, "1")
    assert probe.status == 200
