"""How a chain starts: accounts, money, parameters, and the market of the development fixture."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from leases.chain.devchain.keys import (
    FEE_DENOM,
    MNEMONIC_PROVIDER,
    MNEMONIC_TENANT,
    PWR,
    Coins,
    Key,
    mnemonic_key,
    named_key,
)
from leases.chain.devchain.records import Params
from leases.chain.devchain.state import State

TENANTS = tuple(f"t{i}" for i in range(20))
SUB_SIGNERS = 4
SKU_PRICES = {
    "docker-micro": 3_600_000,
    "docker-small": 7_200_000,
    "docker-medium": 14_400_000,
    "docker-large": 28_800_000,
}
PROVIDER_API = "https://provider.localhost:8080"
_MONEY: Coins = ((PWR, 10**15), (FEE_DENOM, 10**12))


@dataclass(frozen=True, slots=True)
class Genesis:
    """A start: its name, chain id, keys with their money, parameters, the node's minimum gas price in umfx."""

    chain_id: str
    keys: dict[str, Key]
    money: dict[str, Coins]
    params: Params
    gas_price: Fraction = Fraction(0)
    market: bool = False
    credit: int = 0
    allowed: tuple[str, ...] = field(default=())
    name: str = ""

    def state(self) -> State:
        """The state before the first block."""
        state = State()
        for name, coins in self.money.items():
            address = self.keys[name].address
            state.account(address)
            state.add(address, coins)
        state.settings["params"] = self.params
        state.settings["sku_allowed"] = self.allowed
        state.journal.clear()
        return state


def _keys(*, devnet: bool) -> dict[str, Key]:
    keys = {name: named_key(name) for name in ("validator", "admin", "provider", *TENANTS)}
    if devnet:
        keys["provider"] = mnemonic_key("provider", MNEMONIC_PROVIDER, 0)
        keys["tenant"] = mnemonic_key("tenant", MNEMONIC_TENANT, 0)
        for number in range(1, SUB_SIGNERS + 1):
            name = f"provider-sub-{number}"
            keys[name] = mnemonic_key(name, MNEMONIC_PROVIDER, number)
    return keys


def build(fixture: str, *, chain_id: str = "", gas_price: Fraction | None = None) -> Genesis:
    """The start called `devnet`, `scenario` or `bare`; raises ValueError for another name."""
    if fixture not in ("devnet", "scenario", "bare"):
        raise ValueError(f"unknown fixture {fixture}; known are devnet, scenario, bare")
    keys = _keys(devnet=fixture == "devnet")
    money: dict[str, Coins] = {"validator": ((FEE_DENOM, 10**9),)}
    money.update({name: _MONEY for name in keys if name != "validator" and not name.startswith("provider-sub-")})
    allowed = (keys["admin"].address,)
    if fixture == "bare":
        params, price, name = Params(allowed_list=allowed), Fraction(0), "manifest-ledger-beta"
    elif fixture == "scenario":
        params = Params(10_000, allowed, 20, 10, 1_000, 60)
        price, name = Fraction(1), "manifest-ledger-beta"
    else:
        params = Params(10_000, allowed, 20, 3_600, 1_000, 1_800)
        price, name = Fraction(0), "manifest-localnet"
        for rich in ("provider", "tenant"):
            money[rich] = ((PWR, 10**15), (FEE_DENOM, 10**15))
    return Genesis(
        chain_id=chain_id or name,
        keys=keys,
        money=money,
        params=params,
        gas_price=price if gas_price is None else gas_price,
        market=fixture == "devnet",
        credit=10**14 if fixture == "devnet" else 0,
        allowed=allowed,
        name=fixture,
    )
