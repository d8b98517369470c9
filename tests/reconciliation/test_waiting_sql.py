"""Leases that wait for the chain: looked at about a block after it answers again, and not all at once."""

from datetime import timedelta
from uuid import UUID

import pytest
from django.db.models.functions import Now

from leases.models import Lease
from reconciliation import sources, suspect_sql, suspicion, waiting_sql, watch_store
from reconciliation.sources import Sources
from tests.reconciliation.chains import lease
from tests.reconciliation.keeping import keeping
from tests.reconciliation.story import ROWS, make_due
from tests.reconciliation.watching import blocks_every, event, until_read
from tests.waiting import wait_until

pytestmark = ROWS

BLOCK_S = 0.2
SOON_S = 7.0
"""Well below ten seconds, the shortest wait of a lease whose chain is silent."""


def waiting(number: int, reason: str, **columns) -> UUID:
    """A lease put off for this reason, the higher its number the later."""
    fields = {
        "due_at": Now() + timedelta(seconds=20 + number),
        "looked_at": Now() - timedelta(seconds=100 - number),
        "news_height": 100,
        **columns,
    }
    return Lease.objects.create(uuid=UUID(int=number), reason=reason, **fields).pk


def due() -> set[int]:
    return {uuid.int for uuid in Lease.objects.filter(due_at__lte=Now()).values_list("pk", flat=True)}


def test_a_block_sends_one_scout_of_each_kind(trusted, valkey):
    for number, reason in enumerate(("chain_silent", "chain_silent", "chain_stale", "chain_stale", "chain_unknown"), 1):
        waiting(number, reason)
    waiting(6, "chain_suspect")
    waiting(7, "chain_error", attempts=3)
    waiting(8, "backend_silent")
    waiting(9, "chain_unknown", news_height=-1, looked_at=None)  # a phantom: nobody announced it
    epochs = dict(Lease.objects.values_list("pk", "epoch"))
    assert waiting_sql.scout() == 4
    assert due() == {1, 3, 5, 6}
    assert all((one.epoch > epochs[one.pk]) is (one.pk.int in {1, 3, 5, 6}) for one in Lease.objects.all())
    assert waiting_sql.scout() == 2
    assert due() == {1, 2, 3, 4, 5, 6}


def test_a_lease_that_is_looked_at_now_is_no_scout(valkey):
    """Its look would be void, with every block again."""
    waiting(1, "chain_silent", attempts=1, due_at=Now() + timedelta(seconds=5))
    assert waiting_sql.scout() == 0
    assert waiting_sql.wake_others(["chain_silent"]) == 0


def test_an_answer_wakes_one_batch_of_those_that_wait_for_it(valkey, monkeypatch):
    monkeypatch.setattr(waiting_sql, "BATCH", 2)
    for number in range(1, 4):
        waiting(number, "chain_silent")
    waiting(4, "chain_stale")
    waiting(5, "backend_silent")
    assert waiting_sql.wake_others(["", "backend_silent"]) == 0
    assert waiting_sql.wake_others(["chain_silent", "chain_error", ""]) == 2
    assert due() == {1, 2}


def three_met_silence(looker, chain):
    """Three new leases that were looked at while the chain is silent."""
    ones = [lease() for _ in range(3)]
    chain.add(*ones)
    watch_store.store_events([event(uuid=one.uuid, height=90) for one in ones])
    chain.silent = True
    looker.at_due_leases()
    return ones


def test_one_scout_whose_look_is_answered_brings_back_all(looker, chain, trusted):
    ones = three_met_silence(looker, chain)
    assert set(Lease.objects.values_list("reason", flat=True)) == {"chain_silent"}
    looker.sources = Sources(chain)
    chain.silent = False
    make_due(Lease, pk=ones[0].uuid)
    looker.at_due_leases()
    assert len(due()) == 2
    looker.at_due_leases()
    assert set(Lease.objects.values_list("phase", "reason")) == {("provisioning", "")}


def test_a_lease_whose_look_outlasted_the_suspicion_is_no_exception(looker, chain, trusted):
    """It was in the hands of its look when all that waited were woken, and goes on to wait for what is over."""
    one = lease()
    chain.add(one)
    watch_store.store_events([event(uuid=one.uuid, height=90)])
    suspect_sql.suspect("manifest-localnet", reason="other_chain", detail="x")
    gather = looker.gather

    def gathered(*args):
        found = gather(*args)
        assert suspicion.end(operator=False)
        return found

    looker.gather = gathered
    looker.at_due_leases()
    assert Lease.objects.get().reason == "chain_suspect"
    assert not due()
    looker.gather = gather
    assert waiting_sql.scout() == 1
    looker.at_due_leases()
    assert Lease.objects.get().phase == "provisioning"


def test_a_look_without_an_answer_wakes_nobody(looker, chain, trusted):
    ones = three_met_silence(looker, chain)
    make_due(Lease, pk=ones[0].uuid)
    looker.at_due_leases()
    assert not due()


TROUBLES = {
    "silent": ("grpc_error", {"code": "UNAVAILABLE"}, "chain_silent"),
    "silent about leases": (
        "grpc_error",
        {"where": "/liftedinit.billing.v1.Query/*", "code": "UNAVAILABLE"},
        "chain_silent",
    ),
    "behind": ("stale_reads", {"blocks": 30}, "chain_stale"),
    "of another chain": ("empty_chain", {"where": "*Lease*", "height": 1_000_000}, "chain_unknown"),
}


@pytest.fixture
def working(story, monkeypatch):
    """That provider with a block every 200 ms, whose silence is remembered for half a second."""
    monkeypatch.setattr(sources, "SILENCE_S", 0.5)
    with blocks_every(story, BLOCK_S):
        yield story


@pytest.mark.parametrize("name", TROUBLES)
def test_new_leases_are_made_soon_after_the_trouble_ends(working, name):
    """The node is silent, behind, or knows nothing; then it answers, and nobody waits out what was said before."""
    effect, rule, reason = TROUBLES[name]
    with keeping(working):
        until_read(working.chain.height + 2)
        with working.chain.fault(effect, **rule):
            leases = [UUID(one) for one in working.chain.create_leases(3)]
            wait_until(lambda: Lease.objects.filter(pk__in=leases, reason=reason, attempts=0).count() == 3)
        wait_until(lambda: Lease.objects.filter(pk__in=leases, phase="active").count() == 3, timeout=SOON_S)
