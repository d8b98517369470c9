"""A read from before what is stored changes nothing, and is counted."""

from uuid import uuid4

import pytest
from django.utils import timezone

from fred import metrics
from leases import sql
from leases.chain import noticed
from leases.models import Lease
from leases.status import LeaseState
from reconciliation import facts
from reconciliation.sources import Sources
from tests.reconciliation.chains import lease

pytestmark = pytest.mark.django_db(transaction=True)


def stale(query):
    return metrics.CHAIN_STALE_READS.labels(query)._value.get()


def test_an_older_listing_is_ignored():
    """CH-87"""
    one = lease(LeaseState.ACTIVE)
    sql.store_reads([(one, 100)], exact=False)
    before = stale("list_leases")
    older = lease(LeaseState.PENDING, uuid=one.uuid)
    assert sql.store_reads([(older, 90)], exact=False) == {}
    row = Lease.objects.get()
    assert (row.chain_state, row.chain_height) == (LeaseState.ACTIVE, 100)
    assert stale("list_leases") == before + 1


def test_an_exact_read_older_than_the_news_is_no_fact(chain, trusted):
    uuid = uuid4()
    chain.add(lease(LeaseState.ACTIVE, uuid=uuid))
    chain.height = 90
    Lease.objects.create(uuid=uuid, news_height=95, due_at=timezone.now())
    noticed.forget()
    before = stale("get_lease")
    found = facts.exact_reads([uuid], {}, Sources(chain))
    assert found[uuid] == facts.f.Unknown("chain_stale", behind=5)
    assert stale("get_lease") == before + 1
    assert "stale_read" in noticed._said


@pytest.mark.parametrize("state", [None, LeaseState.PENDING])
def test_a_lease_missing_in_a_read_older_than_its_news_is_not_absent(chain, trusted, state):
    """It was made in a block that the node has not seen yet: nothing is known of it, and it is no phantom."""
    uuid = uuid4()
    chain.height = 94
    Lease.objects.create(uuid=uuid, news_height=95, chain_state=state, due_at=timezone.now())
    before = stale("get_lease")
    assert facts.exact_reads([uuid], {}, Sources(chain)) == {uuid: facts.f.Unknown("chain_stale", behind=1)}
    assert stale("get_lease") == before + 1
    chain.height = 95
    doubt = facts.f.Absent() if state is None else facts.f.Unknown("chain_unknown")
    assert facts.exact_reads([uuid], {}, Sources(chain)) == {uuid: doubt}


def test_a_chain_that_is_suspect_is_not_even_asked(chain, trusted):
    from reconciliation import suspect_sql

    uuid = uuid4()
    chain.add(lease(LeaseState.CLOSED, uuid=uuid))
    suspect_sql.suspect("manifest-localnet", reason="other_chain", detail="x")
    assert facts.exact_reads([uuid], {}, Sources(chain)) == {uuid: facts.SUSPECT}
    assert not chain.exact_reads
