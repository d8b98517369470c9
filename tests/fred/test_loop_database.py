"""Statements from the event loop, over a real connection of its own."""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import struct
import threading

import psycopg
import pytest
import uvloop
from django.db import connection, connections

from fred import loop_database
from fred.loop_database import LoopConnection
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)
PID = "SELECT pg_backend_pid()"


def on_a_loop(work):
    """Run `work(connection)` on a loop of its own; return what it returned."""

    async def main():
        opened = LoopConnection()
        try:
            async with asyncio.timeout(60):
                return await work(opened)
        finally:
            await opened.close()

    return asyncio.run(main())


async def pid_of(opened):
    ((pid,),) = await opened.rows(PID, [])
    return pid


async def cut(pid):
    """End this session, and wait until it is gone."""
    other = await loop_database.connect()
    try:
        await other.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
    finally:
        await other.close()


@pytest.fixture
def opened_so_far(monkeypatch):
    """What `connect` made, in order."""
    made, connect = [], loop_database.connect

    async def noted():
        made.append(await connect())
        return made[-1]

    monkeypatch.setattr(loop_database, "connect", noted)
    return made


@pytest.mark.parametrize("most_prepared", [0, 1, 50])
def test_rows_come_back_over_one_connection(most_prepared, opened_so_far, monkeypatch):
    monkeypatch.setattr(loop_database, "MOST_PREPARED", most_prepared)

    async def work(opened):
        one = await opened.rows("SELECT n, n * %s FROM generate_series(1, 3) AS n", [10])
        return one, await opened.rows("SELECT n FROM unnest(%s::int[]) AS n WHERE n > 5", [[1]])

    assert on_a_loop(work) == ([(1, 10), (2, 20), (3, 30)], [])
    assert len(opened_so_far) == 1


PREPARED = "SELECT count(*) FROM pg_prepared_statements WHERE statement = 'SELECT $1'"


def test_each_kind_of_parameters_is_prepared_once_and_only_so_many(monkeypatch):
    monkeypatch.setattr(loop_database, "MOST_PREPARED", 3)

    async def work(opened):
        ((before,),) = await opened.rows(PREPARED, [])
        found = [(await opened.rows("SELECT %s", [one]))[0][0] for one in (1, 2, "a", "b", 1.5, None, True)]
        return before, found, await opened.rows(PREPARED, [])

    assert on_a_loop(work) == (0, [1, 2, "a", "b", 1.5, None, True], [(2,)])


def test_large_parameters_and_answers_pass():
    texts = [f"{number:01000d}" for number in range(5000)]

    async def work(opened):
        return await opened.rows("SELECT unnest(%s::text[])", [texts])

    assert on_a_loop(work) == [(one,) for one in texts]


def test_a_session_that_ended_while_nobody_asked_is_seen_at_once(opened_so_far):
    async def work(opened):
        await cut(await pid_of(opened))
        await asyncio.to_thread(wait_until, lambda: opened_so_far[0].closed)
        return await pid_of(opened)

    assert on_a_loop(work)


def test_an_end_that_was_seen_is_not_looked_at_for_ever(opened_so_far, monkeypatch):
    looked, read = [], loop_database._Session._read
    monkeypatch.setattr(loop_database._Session, "_read", lambda one: looked.append(1) or read(one))

    async def work(opened):
        await cut(await pid_of(opened))
        await asyncio.to_thread(wait_until, lambda: opened_so_far[0].closed)
        looked.clear()
        for _ in range(50):
            await asyncio.sleep(0)

    on_a_loop(work)
    assert looked == []


def test_who_stops_waiting_leaves_no_statement_behind():
    async def work(opened):
        pid = await pid_of(opened)
        await opened.rows("SET statement_timeout = 0", [])
        asking = asyncio.ensure_future(opened.rows("SELECT pg_sleep(60)", []))
        await asyncio.to_thread(wait_until, lambda: is_asleep(pid))
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await ended(pid)
        return await pid_of(opened)

    assert on_a_loop(work)


def test_it_has_the_limits_of_djangos_own_sessions():
    connection.ensure_connection()
    with connection.cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        (limit,) = cursor.fetchone()

    async def work(opened):
        return await opened.rows("SELECT current_setting('statement_timeout'), current_database()", [])

    assert on_a_loop(work) == [(limit, connection.settings_dict["NAME"])]
    assert limit == f"{loop_database.STATEMENT_S:.0f}s"


def test_what_it_writes_is_committed_on_return():
    seen = []

    def look():
        with connection.cursor() as cursor:
            cursor.execute("SELECT key FROM tenants_api_usedtoken")
            seen.extend(cursor.fetchall())
        connection.close()

    async def work(opened):
        await opened.rows("INSERT INTO tenants_api_usedtoken VALUES (%s, now()) RETURNING key", ["a"])
        await asyncio.to_thread(look)

    on_a_loop(work)
    assert seen == [("a",)]


def test_a_connection_that_was_cut_is_opened_again(opened_so_far):
    async def work(opened):
        first = await pid_of(opened)
        await cut(first)
        return first, await pid_of(opened), await pid_of(opened)

    first, second, third = on_a_loop(work)
    assert first != second == third
    assert len(opened_so_far) == 3  # one of them was that of who cut
    assert opened_so_far[0].closed


def test_a_statement_whose_connection_is_lost_is_sent_twice_and_no_more(opened_so_far):
    async def work(opened):
        with pytest.raises(psycopg.OperationalError):
            await opened.rows("SELECT pg_terminate_backend(pg_backend_pid())", [])
        lost = len(opened_so_far)
        await pid_of(opened)
        return lost

    assert on_a_loop(work) == 2
    assert [one.closed for one in opened_so_far] == [True] * 3


def test_a_statement_that_fails_by_itself_is_not_sent_again(opened_so_far):
    async def work(opened):
        await pid_of(opened)
        with pytest.raises(psycopg.errors.DivisionByZero):
            await opened.rows("SELECT 1 / %s::int", [0])
        failed = len(opened_so_far)
        await pid_of(opened)
        return failed

    assert on_a_loop(work) == 1


@pytest.mark.parametrize("was_open", [False, True])
def test_a_database_that_is_away_raises_and_serves_again_once_it_is_back(was_open, monkeypatch):
    async def work(opened):
        if was_open:
            await cut(await pid_of(opened))
        with monkeypatch.context() as patched:
            patched.setitem(connections.settings["default"], "HOST", "127.0.0.1")
            patched.setitem(connections.settings["default"], "PORT", "1")
            for _ in range(2):
                with pytest.raises(psycopg.OperationalError):
                    await pid_of(opened)
        return await pid_of(opened)

    assert on_a_loop(work)


def has_ended(pid):
    """Whether the database has no such session any more."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = %s)", [pid])
            return cursor.fetchone()[0]
    finally:
        connection.close()


FATAL = b"SFATAL\0VFATAL\0C57P01\0Mterminating connection due to administrator command\0\0"


class Hurried:
    """Stands before the database and, told to, answers the next statement as one that ends the session: all at once."""

    def __init__(self, host, port):
        self.is_cutting, self.cut = threading.Event(), threading.Event()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._there = (host, port)
        self._threads = [threading.Thread(target=self._serve, daemon=True)]
        self._threads[0].start()

    def _serve(self):
        with self._server, contextlib.suppress(OSError):
            while True:
                here, _ = self._server.accept()
                there = socket.create_connection(self._there)
                self._threads.append(threading.Thread(target=self._pass_on, args=(here, there), daemon=True))
                self._threads[-1].start()

    def _pass_on(self, here, there):
        with here, there, contextlib.suppress(OSError):
            while True:
                for source in select.select([here, there], [], [])[0]:
                    if source is here and self.is_cutting.is_set():
                        self.is_cutting.clear()
                        here.sendall(b"E" + struct.pack("!I", len(FATAL) + 4) + FATAL)
                        here.close()  # what the client sent is not read: the end is a reset
                        self.cut.set()
                        return
                    data = source.recv(65536)
                    if not data:
                        return
                    (there if source is here else here).sendall(data)

    def close(self):
        """End it, once all its connections have ended."""
        self._server.shutdown(socket.SHUT_RDWR)
        for one in self._threads:
            one.join(20)


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_an_end_that_comes_together_with_its_reason_is_seen_at_once(make_loop, monkeypatch):
    found = connection.get_connection_params()
    hurried = Hurried(found["host"], int(found["port"]))
    monkeypatch.setitem(connections.settings["default"], "HOST", "127.0.0.1")
    monkeypatch.setitem(connections.settings["default"], "PORT", str(hurried.port))

    async def main():
        opened = LoopConnection()
        try:
            first = await pid_of(opened)
            hurried.is_cutting.set()
            asking = asyncio.ensure_future(pid_of(opened))
            for _ in range(3):
                await asyncio.sleep(0)
            assert hurried.cut.wait(10)  # the loop sees nothing of it until all of it is there
            async with asyncio.timeout(5):
                return first, await asking
        finally:
            await opened.close()

    try:
        with asyncio.Runner(loop_factory=make_loop) as runner:
            first, second = runner.run(main())
    finally:
        hurried.close()
    assert first != second


def is_asleep(pid):
    """Whether this session waits in `pg_sleep`."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND wait_event = 'PgSleep'", [pid])
            return cursor.fetchone()[0] == 1
    finally:
        connection.close()


async def ended(pid):
    await asyncio.to_thread(wait_until, lambda: has_ended(pid))


def test_a_statement_that_takes_too_long_costs_the_connection(monkeypatch):
    async def work(opened):
        first = await pid_of(opened)
        with monkeypatch.context() as patched:
            patched.setattr(loop_database, "STATEMENT_S", 0.05)
            with pytest.raises(TimeoutError):
                await opened.rows("SELECT pg_sleep(60)", [])
        await ended(first)
        return first, await pid_of(opened)

    first, second = on_a_loop(work)
    assert first != second


def test_a_database_that_does_not_answer_is_waited_for_no_longer_than_for_a_statement(monkeypatch, opened_so_far):
    monkeypatch.setattr(loop_database, "STATEMENT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as deaf, monkeypatch.context() as patched:
        patched.setitem(connections.settings["default"], "HOST", "127.0.0.1")
        patched.setitem(connections.settings["default"], "PORT", str(deaf.getsockname()[1]))
        with pytest.raises(TimeoutError):
            on_a_loop(pid_of)
    assert opened_so_far == []


def test_closed_it_has_no_session_and_may_be_used_again():
    async def work(opened):
        await opened.close()  # nothing was opened yet
        first = await pid_of(opened)
        await opened.close()
        await ended(first)
        return first, await pid_of(opened)

    first, second = on_a_loop(work)
    assert first != second


@pytest.mark.parametrize("most_prepared", [0, 50])
def test_a_percent_sign_is_written_twice_as_for_psycopg(most_prepared, monkeypatch):
    monkeypatch.setattr(loop_database, "MOST_PREPARED", most_prepared)

    async def work(opened):
        return await opened.rows("SELECT 7 %% %s::int, 'abc' LIKE 'a%%' || %s, '%%s'", [4, "c"])

    assert on_a_loop(work) == [(3, True, "%s")]


@pytest.mark.parametrize("query", ["SELECT %(name)s::int", "SELECT %b::int", "SELECT %s::int % 2", "SELECT %s::int %"])
def test_any_other_percent_sign_is_refused_by_name_and_the_connection_is_good_for_the_next(query):
    async def work(opened):
        with pytest.raises(ValueError, match=r"in a statement: a parameter is %s, a percent sign %%"):
            await opened.rows(query, [1])
        return await opened.rows("SELECT %s::int", [1])

    assert on_a_loop(work) == [(1,)]
