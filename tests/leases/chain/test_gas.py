from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leases.chain.errors import GasOverflow, GasTooHigh
from leases.chain.gas import MAX_GAS, GasPolicy, adjusted, fee_amount
from tests.leases.chain import vectors


@pytest.mark.parametrize("case", vectors.chain()["fees"]["cases"], ids=lambda c: f"{c['gas_limit']}x{c['gas_price']}")
def test_fee(case):
    """CH-10"""
    assert fee_amount(int(case["gas_limit"]), int(case["gas_price"])) == int(case["fee"])


def test_more_gas_than_the_chain_can_count_is_refused():
    """CH-8"""
    with pytest.raises(GasOverflow, match="gas limit 9223372036854775808 overflows int64"):
        fee_amount(MAX_GAS + 1, 25)


@pytest.mark.parametrize(
    "case", vectors.chain()["gas_adjustment"]["cases"], ids=lambda c: f"{c['raw']}x{c['adjustment']}"
)
def test_gas_adjustment(case):
    """CH-11"""
    if case["adjusted"] is None:
        with pytest.raises(GasOverflow):
            adjusted(int(case["raw"]), Decimal(case["adjustment"]))
    else:
        assert adjusted(int(case["raw"]), Decimal(case["adjustment"])) == int(case["adjusted"])


@given(st.integers(0, MAX_GAS), st.decimals("1.0", "2.0", places=4))
def test_adjustment_is_exact(gas, adjustment):
    assert adjusted(gas, adjustment) == gas * int(adjustment * 10_000) // 10_000


@pytest.mark.parametrize("case", vectors.chain()["oog_ladder"]["cases"], ids=lambda c: c["current"])
def test_ladder_after_running_out_of_gas(case):
    """CH-40, CH-41, CH-42"""
    policy = GasPolicy(max_gas_limit=int(case["max_gas_limit"]))
    expected = None if case.get("stop") else int(case["next"])
    assert policy.after_running_out(int(case["current"])) == expected


def test_the_ladder_ends_where_the_chain_can_count_no_further():
    assert GasPolicy().after_running_out(MAX_GAS - 1) == MAX_GAS
    assert GasPolicy().after_running_out(MAX_GAS) is None


def test_an_estimate_is_adjusted_and_paid_for():
    """CH-21"""
    policy = GasPolicy(gas_price=25, adjustment=Decimal("1.2"))
    assert policy.estimated(200_000) == 240_000
    assert policy.fee(240_000) == 6


def test_an_estimate_above_the_cap_is_refused_not_clamped():
    """CH-22"""
    with pytest.raises(GasTooHigh, match="estimated gas 312000 exceeds max_gas_limit 300000"):
        GasPolicy(max_gas_limit=300_000).estimated(260_000)


def test_without_a_cap_no_estimate_is_refused():
    """CH-23"""
    assert GasPolicy(max_gas_limit=0).estimated(10**12) == 12 * 10**11


@pytest.mark.parametrize(
    ("cap", "expected"),
    [pytest.param(0, 240_000, id="CH-24 adjusted limit"), pytest.param(210_000, 210_000, id="CH-25 within the cap")],
)
def test_fallback(cap, expected):
    assert GasPolicy(gas_limit=200_000, max_gas_limit=cap).fallback() == expected


def test_the_fallback_is_the_plain_limit_when_adjusting_overflows():
    """CH-27"""
    assert GasPolicy(gas_limit=MAX_GAS, adjustment=Decimal("3.0")).fallback() == MAX_GAS
