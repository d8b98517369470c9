"""Gas and fees: integers of any size in, integers out, nothing rounded through floats."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal

from leases.chain.errors import GasOverflow, GasTooHigh

MAX_GAS = 2**63 - 1  # a gas limit is a signed 64-bit integer inside the chain
_MAX_ADJUSTED = 2**64 - 1
_EXACT = Context(prec=60, rounding=ROUND_FLOOR)
SIMULATED_GAS_LIMIT = 200_000  # declared in simulations whatever is configured: a node may refuse more than a block's


@dataclass(frozen=True, slots=True)
class GasPolicy:
    """How much gas we declare and pay for.

    `gas_price` is in millionths of a base unit per gas. `max_gas_limit` 0 means no cap. `adjustment` multiplies an
    estimate, because a simulation leaves out the deduction of the fee.
    """

    gas_limit: int = 1_500_000
    max_gas_limit: int = 0
    gas_price: int = 25
    adjustment: Decimal = Decimal("1.2")
    fee_denom: str = "umfx"

    def fee(self, gas: int) -> int:
        """Return the fee for this gas limit in base units of `fee_denom`; at least 1, also when the price is 0."""
        return fee_amount(gas, self.gas_price)

    def estimated(self, simulated_gas: int) -> int:
        """Return the gas limit for what a simulation used. Raises `GasTooHigh` above the cap: never clamped."""
        gas = adjusted(simulated_gas, self.adjustment)
        if self.max_gas_limit and gas > self.max_gas_limit:
            raise GasTooHigh(estimated=gas, cap=self.max_gas_limit)
        return gas

    def fallback(self) -> int:
        """Return the gas limit to use when no simulation answered."""
        try:
            gas = adjusted(self.gas_limit, self.adjustment)
        except GasOverflow:
            return self.gas_limit
        return min(gas, self.max_gas_limit) if self.max_gas_limit else gas

    def after_running_out(self, gas: int) -> int | None:
        """Return the next gas limit after `gas` was too little: half as much again, or None when the cap is reached."""
        raised = gas + gas // 2
        if self.max_gas_limit:
            raised = min(raised, self.max_gas_limit)
        raised = min(raised, MAX_GAS)
        return raised if raised > gas else None


def fee_amount(gas: int, gas_price: int) -> int:
    """Return the fee in base units for a gas limit and a price in millionths. Raises `GasOverflow` above 2^63-1 gas."""
    if gas > MAX_GAS:
        raise GasOverflow(f"gas limit {gas} overflows int64")
    return max(1, -(-gas * gas_price // 1_000_000))


def adjusted(gas: int, adjustment: Decimal) -> int:
    """Multiply an estimate, cutting the fraction. Unchanged at 1 or below; raises `GasOverflow` above 2^64-1."""
    if adjustment <= 1:
        return gas
    result = int(_EXACT.multiply(Decimal(gas), adjustment))
    if result > _MAX_ADJUSTED:
        raise GasOverflow(f"gas {gas} times {adjustment} overflows uint64")
    return result
