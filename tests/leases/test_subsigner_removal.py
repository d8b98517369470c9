"""Removed sub-signers against a simulated chain: they lose their grants once nothing of theirs is open."""

from __future__ import annotations

from leases import lanes
from leases.models import ChainTx, Signer
from leases.status import LeaseState
from tests.leases.house import pending, states, want
from tests.leases.signers import (
    address_of,
    everything_for,
    grants,
    have_sub_signers,
    look_after,
    questions,
    run_until_done,
    settle,
    usable,
)

ACTIVE = int(LeaseState.ACTIVE)


def test_removed_sub_signers_lose_their_grants_and_the_others_go_on(house, settings):
    have_sub_signers(settings, 3)
    settle()
    have_sub_signers(settings, 1)
    settle()
    assert grants(house) == everything_for(house, 1)
    assert usable() == [0]
    assert Signer.objects.filter(retired_at__isnull=False).count() == 2
    asked = questions(house)
    look_after()
    assert questions(house) == asked + 3, "nobody asks after those that are gone"
    have_sub_signers(settings, 3)
    settle()
    assert grants(house) == everything_for(house, 1, 2, 3)
    assert usable() == [0, 1, 2]


def test_a_removed_sub_signer_keeps_its_grants_while_its_transaction_is_open(house, settings):
    """CH-79: what it has begun, it ends."""
    have_sub_signers(settings, 1)
    settle()
    house.set_block_mode("manual")
    leases = pending(house, 3)
    want("ack", leases)
    lanes.run()
    assert ChainTx.objects.filter(state="broadcast").get().signer_id == address_of(house, 1)
    have_sub_signers(settings, 0)
    look_after()
    assert grants(house) == everything_for(house, 1)
    house.set_block_mode("instant")
    house.produce_block()
    run_until_done()
    settle()
    assert states(house, leases) == [ACTIVE] * 3
    assert grants(house) == set()
