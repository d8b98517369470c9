"""A request that waits for a backend or the chain keeps none of the few connections to the database meanwhile."""

import threading

import pytest
from django.db import connection, connections

from leases.models import Lease
from tenants_api import logs
from tenants_api.log_slots import MOST_RUNNING, LogSlots
from tests.tenants_api.placed import placed
from tests.tenants_api.vectors import LEASE
from tests.waiting import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("unlimited")]
ASKED = {
    "status": f"/provisions/{LEASE}",
    "provision": f"/provisions/{LEASE}",
    "connection": f"/info/{LEASE}",
    "logs": f"/logs/{LEASE}?tail=100",
    "releases": f"/releases/{LEASE}",
}


def session():
    """The database's id of this thread's connection."""
    connection.ensure_connection()
    return connection.connection.info.backend_pid


def has_ended(pid):
    """Whether the database has no such session any more; asked over another thread's connection."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = %s)", [pid])
        return cursor.fetchone()[0]


@pytest.mark.parametrize("route", ASKED)
def test_who_waits_for_a_backend_has_given_its_connection_back(route, ask, lease, backends):
    pid, told = session(), []

    def answer():
        try:
            wait_until(lambda: has_ended(pid), timeout=5)
            told.append("given back")
        finally:
            connections.close_all()
        return 404, b"{}"

    placed(lease)
    backends.one.answers[ASKED[route]] = answer
    ask(route)
    assert told == ["given back"]


def test_who_waits_for_the_chain_has_given_its_connection_back(ask, lease, chain, monkeypatch):
    Lease.objects.update(news_height=11)
    read, seen = chain.leases, []

    def noted(uuids):
        seen.append(connection.connection)
        return read(uuids)

    monkeypatch.setattr(chain, "leases", noted)
    ask("connection")
    assert seen == [None]


def test_who_waits_for_a_place_among_the_logs_has_given_its_connection_back(ask, lease, backends, monkeypatch):
    slots = LogSlots()
    monkeypatch.setattr(logs, "slots", slots)
    placed(lease)
    held = [slots.take("another", size=1, seconds=0) for _ in range(MOST_RUNNING)]
    pid, told = session(), []

    def release():
        try:
            wait_until(lambda: slots._waiting and has_ended(pid), timeout=5)
            told.append("given back")
        finally:
            held[0].release()
            connections.close_all()

    releasing = threading.Thread(target=release)
    releasing.start()
    assert ask("logs").status == 404
    releasing.join(10)
    assert told == ["given back"]
