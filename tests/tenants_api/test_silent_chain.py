"""A node that takes connections and never says a word: whoever asks for a lease is told so, and not too late for it."""

import socket
import time
from uuid import UUID

import pytest

from fred.budget import Budget, of_part, spending
from leases.chain.cosmos import CosmosClient
from leases.models import Lease
from reconciliation.sources import Sources
from tenants_api import lease_reads
from tests.tenants_api.calls import PROVIDER, bearer, envelope
from tests.tenants_api.vectors import LEASE

pytestmark = pytest.mark.django_db
K1 = "550e8400-e29b-41d4-a716-446655440000"
REQUEST_S = 12.0


@pytest.fixture
def deaf(chain, monkeypatch):
    """Exact reads go to such a node, with less patience than in a house."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = CosmosClient(f"127.0.0.1:{listener.getsockname()[1]}", provider_uuid=PROVIDER)
        monkeypatch.setattr(lease_reads, "sources", Sources(client, read_s=0.2, probe_s=0.1))
        yield client
        client.close()


@pytest.mark.parametrize("route", ["status", "connection"])
def test_ta17_a_node_that_is_silent_is_500_in_time(route, ask, lease, deaf):
    Lease.objects.update(news_height=11)
    began = time.monotonic()
    with spending(Budget(REQUEST_S, changes=False)):
        found = ask(route)
    assert (found.status, found.body) == (500, envelope("internal server error", 500))
    assert time.monotonic() - began < REQUEST_S / 2
    assert lease_reads.sources.exact([UUID(LEASE)])[UUID(LEASE)].reason == "chain_silent"


@pytest.mark.parametrize(
    ("key", "expected"),
    [(None, (500, "internal server error")), (K1, (503, "service temporarily unavailable"))],
)
def test_ta17_ta127_a_command_is_refused_in_time(key, expected, ask, lease, deaf):
    named = {} if key is None else {"Idempotency-Key": key}
    with spending(Budget(REQUEST_S, changes=True)):
        found = ask("restart", headers={**bearer(), **named}, method="POST")
    assert (found.status, found.body) == (expected[0], envelope(expected[1], expected[0]))


def test_a_request_that_is_over_does_not_take_the_chain_for_silent(watcher, chain, monkeypatch):
    """What a late request asks has the time of every other."""
    given = []

    class Watched(type(chain)):
        def leases(self, lease_uuids):
            given.append(of_part(60.0))
            return super().leases(lease_uuids)

    monkeypatch.setattr(lease_reads, "sources", Sources(Watched(), read_s=lease_reads.READ_S, probe_s=1.0))
    with spending(Budget(-1.0, changes=False)):
        lease_reads.exactly(UUID(LEASE))
    assert given == [pytest.approx(lease_reads.READ_S, abs=1.0)]


def test_all_that_is_asked_of_a_silent_chain_fits_into_the_time_of_a_request():
    assert lease_reads.READ_S + lease_reads.PROBE_S < REQUEST_S - 2
