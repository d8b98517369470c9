"""The pool of a web process, when the server was started again or is away for long."""

import threading

import pytest
from django.db import connection

from fred.postgresql import pools
from tests.waiting import wait_until

SIZE = 8


@pytest.fixture
def pooled():
    """Make wrappers of Django's that share one pool, as the threads of a web process do."""
    made = []

    def make():
        one = connection.copy()
        pool = {"min_size": 1, "max_size": SIZE, "timeout": 5}
        one.settings_dict = {**one.settings_dict, "CONN_MAX_AGE": 0, "CONN_HEALTH_CHECKS": True}
        one.settings_dict["OPTIONS"] = {**one.settings_dict["OPTIONS"], "pool": pool}
        made.append(one)
        return one

    yield make
    for one in made:
        one.close()
    made[0].close_pool()


def pid_of(wrapper):
    with wrapper.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return cursor.fetchone()[0]


@pytest.mark.django_db(transaction=True)
def test_the_first_read_after_the_server_ended_all_idle_connections_gets_one(pooled):
    wrappers = [pooled() for _ in range(SIZE)]
    pids = {pid_of(one) for one in wrappers}
    for one in wrappers:
        one.close()
    assert len(pids) == SIZE
    with connection.cursor() as cursor:
        cursor.execute("SELECT bool_and(pg_terminate_backend(pid, 5000)) FROM unnest(%s::int[]) AS pid", [list(pids)])
        assert cursor.fetchone() == (True,)
    reader = pooled()
    assert pid_of(reader) not in pids


@pytest.mark.django_db(transaction=True)
def test_who_waits_is_served_soon_however_long_the_server_was_away(nobody_listens, monkeypatch):
    monkeypatch.setattr(pools, "RETRY_S", 0.05)
    parameters = {**connection.get_connection_params(), "autocommit": True}
    port, parameters["port"] = parameters["port"], nobody_listens
    got = []
    with pools.Pool(parameters, lambda _: None, min_size=1, max_size=SIZE, timeout=60) as pool:
        wait_until(lambda: pool.get_stats().get("connections_errors", 0) >= 12)
        waiting = threading.Thread(target=lambda: got.append(pool.getconn()), daemon=True)
        waiting.start()
        wait_until(lambda: pool.get_stats()["requests_waiting"])
        parameters["port"] = port
        waiting.join(60)
        assert got
        pool.putconn(got[0])
