"""The messages of the billing module that move a lease: create, acknowledge, reject, cancel, close.

Everything in one message happens or nothing does. The order of the checks is the chain's: it decides which code a
message with several faults gets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from leases.chain.devchain import forms, settlement
from leases.chain.devchain.context import Context, pb_coins, timestamp
from leases.chain.devchain.errors import Refused
from leases.chain.devchain.keys import AUTHORITY, Coins, add_coins, coins_text, credit_address
from leases.chain.devchain.records import ACTIVE, CLOSED, EXPIRED, PENDING, REJECTED, CreditAccount, Item, Lease
from leases.chain.proto import billing_pb2 as pb

CANCELLED = "cancelled by tenant"


def sanitise(text: str) -> str:
    """A reason as events show it: without control characters."""
    return "".join(character for character in text if character.isprintable())


def may_act_for(ctx: Context, sender: str) -> bool:
    """Whether an account stands in the module's allowed list, or is the authority."""
    return sender == AUTHORITY or sender in ctx.state.params.allowed_list


# --- credit ----------------------------------------------------------------


def fund_credit(ctx: Context, msg: pb.MsgFundCredit) -> pb.MsgFundCreditResponse:
    """Anyone may add credit; the credit account is made when it is missing."""
    ctx.gas += 58_000
    coins: Coins = ((msg.amount.denom, int(msg.amount.amount)),)
    ctx.require_funds(msg.sender, coins, ("billing", 19))
    state, address = ctx.state, credit_address(msg.tenant)
    state.account(address)
    if msg.tenant not in state.credits:
        state.set(state.credits, msg.tenant, CreditAccount(msg.tenant, address))
    ctx.pay(msg.sender, address, coins)
    balance: Coins = ((msg.amount.denom, state.balance(address, msg.amount.denom)),)
    ctx.emit(
        "credit_funded",
        ("tenant", msg.tenant),
        ("credit_address", address),
        ("sender", msg.sender),
        ("amount", coins_text(coins)),
        ("new_balance", coins_text(balance)),
    )
    return pb.MsgFundCreditResponse(credit_address=address, new_balance=pb_coins(balance)[0])


def check_fund_credit(msg: pb.MsgFundCredit) -> None:
    """Form of a credit message; every failure has the same code."""
    forms.address(msg.sender, "sender", ("billing", 19))
    forms.address(msg.tenant, "tenant", ("billing", 19))
    if not msg.amount.amount.isascii() or not msg.amount.amount.isdigit() or int(msg.amount.amount) == 0:
        raise Refused("billing", 19, "amount must be positive")


# --- create ----------------------------------------------------------------


def create_lease(ctx: Context, msg: pb.MsgCreateLease) -> pb.MsgCreateLeaseResponse:
    """A tenant asks for a lease for itself."""
    return pb.MsgCreateLeaseResponse(lease_uuid=_create(ctx, msg, sender=msg.tenant, created_by="tenant"))


def create_for_tenant(ctx: Context, msg: pb.MsgCreateLeaseForTenant) -> pb.MsgCreateLeaseForTenantResponse:
    """The authority, or an allowed account, creates a lease for a tenant."""
    if not may_act_for(ctx, msg.authority):
        raise Refused("billing", 6, f"sender {msg.authority} is not authorized to create leases for tenants")
    allowed = ctx.profile.strict and msg.authority != AUTHORITY
    uuid = _create(ctx, msg, sender=msg.authority, created_by="allowed" if allowed else "authority")
    return pb.MsgCreateLeaseForTenantResponse(lease_uuid=uuid)


def _create(ctx: Context, msg: pb.MsgCreateLease | pb.MsgCreateLeaseForTenant, *, sender: str, created_by: str) -> str:
    state, tenant, lines, meta_hash = ctx.state, msg.tenant, msg.items, msg.meta_hash
    params = state.params
    ctx.gas += 75_000 + 6_000 * (len(lines) - 1)
    if len(lines) > params.max_items_per_lease:
        raise Refused("billing", 21, f"{len(lines)} items exceed the maximum of {params.max_items_per_lease}")
    account = state.credits.get(tenant)
    if account is None:
        raise Refused("billing", 8, f"tenant {tenant} has no credit account")
    if account.active >= params.max_leases_per_tenant:
        raise Refused("billing", 5, f"tenant {tenant} has {account.active} active leases")
    if account.pending >= params.max_pending_leases_per_tenant:
        raise Refused("billing", 23, f"tenant {tenant} has {account.pending} pending leases")
    items, provider_uuid = _priced(ctx, lines)
    provider = state.providers.get(provider_uuid)
    if provider is None:
        raise Refused("billing", 12, f"provider {provider_uuid} not found")
    if not provider.active:
        raise Refused("billing", 13, f"provider {provider_uuid} is not active")
    settlement.require_receiver(ctx, provider.payout_address)
    lease = Lease(
        uuid="",
        tenant=tenant,
        provider_uuid=provider_uuid,
        items=items,
        state=PENDING,
        created_at=ctx.time,
        settled_at=ctx.time,
        meta_hash=meta_hash,
        min_duration=params.min_lease_duration,
    )
    needed = settlement.reservation(lease, params.min_lease_duration)
    if not settlement.available(state, tenant, needed):
        raise Refused("billing", 4, f"credit of {tenant} does not cover a reservation of {coins_text(needed)}")
    lease = lease._replace(uuid=ctx.new_uuid("billing"))
    state.put_lease(lease)
    account = account._replace(pending=account.pending + 1, reserved=add_coins(account.reserved, needed))
    state.set(state.credits, tenant, account)
    shown: tuple[tuple[str, str], ...] = (("sender", sender),) if ctx.profile.strict else ()
    shown += (("meta_hash", meta_hash.hex()),) if meta_hash else ()
    ctx.emit(
        "lease_created",
        ("lease_uuid", lease.uuid),
        ("tenant", tenant),
        ("provider_uuid", provider_uuid),
        ("item_count", str(len(items))),
        ("total_rate_per_second", coins_text(lease.rate())),
        ("pending_lease_count", str(account.pending)),
        ("created_by", created_by),
        *shown,
    )
    return lease.uuid


def _priced(ctx: Context, lines: Sequence[pb.LeaseItemInput]) -> tuple[tuple[Item, ...], str]:
    items: list[Item] = []
    provider_uuid = ""
    for line in lines:
        sku = ctx.state.skus.get(line.sku_uuid)
        if sku is None:
            raise Refused("billing", 10, f"sku_uuid {line.sku_uuid} not found")
        if not sku.active:
            raise Refused("billing", 11, f"sku_uuid {line.sku_uuid} is not active")
        if provider_uuid and sku.provider_uuid != provider_uuid:
            raise Refused("billing", 14, "all SKUs must belong to the same provider")
        provider_uuid = sku.provider_uuid
        items.append(Item(line.sku_uuid, line.quantity, sku.denom, sku.per_second, line.service_name))
    return tuple(items), provider_uuid


# --- acknowledge, reject, cancel --------------------------------------------


def _pending_of_one_provider(ctx: Context, uuids: Sequence[str], sender: str, verb: str) -> list[Lease]:
    leases: list[Lease] = []
    state = ctx.state
    for uuid in uuids:
        lease = state.leases.get(uuid)
        if lease is None:
            raise Refused("billing", 2, f"lease {uuid} not found")
        if lease.state != PENDING:
            raise Refused("billing", 22, f"lease {uuid} is not in PENDING state")
        if leases and lease.provider_uuid != leases[0].provider_uuid:
            raise Refused("billing", 14, "all leases must belong to the same provider")
        if lease.tenant not in state.credits:
            raise Refused("billing", 8, f"tenant {lease.tenant} has no credit account")
        leases.append(lease)
    provider_uuid = leases[0].provider_uuid
    provider = state.providers.get(provider_uuid)
    if provider is None:
        raise Refused("billing", 12, f"provider {provider_uuid} not found")
    if sender not in (provider.address, AUTHORITY):
        raise Refused("billing", 6, f"sender {sender} is not authorized to {verb} leases for provider {provider_uuid}")
    return leases


def acknowledge(ctx: Context, msg: pb.MsgAcknowledgeLease) -> pb.MsgAcknowledgeLeaseResponse:
    """The provider takes PENDING leases; billing starts at the block time."""
    ctx.gas += 27_000 + 62_000 * len(msg.lease_uuids)
    state = ctx.state
    leases = _pending_of_one_provider(ctx, msg.lease_uuids, msg.sender, "acknowledge")
    if ctx.profile.strict:
        _check_deadlines_and_cap(ctx, leases)
    for lease in leases:
        state.put_lease(lease._replace(state=ACTIVE, acknowledged_at=ctx.time, settled_at=ctx.time))
        account = state.credits[lease.tenant]
        account = account._replace(pending=account.pending - 1, active=account.active + 1)
        state.set(state.credits, lease.tenant, account)
        ctx.emit("lease_acknowledged", *_who(lease), ("acknowledged_by", msg.sender))
    _batch(ctx, "batch_acknowledged", leases, ("acknowledged_by", msg.sender))
    return pb.MsgAcknowledgeLeaseResponse(acknowledged_at=timestamp(ctx.time), acknowledged_count=len(leases))


def _check_deadlines_and_cap(ctx: Context, leases: Sequence[Lease]) -> None:
    """The rules of the strict chain: nothing overdue, no tenant above its limit of ACTIVE leases afterwards."""
    params = ctx.state.params
    for lease in leases:
        if ctx.time > lease.created_at + params.pending_timeout * 10**9:
            raise Refused("billing", 34, f"lease {lease.uuid} was not acknowledged within {params.pending_timeout}s")
    for tenant, new in Counter(lease.tenant for lease in leases).items():
        if ctx.state.credits[tenant].active + new > params.max_leases_per_tenant:
            raise Refused("billing", 35, f"tenant {tenant} would have more than {params.max_leases_per_tenant} leases")
    settlement.require_receiver(ctx, ctx.state.providers[leases[0].provider_uuid].payout_address)


def reject(ctx: Context, msg: pb.MsgRejectLease) -> pb.MsgRejectLeaseResponse:
    """The provider refuses PENDING leases."""
    ctx.gas += 80_000 * len(msg.lease_uuids)
    leases = _pending_of_one_provider(ctx, msg.lease_uuids, msg.sender, "reject")
    for lease in leases:
        rejected = lease._replace(state=REJECTED, rejected_at=ctx.time, rejection_reason=msg.reason)
        settlement.end_lease(ctx, rejected)
        shown = ("rejection_reason", sanitise(msg.reason))
        ctx.emit("lease_rejected", *_who(lease), ("rejected_by", msg.sender), shown)
    _batch(ctx, "batch_rejected", leases, ("rejected_by", msg.sender))
    return pb.MsgRejectLeaseResponse(rejected_at=timestamp(ctx.time), rejected_count=len(leases))


def cancel(ctx: Context, msg: pb.MsgCancelLease) -> pb.MsgCancelLeaseResponse:
    """The tenant takes back what nobody acknowledged yet."""
    ctx.gas += 80_000 * len(msg.lease_uuids)
    leases: list[Lease] = []
    for uuid in msg.lease_uuids:
        lease = ctx.state.leases.get(uuid)
        if lease is None:
            raise Refused("billing", 2, f"lease {uuid} not found")
        if lease.tenant != msg.tenant:
            raise Refused("billing", 6, f"lease {uuid} does not belong to tenant {msg.tenant}")
        if lease.state != PENDING:
            raise Refused("billing", 22, f"lease {uuid} is not in PENDING state")
        leases.append(lease)
    for lease in leases:
        cancelled = lease._replace(state=REJECTED, rejected_at=ctx.time, rejection_reason=CANCELLED)
        settlement.end_lease(ctx, cancelled)
        ctx.emit("lease_cancelled", *_who(lease), ("cancelled_by", msg.tenant))
    if len(leases) > 1:
        count = ("lease_count", str(len(leases)))
        ctx.emit("batch_cancelled", count, ("tenant", msg.tenant), ("cancelled_by", msg.tenant))
    return pb.MsgCancelLeaseResponse(cancelled_at=timestamp(ctx.time), cancelled_count=len(leases))


def _who(lease: Lease) -> tuple[tuple[str, str], tuple[str, str], tuple[str, str]]:
    return ("lease_uuid", lease.uuid), ("tenant", lease.tenant), ("provider_uuid", lease.provider_uuid)


def _batch(ctx: Context, event_type: str, leases: list[Lease], by: tuple[str, str]) -> None:
    if len(leases) > 1:
        count = ("lease_count", str(len(leases)))
        ctx.emit(event_type, count, ("provider_uuid", leases[0].provider_uuid), by)


# --- close -------------------------------------------------------------------


def _role(ctx: Context, lease: Lease, sender: str) -> str:
    if sender == AUTHORITY:
        return "authority"
    if sender == lease.tenant:
        return "tenant"
    provider = ctx.state.providers.get(lease.provider_uuid)
    if provider is not None and sender == provider.address:
        return "provider"
    raise Refused("billing", 6, f"sender {sender} is not authorized to close lease {lease.uuid}")


def close(ctx: Context, msg: pb.MsgCloseLease) -> pb.MsgCloseLeaseResponse:
    """Tenant, provider or authority end ACTIVE leases; each is settled first."""
    ctx.gas += 113_000 * len(msg.lease_uuids)
    leases: list[Lease] = []
    role = ""
    for uuid in msg.lease_uuids:
        lease = ctx.state.leases.get(uuid)
        if lease is None:
            raise Refused("billing", 2, f"lease {uuid} not found")
        if lease.state != ACTIVE:
            raise Refused("billing", 3, f"lease {uuid} is not active")
        lease_role = _role(ctx, lease, msg.sender)
        if role and lease_role != role:
            raise Refused("billing", 6, "the sender must have the same role for all leases")
        role = lease_role
        leases.append(lease)
    amounts = settlement.total([_close_one(ctx, lease, role, msg.reason) for lease in leases])
    if len(leases) > 1:
        count = ("lease_count", str(len(leases)))
        ctx.emit("batch_closed", count, ("closed_by", role), ("settled_amounts", coins_text(amounts)))
    return pb.MsgCloseLeaseResponse(
        closed_at=timestamp(ctx.time), closed_count=len(leases), total_settled_amounts=pb_coins(amounts)
    )


def _close_one(ctx: Context, lease: Lease, role: str, reason: str) -> Coins:
    seconds = settlement.whole_seconds(lease, ctx.time)
    _, paid, exhausted = settlement.settle(ctx, lease, ctx.time)
    if exhausted:
        role, reason = "credit_exhaustion", settlement.EXHAUSTED
    closed = lease._replace(state=CLOSED, closed_at=ctx.time, settled_at=ctx.time, closure_reason=reason)
    left = settlement.end_lease(ctx, closed)
    shown = (("closure_reason", sanitise(reason)),) if reason else ()
    ctx.emit(
        "lease_closed",
        *_who(lease),
        ("settled_amounts", coins_text(paid)),
        ("closed_by", role),
        ("duration_seconds", str(seconds)),
        ("active_lease_count", str(left)),
        *shown,
    )
    return paid


def check_uuids(msg: pb.MsgAcknowledgeLease) -> None:
    """Form of an acknowledgement."""
    forms.address(msg.sender, "sender")
    forms.lease_uuids(msg.lease_uuids)


def check_cancel(msg: pb.MsgCancelLease) -> None:
    """Form of a cancellation."""
    forms.address(msg.tenant, "tenant")
    forms.lease_uuids(msg.lease_uuids)


def check_reject(msg: pb.MsgRejectLease) -> None:
    """Form of a rejection."""
    forms.address(msg.sender, "sender")
    forms.lease_uuids(msg.lease_uuids)
    forms.reason(msg.reason, 24)


def check_close(msg: pb.MsgCloseLease) -> None:
    """Form of a close."""
    forms.address(msg.sender, "sender")
    forms.lease_uuids(msg.lease_uuids)
    forms.reason(msg.reason, 26)


def expire(ctx: Context, lease: Lease) -> None:
    """End of a block: nobody acknowledged this lease in time."""
    settlement.end_lease(ctx, lease._replace(state=EXPIRED, expired_at=ctx.time))
    ctx.emit("lease_expired", *_who(lease), ("reason", "pending_timeout"))
