"""How old an answer may be, and when the chain is read for it."""

import uuid
from datetime import timedelta

import pytest
from django.utils import timezone

from leases.models import ChainCursor, Lease
from leases.status import LeaseState
from tests.factories.leases import LeaseFactory
from tests.tenants_api.calls import bearer, envelope
from tests.tenants_api.placed import HASH
from tests.tenants_api.vectors import ALICE, BOB, LEASE

pytestmark = pytest.mark.django_db


def test_a_fresh_lease_is_answered_without_the_chain(ask, lease, chain):
    assert ask("status").status == 200
    assert chain.asked == []


def aged_head():
    ChainCursor.objects.update(head_seen_at=timezone.now() - timedelta(seconds=31))


def newer_news():
    Lease.objects.update(news_height=11)


def no_watcher():
    ChainCursor.objects.all().delete()


@pytest.mark.parametrize("why", [aged_head, newer_news, no_watcher])
def test_an_old_lease_is_read_once_and_kept(why, ask, lease, chain):
    why()
    chain.add(uuid.UUID(LEASE), state=LeaseState.CLOSED)
    assert ask("status").body["state"] == "LEASE_STATE_CLOSED"
    assert chain.asked == [uuid.UUID(LEASE)]
    stored = Lease.objects.get()
    assert (stored.chain_state, stored.chain_height) == (LeaseState.CLOSED, 100)
    assert stored.due_at is not None
    ask("status")  # the end of a lease is known for ever
    assert len(chain.asked) == 1


def test_a_read_that_is_older_than_what_is_stored_changes_nothing(ask, lease, chain):
    newer_news()
    chain.add(uuid.UUID(LEASE), height=9, state=LeaseState.PENDING)
    assert ask("status").body["state"] == "LEASE_STATE_ACTIVE"
    assert Lease.objects.get().chain_height == 10


def test_a_lease_nobody_stored_is_read_and_kept_and_looked_at(ask, watcher, chain):
    chain.add(uuid.UUID(LEASE), state=LeaseState.PENDING, meta_hash=HASH)
    assert ask("status").body["meta_hash_hex"] == HASH.hex()
    stored = Lease.objects.get()
    assert (stored.tenant, stored.chain_state, stored.due_at is None) == (ALICE, LeaseState.PENDING, False)


def test_a_stub_is_read(ask, watcher, chain):
    LeaseFactory(uuid=LEASE, tenant=None, provider_uuid=None, chain_state=None, chain_height=-1)
    assert ask("status").body == envelope("lease not found", 404)
    chain.add(uuid.UUID(LEASE))
    assert ask("status").status == 200


def test_another_tenants_lease_read_from_the_chain_is_forbidden(ask, watcher, chain):
    chain.add(uuid.UUID(LEASE), tenant=BOB)
    assert ask("status", headers=bearer()).body == envelope("forbidden", 403)
