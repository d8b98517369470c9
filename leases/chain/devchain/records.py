"""What the simulated chain stores: immutable records, replaced as a whole when they change.

Times are nanoseconds since 1970 (block time); 0 means "has not happened". Money is int base units.
"""

from __future__ import annotations

from typing import NamedTuple

from leases.chain.devchain.keys import Coins

PENDING, ACTIVE, CLOSED, REJECTED, EXPIRED = 1, 2, 3, 4, 5


class Account(NamedTuple):
    """A base account. `public_key` is empty until its first transaction."""

    address: str
    number: int
    sequence: int = 0
    public_key: bytes = b""


class Provider(NamedTuple):
    """A provider of the SKU module."""

    uuid: str
    address: str
    payout_address: str
    api_url: str
    meta_hash: bytes = b""
    active: bool = True


class Sku(NamedTuple):
    """An offer. `unit` 1 is per hour, 2 per day; `price` is for one unit."""

    uuid: str
    provider_uuid: str
    name: str
    unit: int
    denom: str
    price: int
    meta_hash: bytes = b""
    active: bool = True

    @property
    def per_second(self) -> int:
        """The price of one second, exact by the rule of creation."""
        return self.price // (3600 if self.unit == 1 else 86400)


class Item(NamedTuple):
    """One line of a lease; `price` is per second and piece, fixed at creation."""

    sku_uuid: str
    quantity: int
    denom: str
    price: int
    service_name: str = ""
    custom_domain: str = ""


class Lease(NamedTuple):
    """A lease as the billing module keeps it."""

    uuid: str
    tenant: str
    provider_uuid: str
    items: tuple[Item, ...]
    state: int
    created_at: int
    settled_at: int
    meta_hash: bytes
    min_duration: int
    closed_at: int = 0
    acknowledged_at: int = 0
    rejected_at: int = 0
    expired_at: int = 0
    rejection_reason: str = ""
    closure_reason: str = ""

    def rate(self) -> Coins:
        """What one second costs, by denomination."""
        if len(self.items) == 1:
            item = self.items[0]
            return ((item.denom, item.price * item.quantity),)
        total: dict[str, int] = {}
        for item in self.items:
            total[item.denom] = total.get(item.denom, 0) + item.price * item.quantity
        return tuple(sorted(total.items()))


class CreditAccount(NamedTuple):
    """Credit of a tenant over all providers; the money itself lies at `address`."""

    tenant: str
    address: str
    active: int = 0
    pending: int = 0
    reserved: Coins = ()


class Grant(NamedTuple):
    """A generic authorization; `expires_at` 0 is never."""

    granter: str
    grantee: str
    msg_type: str
    expires_at: int = 0


class Params(NamedTuple):
    """Parameters of the billing module, with the chain's defaults. Durations are seconds."""

    max_leases_per_tenant: int = 100
    allowed_list: tuple[str, ...] = ()
    max_items_per_lease: int = 20
    min_lease_duration: int = 3600
    max_pending_leases_per_tenant: int = 10
    pending_timeout: int = 1800
    reserved_domain_suffixes: tuple[str, ...] = ()


class Event(NamedTuple):
    """An ABCI event: type and attributes in the order of emission."""

    type: str
    attributes: tuple[tuple[str, str], ...]
