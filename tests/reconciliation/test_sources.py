"""Reads of leases that fail: one incident when the node answers for no other lease, else that lease's own failure."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest
from django.conf import settings
from structlog.testing import capture_logs

from leases.chain.client import Absent, ExactLease
from leases.chain.cosmos import CosmosClient
from leases.chain.events import EventType
from leases.models import Lease
from placements.models import Operation
from reconciliation.facts import LIST_FROM
from reconciliation.facts_types import Unknown
from reconciliation.sources import NOBODY, Sources
from tests.reconciliation.story import ROWS, make_due

pytestmark = ROWS

READS = "/liftedinit.billing.v1.Query/*"
ONE_LEASE = "/liftedinit.billing.v1.Query/Lease"
UNAVAILABLE = {"code": "UNAVAILABLE"}
PATIENCE_S = 0.3


@pytest.fixture
def impatient(story):
    """The story's looks, with a short patience for each read."""
    client = CosmosClient(
        settings.FRED.grpc_endpoint, provider_uuid=settings.FRED.provider_uuid, query_seconds=PATIENCE_S
    )
    story.looker.sources = Sources(client)
    yield story
    client.close()


def silences(logs):
    return [entry["event"] for entry in logs if entry["event"] in ("source silent", "source answers again")]


@pytest.mark.parametrize("number", [1, 3, LIST_FROM + 1])
@pytest.mark.parametrize(
    ("effect", "rule"),
    [
        pytest.param("grpc_error", {"where": READS, **UNAVAILABLE}, id="refuses"),
        pytest.param("grpc_error", {"where": ONE_LEASE, **UNAVAILABLE}, id="refuses all but lists"),
        pytest.param("hang", {"where": READS}, id="hangs"),
    ],
)
def test_a_node_that_reads_no_lease_but_makes_blocks_is_one_incident(impatient, effect, rule, number):
    """LC-3: no lease is counted against, nothing is concluded, and none waits longer than 30 s."""
    story = impatient
    leases = [UUID(one) for one in story.chain.create_leases(number)]
    for uuid in leases:
        story.hear(uuid)
    if number > LIST_FROM:  # a list makes PENDING ones known: those that ended are read one by one
        for uuid in leases:
            story.chain.cancel_lease(str(uuid))
            story.hear(uuid, EventType.CANCELLED)
    with story.chain.fault(effect, **rule), capture_logs() as logs:
        for _ in range(3):
            assert story.looker.sources.chain.latest_height().height == story.chain.height
            story.looker.sources.chain_silence.until = 0.0  # the time passes, somebody probes
            story.look()
            for row in Lease.objects.filter(pk__in=leases):
                assert (row.reason, row.attempts, row.last_error) == ("chain_silent", 0, "")
                assert timedelta() < row.due_at - row.looked_at <= timedelta(seconds=30)
            make_due(Lease)
    assert silences(logs) == ["source silent"]
    assert not Operation.objects.exists()
    story.looker.sources.chain_silence.until = 0.0
    with capture_logs() as logs:
        story.look()
    assert silences(logs) == ["source answers again"]
    assert not Lease.objects.filter(pk__in=leases, reason="chain_silent").exists()


@pytest.mark.parametrize("others", [0, 2, 100])
def test_one_lease_that_cannot_be_read_is_its_own_failure(impatient, others):
    """LC-3: alone in its batch, or among many that are read."""
    bad, *good = (UUID(one) for one in impatient.chain.create_leases(1 + others))
    rule = {"where": READS, "match": {"lease": str(bad)}, **UNAVAILABLE}
    with impatient.chain.fault("grpc_error", **rule), capture_logs() as logs:
        found = impatient.looker.sources.exact([bad, *good])
    assert found.pop(bad) == Unknown("chain_error", is_own=True)
    assert set(found) == set(good)
    assert all(isinstance(read, ExactLease) for read in found.values())
    assert silences(logs) == []


def test_a_node_that_goes_away_within_a_batch_fails_no_lease(impatient):
    leases = [UUID(one) for one in impatient.chain.create_leases(3)]
    with impatient.chain.fault("grpc_error", where=ONE_LEASE, match={"nth": [2, 3, 4]}, **UNAVAILABLE):
        found = impatient.looker.sources.exact(leases)
    assert sorted(type(read).__name__ for read in found.values()) == ["ExactLease", "Unknown", "Unknown"]
    assert {read for read in found.values() if isinstance(read, Unknown)} == {Unknown("chain_silent")}


def test_nobody_is_a_lease_that_the_chain_has_not(impatient):
    assert isinstance(impatient.looker.sources.chain.leases([NOBODY])[NOBODY], Absent)
