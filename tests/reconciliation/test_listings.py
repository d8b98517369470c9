"""One list of PENDING leases serves all looks: stored as it comes, and waited for as long as somebody reads it."""

from __future__ import annotations

import threading
from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.db import connections

from leases.chain.client import LeasePage
from leases.chain.errors import ChainUnavailable
from leases.models import Lease
from reconciliation import facts
from reconciliation import facts_sql as q
from reconciliation.sources import NOBODY, Sources
from tests.factories.leases import LeaseFactory
from tests.reconciliation.chains import MemoryChain, lease
from tests.waiting import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("trusted")]

NUMBER = 30


class PagedChain(MemoryChain):
    """Lists ten leases to a page; each page after the first waits until it is let go, or fails."""

    def __init__(self, *, fails=False):
        super().__init__()
        self.fails, self.go_on, self.pages = fails, threading.Event(), 0

    def list_leases(self, provider_uuid, state=None):
        self.listings += 1
        rows = sorted(self.leases_by_uuid.values(), key=lambda one: one.uuid)
        for start in range(0, len(rows), 10):
            if start:
                if self.fails:
                    raise ChainUnavailable("no answer")
                assert self.go_on.wait(20)
            self.pages += 1
            yield LeasePage(tuple(rows[start : start + 10]), self.height)


@pytest.fixture
def unread(monkeypatch):
    """Leases that were announced and not read yet; uuid to epoch. Batches are as long as a page."""
    monkeypatch.setattr("reconciliation.sources.BATCH", 10)

    def make(chain):
        chain.add(*(lease() for _ in range(NUMBER)))
        for uuid in chain.leases_by_uuid:
            LeaseFactory(uuid=uuid, chain_state=None, news_height=chain.height, chain_height=-1, due_at=None)
        return dict(Lease.objects.values_list("uuid", "epoch"))

    return make


def gathering(claimed, chain):
    """A look of another worker that gathers these."""

    def gather():
        try:
            facts.gather(claimed, Sources(chain))
        finally:
            connections.close_all()

    thread = threading.Thread(target=gather, daemon=True)
    thread.start()
    return thread


def states(uuids):
    return set(Lease.objects.filter(uuid__in=uuids).values_list("chain_state", flat=True))


def test_pages_are_stored_while_the_next_ones_are_read(unread):
    chain = PagedChain()
    claimed = unread(chain)
    first = sorted(claimed)[:10]
    looking = gathering(claimed, chain)
    wait_until(lambda: states(first) == {1})
    assert states(sorted(claimed)[10:]) == {None}
    chain.go_on.set()
    looking.join(20)
    assert states(claimed) == {1}
    assert (chain.listings, chain.exact_reads) == (1, [])


def test_a_list_that_breaks_off_is_good_for_what_it_named(unread):
    chain = PagedChain(fails=True)
    claimed = unread(chain)
    facts.gather(claimed, Sources(chain))
    assert states(claimed) == {1}
    assert sorted(chain.exact_reads) == [NOBODY, *sorted(claimed)[10:]]


def test_who_waits_for_a_list_reads_nothing_itself_as_long_as_somebody_is_at_it(unread, monkeypatch):
    monkeypatch.setattr(facts, "LISTING_WAIT_S", 0.1)
    asked = []
    outdated = q.outdated

    def noted(uuids):
        asked.append(threading.current_thread())
        return outdated(uuids)

    monkeypatch.setattr(q, "outdated", noted)
    chain = PagedChain()
    claimed = unread(chain)
    lister = gathering(claimed, chain)
    wait_until(lambda: chain.pages == 1)
    waiter = gathering(claimed, chain)
    wait_until(lambda: asked.count(waiter) > 8, message="the waiter to outwait its time limit")
    assert waiter.is_alive()
    chain.go_on.set()
    for thread in (lister, waiter):
        thread.join(20)
    assert states(claimed) == {1}
    assert (chain.listings, chain.exact_reads) == (1, [])


def test_who_waited_in_vain_lists_what_is_left(unread, monkeypatch):
    """The lister was killed: its claim ends by itself, and nobody is asked lease by lease."""
    monkeypatch.setattr(facts, "LISTING_WAIT_S", 0.1)
    chain = PagedChain()
    chain.go_on.set()
    claimed = unread(chain)
    facts.PeriodicTask.objects.create(name=facts.LISTING, due_at=q.now() + facts.due.CLAIM_FOR / 10)
    facts.gather(claimed, Sources(chain))
    assert states(claimed) == {1}
    assert (chain.listings, chain.exact_reads) == (1, [])


def test_a_gather_waits_once_for_a_list_that_never_ends_and_then_reads_each(unread, monkeypatch):
    clock = SimpleNamespace(now=0.0)
    clock.monotonic = lambda: clock.now
    clock.sleep = lambda seconds: setattr(clock, "now", clock.now + seconds)
    monkeypatch.setattr(facts, "time", clock)
    chain = PagedChain()
    claimed = unread(chain)
    facts.PeriodicTask.objects.create(name=facts.LISTING, due_at=q.now() + timedelta(hours=1))
    facts.gather(claimed, Sources(chain))
    assert facts.LISTING_MOST_S <= clock.now < facts.LISTING_MOST_S + 0.1
    assert (chain.listings, sorted(chain.exact_reads)) == (0, sorted(claimed))
