"""The money of running leases: accrual, settlement, reservations.

A lease costs price × quantity for each whole second since its last settlement; fractions are cut and lost. A
settlement pays at most what the tenant's credit address holds. When for any denomination the accrued amount reaches
the balance, the lease is exhausted.
"""

from __future__ import annotations

from leases.chain.devchain.context import Context
from leases.chain.devchain.errors import Refused
from leases.chain.devchain.keys import (
    DISTRIBUTION,
    FEE_COLLECTOR,
    Coins,
    add_coins,
    as_coins,
    credit_address,
    subtract_coins,
)
from leases.chain.devchain.records import ACTIVE, CLOSED, PENDING, Lease
from leases.chain.devchain.state import State

_CENTURY = 100 * 365 * 86400
EXHAUSTED = "credit exhausted"
CANNOT_RECEIVE = (FEE_COLLECTOR, DISTRIBUTION)


def whole_seconds(lease: Lease, until: int) -> int:
    """Seconds since the last settlement, the fraction cut."""
    return max(0, (until - lease.settled_at) // 10**9)


def accrued(state: State, lease: Lease, until: int, *, strict: bool = False) -> tuple[Coins, bool]:
    """What is owed and can be paid at this time, and whether the credit is exhausted by it.

    On a `strict` chain what other leases have reserved cannot be used.
    """
    others = dict(_reserved_by_others(state, lease)) if strict else {}
    seconds = whole_seconds(lease, until)
    address = credit_address(lease.tenant)
    paid, exhausted = {}, False
    for denom, rate in lease.rate():
        balance = max(0, state.balance(address, denom) - others.get(denom, 0))
        owed = balance if seconds > _CENTURY else rate * seconds
        exhausted = exhausted or owed >= balance
        paid[denom] = min(owed, balance)
    return as_coins(paid), exhausted


def _reserved_by_others(state: State, lease: Lease) -> Coins:
    account = state.credits.get(lease.tenant)
    if account is None:
        return ()
    own = reservation(lease, state.params.min_lease_duration) if lease.state in (PENDING, ACTIVE) else ()
    return subtract_coins(account.reserved, own)


def require_receiver(ctx: Context, payout_address: str) -> None:
    """On a strict chain: refuse a payout address that cannot receive money."""
    if ctx.profile.strict and payout_address in CANNOT_RECEIVE:
        raise Refused("sdk", 4, f"{payout_address} is not allowed to receive funds")


def settle(ctx: Context, lease: Lease, until: int) -> tuple[Lease, Coins, bool]:
    """Pay the provider up to a time: the settled lease (stored), what was paid, whether the credit is exhausted."""
    paid, exhausted = accrued(ctx.state, lease, until, strict=ctx.profile.strict)
    provider = ctx.state.providers[lease.provider_uuid]
    require_receiver(ctx, provider.payout_address)
    if paid:
        ctx.pay(credit_address(lease.tenant), provider.payout_address, paid)
    if whole_seconds(lease, until) or exhausted:
        lease = lease._replace(settled_at=until)
        ctx.state.put_lease(lease)
    return lease, paid, exhausted


def reservation(lease: Lease, default_duration: int) -> Coins:
    """What the lease keeps reserved: its rate over the minimum duration at its creation."""
    duration = lease.min_duration or default_duration
    return tuple((denom, rate * duration) for denom, rate in lease.rate())


def end_lease(ctx: Context, lease: Lease) -> int:
    """Store a lease that has just ended, free reservation and domains; return the tenant's ACTIVE leases left."""
    state = ctx.state
    old = state.leases[lease.uuid]
    account = state.credits[lease.tenant]
    account = account._replace(
        active=account.active - (old.state == ACTIVE),
        pending=account.pending - (old.state == PENDING),
        reserved=subtract_coins(account.reserved, reservation(lease, state.params.min_lease_duration)),
    )
    state.set(state.credits, lease.tenant, account)
    for item in lease.items:
        if item.custom_domain and state.domains.get(item.custom_domain, ("", ""))[0] == lease.uuid:
            state.remove(state.domains, item.custom_domain)
    state.put_lease(lease)
    return account.active


def close_exhausted(ctx: Context, lease: Lease) -> None:
    """Close a lease whose credit ran out."""
    end_lease(ctx, lease._replace(state=CLOSED, closed_at=ctx.time, closure_reason=EXHAUSTED))


def available(state: State, tenant: str, needed: Coins) -> bool:
    """Whether balance less reserved covers what a new lease reserves."""
    account = state.credits[tenant]
    reserved = dict(account.reserved)
    return all(state.balance(account.address, denom) - reserved.get(denom, 0) >= amount for denom, amount in needed)


def total(parts: list[Coins]) -> Coins:
    """The sum of several coin lists."""
    result: Coins = ()
    for part in parts:
        result = add_coins(result, part)
    return result
