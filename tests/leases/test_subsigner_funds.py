"""Funds of sub-signers against a simulated chain: who is topped up, by how much, and when that cannot be known."""

from __future__ import annotations

from datetime import timedelta

import pytest

from fred.models import PeriodicTask
from leases import lanes, node
from leases.chain.errors import ChainUnavailable
from leases.status import LeaseState
from tests.leases.house import pending, states, want
from tests.leases.signers import (
    MINIMUM,
    TOP_UP,
    address_of,
    balance,
    errands,
    give,
    grant,
    have_sub_signers,
    look_after,
    make_due,
    run_until_done,
    settle,
    signed_by,
    usable,
)

ACTIVE = int(LeaseState.ACTIVE)


def hide_balance(monkeypatch, dark: str) -> None:
    """Let nobody answer who asks what this address owns."""
    chain = node.client()
    ask = chain.balance

    def balance_of(address: str, denom: str) -> int:
        if address == dark:
            raise ChainUnavailable("no answer")
        return ask(address, denom)

    monkeypatch.setattr(chain, "balance", balance_of)


def test_only_those_below_the_minimum_are_topped_up(house, settings):
    """CH-73"""
    have_sub_signers(settings, 3)
    grant(house, 1, 2, 3)
    give(house, {2: MINIMUM, 3: MINIMUM - 1})
    settle()
    [funding] = errands(house, "MsgSend")
    assert [message.to_address for message in funding] == [address_of(house, 1), address_of(house, 3)]
    assert [balance(house, n) for n in (1, 2, 3)] == [TOP_UP, MINIMUM, MINIMUM - 1 + TOP_UP]
    assert usable() == [0, 1, 2]


@pytest.mark.parametrize(
    ("owns", "funded"),
    [
        pytest.param(100, False, id="CH-74 next to nothing"),
        pytest.param(2 * TOP_UP + 1_000_000 - 1, False, id="CH-75 one unit less"),
        pytest.param(2 * TOP_UP + 1_000_000, True, id="CH-75 exactly enough"),
    ],
)
def test_nobody_is_funded_unless_the_provider_can_afford_all(house, settings, owns, funded):
    have_sub_signers(settings, 2)
    grant(house, 1, 2)
    state = house.node.chain.state

    def leave() -> None:
        address = address_of(house, 0)
        state.add(address, (("umfx", state.balance(address, "umfx") - owns),), sign=-1)

    house.call(leave)
    settle()
    assert len(errands(house, "MsgSend")) == funded
    assert usable() == ([0, 1] if funded else [])


def test_a_balance_that_cannot_be_read_is_skipped_and_the_others_are_funded(house, settings, monkeypatch):
    """CH-76"""
    have_sub_signers(settings, 3)
    grant(house, 1, 2, 3)
    hide_balance(monkeypatch, address_of(house, 2))
    settle()
    [funding] = errands(house, "MsgSend")
    assert [message.to_address for message in funding] == [address_of(house, 1), address_of(house, 3)]
    assert usable() == [0, 2]


@pytest.mark.parametrize("number", [0, 1], ids=["the provider's", "a sub-signer's"])
def test_a_balance_that_was_not_read_is_asked_for_again_soon(house, settings, monkeypatch, number):
    """Nobody is found lacking for it, so nobody waits as long as one who lacks something."""
    have_sub_signers(settings, 1)
    grant(house, 1)
    give(house, {1: MINIMUM})
    hide_balance(monkeypatch, address_of(house, number))
    look_after()
    task = PeriodicTask.objects.get(name="sub-signers")
    assert (task.outcome, task.due_at - task.finished_at) == ("ok", timedelta(seconds=30))
    monkeypatch.undo()
    look_after()
    task.refresh_from_db()
    assert task.due_at - task.finished_at >= timedelta(minutes=59), "the usual interval"
    assert usable() == [0]


def test_a_late_index_tops_up_once(house, settings):
    """CH-57: what was sent is looked for until it is found; nothing is sent anew meanwhile."""
    have_sub_signers(settings, 1)
    grant(house, 1)
    number = house.add_fault("index_lag", blocks=50)
    look_after()
    for _ in range(4):
        look_after()
        make_due()
        lanes.run()
        house.produce_block()
    assert balance(house, 1) == TOP_UP
    house.remove_fault(number)
    settle()
    assert balance(house, 1) == TOP_UP
    assert len(errands(house, "MsgSend")) == 1
    assert usable() == [0]


def test_a_sub_signer_without_funds_gives_its_work_away_and_is_topped_up(house, settings):
    have_sub_signers(settings, 1)
    settle()
    state, address = house.node.chain.state, address_of(house, 1)
    house.call(lambda: state.add(address, (("umfx", state.balance(address, "umfx")),), sign=-1))
    leases = pending(house, 3)
    want("ack", leases)
    run_until_done()
    assert states(house, leases) == [ACTIVE] * 3
    assert usable() == []
    assert signed_by(house) == {address_of(house, 0): 1}
    settle()
    assert usable() == [0]
    assert balance(house, 1) == TOP_UP
