"""While the database is away every request leaves a line, and only one a minute a traceback."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket

import psycopg
import pytest
import structlog
from django.db import InterfaceError, OperationalError, ProgrammingError, connection, transaction
from django.http import HttpRequest, HttpResponse
from django.urls import path
from psycopg_pool import ConnectionPool

from fred import logs, outages
from fred.handler import Limits, ThreadedDjango
from tests.asgi import request


def ask(request: HttpRequest) -> HttpResponse:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        return HttpResponse(str(cursor.fetchone()[0]))


def crash(request: HttpRequest) -> HttpResponse:
    raise RuntimeError("a bug")


urlpatterns = [path("ask", ask), path("crash", crash)]
handler500 = "fred.views.server_error"
pytestmark = [pytest.mark.urls(__name__), pytest.mark.django_db(transaction=True)]


@pytest.fixture
def lines(capsys):
    """The log of a web process, as it is set up there; what was written since, one dict per line."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    logs.set_up(level="info", output="json", process="web", is_outage=outages.is_away)
    yield lambda: [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def views():
    app = ThreadedDjango(Limits(body_bytes=10, read_s=5.0, answer_s=10.0), threads=2, reserved={}, middleware=False)
    yield lambda where: asyncio.run(request(app, "GET", where)).status
    app.close()


@pytest.fixture
def silent(monkeypatch, nobody_listens):
    """New connections find no database; those that are open are not touched."""
    monkeypatch.setitem(connection.settings_dict, "PORT", str(nobody_listens))


def test_requests_without_a_database_leave_one_traceback_and_a_line_each(silent, views, lines):
    assert [views("/ask") for _ in range(5)] == [500] * 5
    told = [record for record in lines() if record["msg"] == "Internal Server Error: /ask"]
    assert len(told) == 5
    assert [("Traceback" in record.get("exception", "")) for record in told] == [True, False, False, False, False]
    assert all(record["error"].startswith("OperationalError: ") for record in told[1:])
    assert {record["level"] for record in told} == {"ERROR"}


def test_a_bug_keeps_its_traceback_every_time(silent, views, lines):
    views("/ask")
    assert [views("/crash") for _ in range(2)] == [500] * 2
    told = [record for record in lines() if record["msg"] == "Internal Server Error: /crash"]
    assert ["RuntimeError: a bug" in record["exception"] for record in told] == [True] * 2


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_after_a_minute_a_traceback_is_written_again():
    clock = Clock()
    processor = logs._Tracebacks(lambda _: True, clock)

    def is_full():
        return "exc_info" in processor(
            None, "error", {"event": "e", "exc_info": OperationalError("the connection is closed")}
        )

    assert [is_full(), is_full()] == [True, False]
    clock.now += logs.FULL_AGAIN_S - 1
    assert not is_full()
    clock.now += 1
    assert [is_full(), is_full()] == [True, False]


def test_every_form_of_an_exception_is_known(lines):
    log = structlog.get_logger("x")
    for _ in range(2):
        try:
            raise OperationalError("the connection is closed")
        except OperationalError as error:
            log.exception("as it is raised")
            log.warning("by name", exc_info=error)
            logging.getLogger("library").exception("from a library")
    records = lines()
    assert ["exception" in record for record in records] == [True] + [False] * 5
    assert {record.get("error") for record in records[1:]} == {"OperationalError: the connection is closed"}


def test_an_error_that_the_caller_names_stays_as_it_is(lines):
    for _ in range(2):
        try:
            raise OperationalError("the connection is closed")
        except OperationalError:
            structlog.get_logger("x").exception("e", error="short")
    assert [record["error"] for record in lines()] == ["short", "short"]


def failing(work):
    with pytest.raises(Exception) as caught:
        work()
    return caught.value


def test_a_refused_connection_is_an_outage(silent):
    assert outages.is_away(failing(connection.copy().ensure_connection))


def test_a_pool_without_a_connection_is_an_outage(nobody_listens):
    with ConnectionPool(f"host=127.0.0.1 port={nobody_listens}", min_size=0, max_size=1, timeout=0.05) as pool:

        def ask_the_pool():
            with connection.wrap_database_errors:
                pool.getconn()

        error = failing(ask_the_pool)
    assert type(error.__cause__).__name__ == "PoolTimeout"
    assert outages.is_away(error)


def test_the_drivers_own_errors_are_known_too(nobody_listens):
    error = failing(lambda: psycopg.connect(f"host=127.0.0.1 port={nobody_listens}", connect_timeout=2))
    assert outages.is_away(error)
    assert not outages.is_away(psycopg.errors.LockNotAvailable("too long"))
    assert not outages.is_away(psycopg.errors.UndefinedTable("a bug"))


def test_a_server_that_does_not_take_the_connection_up_is_an_outage():
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        error = failing(lambda: psycopg.connect(f"host=127.0.0.1 port={port}", connect_timeout=2))
    assert outages.is_away(error)


@pytest.mark.parametrize("host", ["nobody.invalid", "/nowhere"], ids=["a name", "a socket"])
def test_a_host_that_is_not_found_is_an_outage(host):
    assert outages.is_away(failing(lambda: psycopg.connect(f"host={host} port=1")))


def test_a_connection_that_breaks_off_is_an_outage():
    other = connection.copy()
    other.ensure_connection()
    with socket.socket(fileno=os.dup(other.connection.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)
    broken, closed = [failing(lambda: other.cursor().execute("SELECT 1")) for _ in range(2)]
    assert "closed the connection unexpectedly" in str(broken)
    assert str(closed) == "the connection is closed"
    lost = failing(other.connection.commit)
    other.close()
    assert [outages.is_away(one) for one in (broken, closed, lost)] == [True] * 3


def test_a_server_that_has_no_connection_left_is_an_outage_and_one_without_room_is_none():
    assert outages.is_away(psycopg.errors.TooManyConnections("sorry, too many clients already"))
    assert not outages.is_away(psycopg.errors.DiskFull("could not extend file"))
    assert not outages.is_away(psycopg.errors.OutOfMemory("out of memory"))


def test_a_wrong_use_of_the_driver_is_no_outage():
    def ask_a_closed_cursor():
        cursor = connection.cursor()
        cursor.close()
        cursor.execute("SELECT 1")

    def give_too_many_parameters():
        connection.ensure_connection()
        with connection.wrap_database_errors:
            psycopg.Cursor(connection.connection).execute("SELECT " + ", ".join(["%s"] * 65_536), [1] * 65_536)

    error = failing(ask_a_closed_cursor)
    assert (type(error), str(error)) == (InterfaceError, "the cursor is closed")
    assert not outages.is_away(error)
    error = failing(give_too_many_parameters)
    assert type(error) is OperationalError
    assert "number of parameters" in str(error)
    assert not outages.is_away(error)


def test_a_session_that_the_server_ends_is_an_outage():
    other = connection.copy()
    with other.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        victim = cursor.fetchone()[0]
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [victim])
    error = failing(lambda: other.cursor().execute("SELECT 1"))
    other.close()
    assert outages.is_away(error)


def test_what_is_raised_from_an_outage_is_one():
    def wrapped():
        try:
            raise InterfaceError("the connection is closed")
        except InterfaceError as error:
            raise RuntimeError("not stored") from error

    assert outages.is_away(failing(wrapped))


def of_sql(statement):
    def work():
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)

    return failing(work)


@pytest.mark.parametrize(
    "statement",
    [
        pytest.param("SELECT 1/0", id="a wrong value"),
        pytest.param("SELECT nothing", id="a wrong statement"),
        pytest.param("SET LOCAL statement_timeout = 20; SELECT pg_sleep(10)", id="a statement over its limit"),
    ],
)
def test_an_answer_is_no_outage(statement):
    assert not outages.is_away(of_sql(statement))


def test_an_error_while_one_is_handled_is_its_own():
    def confused():
        try:
            raise OperationalError("the connection is closed")
        except OperationalError:
            raise ProgrammingError("a bug")  # noqa: B904 - not raised from it

    assert not outages.is_away(failing(confused))
