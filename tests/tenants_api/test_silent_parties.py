"""Requests that wait for a silent backend or a silent node hold no route that needs neither."""

from __future__ import annotations

import json
import select
import threading
from contextlib import ExitStack
from hashlib import sha256

import pytest
from django.db import connections

from backends import targets
from fred import breaker, handler, web
from leases.chain import devchain
from leases.chain.cosmos import CosmosClient
from leases.status import LeaseState
from reconciliation.sources import Sources
from tenants_api import lease_reads
from tests.factories.leases import LeaseFactory
from tests.fred.served import served
from tests.tenants_api.calls import PROVIDER, bearer, envelope
from tests.tenants_api.placed import placed
from tests.tenants_api.vectors import ALICE, LEASE
from tests.waiting import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("unlimited")]
CROWD = web.THREADS + 4


@pytest.fixture
def server(house, lease, backends, monkeypatch):
    """The whole application on a port; docker-1 answers what is asked about lease L."""
    monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", 0)
    house.FRED = house.FRED.model_copy(update={"rate_limit_rps": 1e6, "rate_limit_burst": 10**6})
    breaker.forget()
    targets.forget()
    placed(lease)
    backends.one.says(f"/releases/{LEASE}", b"[]")
    with served(web.compose()) as one:
        yield one
    breaker.forget()
    targets.forget()


@pytest.fixture
def deaf(monkeypatch):
    """`deaf.asked`: how many exact reads were begun at a node that answers nothing."""
    with devchain.run() as chain, chain.fault("hang"):
        client = CosmosClient(chain.grpc, provider_uuid=PROVIDER)
        read = client.leases

        def leases(uuids):
            client.asked += 1
            return read(uuids)

        client.asked, client.leases = 0, leases
        monkeypatch.setattr(lease_reads, "sources", Sources(client, read_s=2.5, probe_s=0.5))
        yield client
        client.close()


def call(target, headers, *, method="GET"):
    lines = "".join(f"{name}: {value}\r\n" for name, value in {"Host": "x", **headers}.items())
    return f"{method} {target} HTTP/1.1\r\n{lines}\r\n".encode()


def ask_for(stack, server, leases, route="status"):
    """Ask for each of these leases on a connection of its own."""
    lines = [stack.enter_context(server.connect()) for _ in leases]
    for line, lease in zip(lines, leases, strict=True):
        line.send(call(f"/v1/leases/{lease}/{route}", bearer(lease=str(lease))))
    return lines


def make(number, **changes):
    """So many leases that are placed nowhere, so every backend is asked for them."""
    fields = {"tenant": ALICE, "provider_uuid": PROVIDER, "chain_state": LeaseState.ACTIVE, "items": [], **changes}
    return [LeaseFactory(**fields).uuid for _ in range(number)]


def is_unanswered(lines):
    """Whether none of these requests was told anything yet."""
    return select.select([line.socket for line in lines], [], [], 0)[0] == []


def others_are_served_before(lines, server):
    releases = server.ask(call(f"/v1/leases/{LEASE}/releases", bearer()))
    workloads = server.ask(call(f"/workloads?lease_uuid={LEASE}", {}))
    assert (releases.status, workloads.status) == (200, 200)
    assert is_unanswered(lines)


def test_searches_of_a_silent_backend_hold_nobody_else(server, backends):
    leases, held = make(CROWD), threading.Event()
    for lease in leases:
        backends.two.answers[f"/provisions/{lease}"] = lambda: held.wait(30) and (404, b"{}")
    with ExitStack() as stack:
        lines = ask_for(stack, server, leases)
        wait_until(lambda: len(backends.two.calls) >= web.THREADS)
        others_are_served_before(lines, server)
        held.set()
        assert [line.answer().status for line in lines] == [200] * CROWD


def test_releases_of_a_silent_backend_hold_no_upload(server, backends):
    payload, held = b"{}", threading.Event()
    (pending,) = make(1, chain_state=LeaseState.PENDING, meta_hash=sha256(payload).digest())
    backends.one.answers[f"/releases/{LEASE}"] = lambda: held.wait(30) and (200, b"[]")
    token = bearer(lease=str(pending), meta_hash=sha256(payload).hexdigest())
    upload = call(f"/v1/leases/{pending}/data", {**token, "Content-Length": len(payload)}, method="POST") + payload
    with ExitStack() as stack:
        lines = ask_for(stack, server, [LEASE] * CROWD, route="releases")
        wait_until(lambda: len(backends.one.calls) >= web.ASKING_THREADS)
        assert server.ask(upload).status == 202
        assert is_unanswered(lines)
        held.set()
        assert [line.answer().status for line in lines] == [200] * CROWD


def test_reads_of_a_silent_node_hold_nobody_else(server, deaf):
    with ExitStack() as stack:
        lines = ask_for(stack, server, make(CROWD, chain_height=10, news_height=11))
        wait_until(lambda: deaf.asked >= web.THREADS)
        others_are_served_before(lines, server)
        assert [line.answer().status for line in lines] == [500] * CROWD


def test_more_than_may_wait_for_a_node_are_told_so(server, deaf, monkeypatch):
    monkeypatch.setattr(handler, "MOST_ASIDE", 2)
    first, *others = make(3, chain_height=10, news_height=11)
    with ExitStack() as stack, served(web.compose()) as small:
        lines = ask_for(stack, small, [first, first])
        wait_until(lambda: deaf.asked == 2)
        refused = small.ask(call(f"/v1/leases/{others[0]}/status", bearer(lease=str(others[0]))))
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert json.loads(refused.body) == envelope("service temporarily unavailable", 503)
        others_are_served_before(lines, small)
        assert [line.answer().status for line in lines] == [500, 500]
        last = small.ask(call(f"/v1/leases/{others[1]}/status", bearer(lease=str(others[1]))))
        assert last.status == 500  # it had a place, and was told of the silence
