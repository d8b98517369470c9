"""The gauges of the signers: how many there are, and what they own."""

from __future__ import annotations

import pytest
from django.db.models.functions import Now

from fred import metrics, readings
from leases.balances import Balances
from leases.chain.errors import ChainUnavailable
from leases.models import Signer


class Chain:
    """Balances as a node says them."""

    def __init__(self, **balances: int | None) -> None:
        self.balances = balances
        self.asked: list[tuple[str, str]] = []

    def balance(self, address: str, denom: str) -> int:
        self.asked.append((address, denom))
        found = self.balances.get(address)
        if found is None:
            raise ChainUnavailable("away")
        return found


@pytest.fixture
def signers(settings, db):
    """The provider's key, two sub-signers that may sign and one that may not."""
    settings.FRED = settings.FRED.model_copy(update={"provider_address": "p", "fee_denom": "upoa"})
    Signer.objects.create(address="p", due_at=Now())
    for index, usable in enumerate((True, True, False)):
        Signer.objects.create(address=f"s{index}", role="sub_signer", index=index, usable=usable, due_at=Now())


@pytest.mark.usefixtures("signers")
def test_every_signers_balance_is_shown_whatever_its_size():
    """CH-80: 10^29 is shown as a float, nothing is counted as failed."""
    chain = Chain(p=10**29, s0=7, s1=0)
    samples = Balances(chain=lambda: chain).samples()["fred_signer_balance"]
    assert samples == {
        ("provider", "p", "", "upoa"): 1e29,
        ("sub_signer", "s0", "0", "upoa"): 7.0,
        ("sub_signer", "s1", "1", "upoa"): 0.0,
    }
    assert sorted(chain.asked) == [("p", "upoa"), ("s0", "upoa"), ("s1", "upoa")]


@pytest.mark.usefixtures("signers")
def test_one_that_cannot_be_read_is_left_out_and_counted():
    """CH-80"""
    failures = metrics.BALANCE_FAILURES.labels("sub_signer", "s0", "upoa")
    before = failures._value.get()
    samples = Balances(chain=lambda: Chain(p=1, s1=2)).samples()["fred_signer_balance"]
    assert {labels[1] for labels in samples} == {"p", "s1"}
    assert failures._value.get() == before + 1


@pytest.mark.usefixtures("signers")
def test_balances_are_read_again_after_fifteen_seconds():
    """OP MET-17"""
    now, chain = [0.0], Chain(p=1, s0=1, s1=1)
    balances = Balances(chain=lambda: chain, clock=lambda: now[0])
    balances.samples()
    now[0] = 14.9
    balances.samples()
    assert len(chain.asked) == 3
    now[0] = 15.0
    chain.balances["p"] = 5
    assert balances.samples()["fred_signer_balance"]["provider", "p", "", "upoa"] == 5.0


@pytest.mark.usefixtures("signers")
def test_pool_and_lanes_are_counted():
    read = readings.of_the_database()
    assert read["fred_signer_pool_size"] == {(): 3}
    assert read["fred_signer_pool_lane_count"] == {(): 2}
    Signer.objects.filter(role="sub_signer").update(usable=False)
    read = readings.of_the_database()
    assert (read["fred_signer_pool_size"], read["fred_signer_pool_lane_count"]) == ({(): 1}, {(): 1})


@pytest.mark.usefixtures("signers")
def test_of_signers_left_out_no_balance_is_shown():
    """OP-80"""
    Signer.objects.filter(role="sub_signer").update(usable=False)
    samples = Balances(chain=lambda: Chain(p=1)).samples()["fred_signer_balance"]
    assert {labels[0] for labels in samples} == {"provider"}


@pytest.mark.django_db
def test_a_database_without_signers_asks_nobody():
    chain = Chain()
    assert Balances(chain=lambda: chain).samples() == {"fred_signer_balance": {}}
    assert chain.asked == []
