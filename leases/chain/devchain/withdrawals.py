"""The messages of the billing module about payouts, custom domains and parameters."""

from __future__ import annotations

import bisect

from leases.chain.devchain import forms, settlement
from leases.chain.devchain.billing import may_act_for
from leases.chain.devchain.context import Context, pb_coins
from leases.chain.devchain.errors import Refused
from leases.chain.devchain.keys import AUTHORITY, Coins, coins_text
from leases.chain.devchain.records import ACTIVE, CLOSED, PENDING, Item, Lease, Params, Provider
from leases.chain.proto import billing_pb2 as pb

_GAS_PAID, _GAS_VISITED = 90_000, 2_700


def withdraw(ctx: Context, msg: pb.MsgWithdraw) -> pb.MsgWithdrawResponse:
    """Settle leases to the payout address; an exhausted one is closed on the way."""
    ctx.gas += 13_000
    if msg.lease_uuids:
        return _withdraw_leases(ctx, msg)
    return _withdraw_provider(ctx, msg)


def _provider_for(ctx: Context, uuid: str, sender: str) -> Provider:
    provider = ctx.state.providers.get(uuid)
    if provider is None:
        raise Refused("billing", 12, f"provider {uuid} not found")
    if sender not in (provider.address, AUTHORITY):
        raise Refused("billing", 6, f"sender {sender} is not authorized to withdraw for provider {uuid}")
    return provider


def _withdraw_leases(ctx: Context, msg: pb.MsgWithdraw) -> pb.MsgWithdrawResponse:
    leases: list[Lease] = []
    for uuid in msg.lease_uuids:
        lease = ctx.state.leases.get(uuid)
        if lease is None:
            raise Refused("billing", 2, f"lease {uuid} not found")
        if leases and lease.provider_uuid != leases[0].provider_uuid:
            raise Refused("billing", 9, "all leases must belong to the same provider")
        leases.append(lease)
    provider = _provider_for(ctx, leases[0].provider_uuid, msg.sender)
    payments: list[tuple[Lease, Coins, bool]] = []
    for lease in leases:
        paid, closed = _settle_one(ctx, lease)
        ctx.gas += _GAS_PAID if paid or closed else _GAS_VISITED
        if paid or closed:
            payments.append((lease, paid, closed))
    if not payments:
        raise Refused("billing", 15, "nothing to withdraw")
    for lease, paid, closed in payments:
        _emit_withdraw(ctx, lease, provider, paid=paid, closed=closed)
    amounts = settlement.total([paid for _, paid, _ in payments])
    if len(leases) > 1:
        ctx.emit(
            "batch_withdraw",
            ("lease_count", str(len(payments))),
            ("provider_uuid", provider.uuid),
            ("amount", coins_text(amounts)),
            ("payout_address", provider.payout_address),
        )
    return pb.MsgWithdrawResponse(
        total_amounts=pb_coins(amounts), payout_address=provider.payout_address, withdrawal_count=len(payments)
    )


def _settle_one(ctx: Context, lease: Lease) -> tuple[Coins, bool]:
    if lease.state == CLOSED and lease.settled_at < lease.closed_at:
        _, paid, _ = settlement.settle(ctx, lease, lease.closed_at)
        return paid, False
    if lease.state != ACTIVE:
        return (), False
    lease, paid, exhausted = settlement.settle(ctx, lease, ctx.time)
    if exhausted:
        settlement.close_exhausted(ctx, lease)
    return paid, exhausted


def _withdraw_provider(ctx: Context, msg: pb.MsgWithdraw) -> pb.MsgWithdrawResponse:
    provider = _provider_for(ctx, msg.provider_uuid, msg.sender)
    uuids = ctx.state.lease_uuids("provider", provider.uuid, ACTIVE)
    if not ctx.profile.cursors:
        uuids = uuids + ctx.state.lease_uuids("provider", provider.uuid, CLOSED)
    start = bisect.bisect_right(uuids, msg.key.decode("utf-8", "replace")) if msg.key else 0
    page = list(uuids[start : start + (msg.limit or 50)])
    more = start + len(page) < len(uuids)
    amounts: list[Coins] = []
    failed: list[str] = []
    closed_count = count = 0
    for uuid in page:
        lease = ctx.state.leases[uuid]
        try:
            paid, closed = _settle_one(ctx, lease)
        except Refused:  # refused before anything of this lease was paid
            failed.append(uuid)
            continue
        ctx.gas += _GAS_PAID if paid or closed else _GAS_VISITED
        count += bool(paid or closed)
        closed_count += closed
        amounts.append(paid)
        _tell_settled(ctx, lease, provider, paid=paid, closed=closed)
    total = settlement.total(amounts)
    told = (("failed_lease_count", str(len(failed))), ("failed_lease_uuids", ",".join(failed)))
    ctx.emit(
        "batch_withdraw",
        ("provider_uuid", provider.uuid),
        ("amount", coins_text(total)),
        ("lease_count", str(count)),
        ("payout_address", provider.payout_address),
        ("auto_closed", str(closed_count)),
        *(told if ctx.profile.strict else ()),
    )
    return pb.MsgWithdrawResponse(
        total_amounts=pb_coins(total),
        payout_address=provider.payout_address,
        withdrawal_count=count,
        has_more=more,
        next_key=page[-1].encode() if more and page and ctx.profile.cursors else b"",
        failed_lease_uuids=failed,
    )


def _tell_settled(ctx: Context, lease: Lease, provider: Provider, *, paid: Coins, closed: bool) -> None:
    """What a withdrawal by provider tells of one lease; the strict chain tells payments too."""
    strict = ctx.profile.strict
    if strict and (paid or closed):
        _emit_withdraw(ctx, lease, provider, paid=paid, closed=closed)
    if closed:
        amount = (("amount", coins_text(paid)), ("payout_address", provider.payout_address))
        ctx.emit(
            "lease_auto_closed",
            ("lease_uuid", lease.uuid),
            ("tenant", lease.tenant),
            ("provider_uuid", lease.provider_uuid),
            ("reason", "credit_exhausted"),
            *(amount if strict else ()),
        )


def _emit_withdraw(ctx: Context, lease: Lease, provider: Provider, *, paid: Coins, closed: bool) -> None:
    amount = ("amount", "0" if closed else coins_text(paid))
    last = ("auto_closed", "true") if closed else ("payout_address", provider.payout_address)
    ctx.emit("provider_withdraw", ("lease_uuid", lease.uuid), amount, ("provider_uuid", provider.uuid), last)


# --- custom domains ----------------------------------------------------------


def set_domain(ctx: Context, msg: pb.MsgSetItemCustomDomain) -> pb.MsgSetItemCustomDomainResponse:
    """Set or (empty) clear the custom domain of one item."""
    ctx.gas += 85_000
    state = ctx.state
    lease = state.leases.get(msg.lease_uuid)
    if lease is None:
        raise Refused("billing", 2, f"lease {msg.lease_uuid} not found")
    if msg.sender == lease.tenant:
        set_by = "tenant"
    elif may_act_for(ctx, msg.sender):
        set_by = "authority" if msg.sender == AUTHORITY else "allowed"
    else:
        raise Refused("billing", 6, f"sender {msg.sender} is not authorized to edit domains of lease {lease.uuid}")
    if lease.state not in (PENDING, ACTIVE):
        raise Refused("billing", 31, f"lease {lease.uuid} has ended")
    index = _item_index(lease, msg.service_name)
    domain = msg.custom_domain.strip().lower()
    old = lease.items[index].custom_domain
    if domain:
        _claimable(ctx, domain, (lease.uuid, msg.service_name))
    if domain == old:
        return pb.MsgSetItemCustomDomainResponse()
    if old:
        state.remove(state.domains, old)
    if domain:
        state.set(state.domains, domain, (lease.uuid, msg.service_name))
    items: list[Item] = list(lease.items)
    items[index] = items[index]._replace(custom_domain=domain)
    state.put_lease(lease._replace(items=tuple(items)))
    ctx.emit(
        "lease_custom_domain_set" if domain else "lease_custom_domain_cleared",
        ("lease_uuid", lease.uuid),
        ("tenant", lease.tenant),
        *((("provider_uuid", lease.provider_uuid),) if ctx.profile.domain_providers else ()),
        ("service_name", msg.service_name),
        ("custom_domain", domain or old),
        ("set_by", set_by),
    )
    return pb.MsgSetItemCustomDomainResponse()


def _item_index(lease: Lease, service_name: str) -> int:
    if not service_name and len(lease.items) > 1 and not lease.items[0].service_name:
        raise Refused("billing", 33, f"lease {lease.uuid} has several items without names")
    for index, item in enumerate(lease.items):
        if item.service_name == service_name:
            return index
    raise Refused("billing", 32, f"lease {lease.uuid} has no item {service_name}")


def _claimable(ctx: Context, domain: str, owner: tuple[str, str]) -> None:
    forms.domain(domain)
    for suffix in ctx.state.params.reserved_domain_suffixes:
        if domain == suffix.lstrip(".") or domain.endswith(suffix):
            raise Refused("billing", 29, f"{domain} is reserved")
    if ctx.state.domains.get(domain, owner) != owner:
        raise Refused("billing", 30, f"{domain} is already claimed")


# --- parameters --------------------------------------------------------------


def check_params(msg: pb.MsgUpdateParams) -> None:
    """Form of new parameters: the bounds of each."""
    forms.address(msg.authority, "authority")
    params = msg.params
    for name, value, low, high in (
        ("max_leases_per_tenant", params.max_leases_per_tenant, 1, 10_000),
        ("max_items_per_lease", params.max_items_per_lease, 1, 100),
        ("min_lease_duration", params.min_lease_duration, 1, 2_592_000),
        ("max_pending_leases_per_tenant", params.max_pending_leases_per_tenant, 1, 1_000),
        ("pending_timeout", params.pending_timeout, 60, 86_400),
    ):
        if not low <= value <= high:
            raise Refused("billing", 1, f"{name} must be between {low} and {high}")
    for member in params.allowed_list:
        forms.address(member, "allowed", ("billing", 1))


def update_params(ctx: Context, msg: pb.MsgUpdateParams) -> pb.MsgUpdateParamsResponse:
    """The authority replaces the parameters."""
    if msg.authority != AUTHORITY:
        raise Refused("billing", 6, f"sender {msg.authority} is not the authority")
    params = msg.params
    value = Params(
        max_leases_per_tenant=params.max_leases_per_tenant,
        allowed_list=tuple(params.allowed_list),
        max_items_per_lease=params.max_items_per_lease,
        min_lease_duration=params.min_lease_duration,
        max_pending_leases_per_tenant=params.max_pending_leases_per_tenant,
        pending_timeout=params.pending_timeout,
        reserved_domain_suffixes=tuple(params.reserved_domain_suffixes),
    )
    ctx.state.set(ctx.state.settings, "params", value)
    ctx.emit("params_updated")
    return pb.MsgUpdateParamsResponse()
