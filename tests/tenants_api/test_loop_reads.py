"""Questions of the event loop to the database: their errors, and that processes never wait in a ring."""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from uuid import UUID

import pytest
from django.db import OperationalError, connection, connections

from fred import loop_database, on_loop
from tenants_api import lease_reads, loop_reads
from tenants_api.models import UsedToken
from tests.tenants_api.vectors import LEASE
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)
UNTIL = datetime(2100, 1, 1, tzinfo=UTC)
WAITING = """
    SELECT count(*) FROM pg_stat_activity
     WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%INTO tenants_api_usedtoken%'
"""


def ask(*questions):
    """The answers to these functions, each called in a view of its own, on a loop of their own."""

    async def main():
        try:
            asked = [on_loop.run(one, aside=asyncio.to_thread, briefly=asyncio.to_thread) for one in questions]
            return await asyncio.gather(*asked, return_exceptions=True)
        finally:
            await loop_reads.close()
            await lease_reads.rows.close()

    return asyncio.run(main())


def spend(*keys):
    return ask(*(lambda key=key: loop_reads.spend(key, UNTIL) for key in keys))


def test_a_database_that_does_not_answer_is_an_error_of_djangos(monkeypatch):
    monkeypatch.setattr(loop_database, "STATEMENT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        monkeypatch.setitem(connections.settings["default"], "HOST", "127.0.0.1")
        monkeypatch.setitem(connections.settings["default"], "PORT", str(deaf.getsockname()[1]))
        found = ask(lambda: loop_reads.spend("a", UNTIL), lambda: lease_reads.rows.row(UUID(LEASE)))
    assert [type(one) for one in found] == [OperationalError] * 2


def are_waiting(number):
    """Whether so many sessions wait for another one that stores uses of tokens."""
    with connection.cursor() as cursor:
        cursor.execute(WAITING)
        return cursor.fetchone()[0] == number


def test_processes_that_store_the_same_uses_at_once_wait_for_each_other_in_one_order():
    holder = connection.copy()
    holder.set_autocommit(False)
    with ThreadPoolExecutor(2) as processes:
        try:
            with holder.cursor() as cursor:
                cursor.execute("INSERT INTO tenants_api_usedtoken VALUES ('b', now())")
            first = processes.submit(spend, "b", "a")
            wait_until(lambda: are_waiting(1))
            second = processes.submit(spend, "a", "b")
            wait_until(lambda: are_waiting(2))
        finally:
            holder.rollback()
            holder.close()
        found = [*first.result(60), *second.result(60)]
    assert sorted(found) == [False, False, True, True]
    assert set(UsedToken.objects.values_list("key", flat=True)) == {"a", "b"}
