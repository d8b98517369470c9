"""The messages of the SKU module: providers and their offers."""

from __future__ import annotations

from urllib.parse import urlsplit

from leases.chain.devchain import forms
from leases.chain.devchain.context import Context
from leases.chain.devchain.errors import Refused
from leases.chain.devchain.keys import AUTHORITY
from leases.chain.devchain.records import Provider, Sku
from leases.chain.proto import sku_pb2 as pb


def _require_allowed(ctx: Context, sender: str) -> None:
    if sender != AUTHORITY and sender not in ctx.state.sku_allowed:
        raise Refused("sku", 3, f"sender {sender} is not authorized")


def _provider(ctx: Context, uuid: str) -> Provider:
    provider = ctx.state.providers.get(uuid)
    if provider is None:
        raise Refused("sku", 6, f"provider {uuid} not found")
    return provider


def _check_url(url: str) -> None:
    parts = urlsplit(url)
    if len(url) > 2048 or parts.scheme != "https" or not parts.hostname or parts.username is not None:
        raise Refused("sku", 7, f"{url} must be an https address without user")


def check_provider(msg: pb.MsgCreateProvider | pb.MsgUpdateProvider) -> None:
    """Form of a provider."""
    forms.address(msg.authority, "authority", ("sku", 5))
    forms.address(msg.address, "provider", ("sku", 5))
    forms.address(msg.payout_address, "payout", ("sku", 5))
    if len(msg.meta_hash) > 64:
        raise Refused("sku", 5, "meta_hash exceeds 64 bytes")
    if msg.api_url or isinstance(msg, pb.MsgCreateProvider):
        _check_url(msg.api_url)


def create_provider(ctx: Context, msg: pb.MsgCreateProvider) -> pb.MsgCreateProviderResponse:
    """A new provider, active at once."""
    ctx.gas += 24_000
    _require_allowed(ctx, msg.authority)
    uuid = ctx.new_uuid("sku-provider")
    provider = Provider(uuid, msg.address, msg.payout_address, msg.api_url, msg.meta_hash)
    ctx.state.set(ctx.state.providers, uuid, provider)
    ctx.emit(
        "provider_created",
        ("provider_uuid", uuid),
        ("address", msg.address),
        ("payout_address", msg.payout_address),
        ("created_by", msg.authority),
    )
    return pb.MsgCreateProviderResponse(uuid=uuid)


def update_provider(ctx: Context, msg: pb.MsgUpdateProvider) -> pb.MsgUpdateProviderResponse:
    """Change a provider, or activate it again; an empty address of its API keeps the old one."""
    ctx.gas += 24_000
    _require_allowed(ctx, msg.authority)
    old = _provider(ctx, msg.uuid)
    if old.active and not msg.active:
        raise Refused("sku", 5, "an update cannot deactivate a provider")
    provider = old._replace(
        address=msg.address,
        payout_address=msg.payout_address,
        meta_hash=msg.meta_hash,
        active=msg.active,
        api_url=msg.api_url or old.api_url,
    )
    ctx.state.set(ctx.state.providers, msg.uuid, provider)
    ctx.emit(
        "provider_updated",
        ("provider_uuid", msg.uuid),
        ("address", msg.address),
        ("payout_address", msg.payout_address),
    )
    if provider.active and not old.active:
        ctx.emit("provider_activated", ("provider_uuid", msg.uuid))
    return pb.MsgUpdateProviderResponse()


def check_deactivate_provider(msg: pb.MsgDeactivateProvider) -> None:
    """Form of a deactivation."""
    forms.address(msg.authority, "authority", ("sku", 5))
    if msg.limit > 100:
        raise Refused("sku", 5, f"limit {msg.limit} exceeds maximum 100")


def deactivate_provider(ctx: Context, msg: pb.MsgDeactivateProvider) -> pb.MsgDeactivateProviderResponse:
    """No new leases for this provider; its SKUs are deactivated page by page."""
    ctx.gas += 24_000
    _require_allowed(ctx, msg.authority)
    provider = _provider(ctx, msg.uuid)
    state = ctx.state
    state.set(state.providers, msg.uuid, provider._replace(active=False))
    limit = msg.limit or 50
    skus = [sku for _, sku in sorted(state.skus.items()) if sku.provider_uuid == msg.uuid and sku.active]
    for sku in skus[:limit]:
        _deactivate(ctx, sku, msg.authority)
    if provider.active:
        ctx.emit("provider_deactivated", ("provider_uuid", msg.uuid), ("deactivated_by", msg.authority))
    return pb.MsgDeactivateProviderResponse(deactivated_sku_count=len(skus[:limit]), has_more=len(skus) > limit)


def check_sku(msg: pb.MsgCreateSKU | pb.MsgUpdateSKU) -> None:
    """Form of an offer: its price must give whole base units for each second."""
    forms.address(msg.authority, "authority", ("sku", 1))
    if not forms.UUID_V7(msg.provider_uuid):
        raise Refused("sku", 5, f"invalid provider_uuid format: {msg.provider_uuid}")
    if not msg.name or len(msg.name) > 256:
        raise Refused("sku", 1, "name must have 1 to 256 characters")
    if len(msg.meta_hash) > 64:
        raise Refused("sku", 1, "meta_hash exceeds 64 bytes")
    seconds = {1: 3600, 2: 86_400}.get(msg.unit)
    text = msg.base_price.amount
    if seconds is None or not text.isascii() or not text.isdigit():
        raise Refused("sku", 1, "unit and base_price must be given")
    if int(text) == 0 or int(text) % seconds:
        raise Refused("sku", 1, f"base_price must be a multiple of {seconds}")


def create_sku(ctx: Context, msg: pb.MsgCreateSKU) -> pb.MsgCreateSKUResponse:
    """A new offer, active at once."""
    ctx.gas += 32_000
    _require_allowed(ctx, msg.authority)
    provider = _provider(ctx, msg.provider_uuid)
    if not provider.active:
        raise Refused("sku", 5, f"provider {provider.uuid} is not active")
    uuid = ctx.new_uuid("sku-sku")
    price = int(msg.base_price.amount)
    sku = Sku(uuid, msg.provider_uuid, msg.name, msg.unit, msg.base_price.denom, price, msg.meta_hash)
    ctx.state.set(ctx.state.skus, uuid, sku)
    ctx.emit(
        "sku_created",
        ("sku_uuid", uuid),
        ("provider_uuid", msg.provider_uuid),
        ("name", msg.name),
        ("base_price", f"{price}{msg.base_price.denom}"),
        ("created_by", msg.authority),
    )
    return pb.MsgCreateSKUResponse(uuid=uuid)


def update_sku(ctx: Context, msg: pb.MsgUpdateSKU) -> pb.MsgUpdateSKUResponse:
    """Change an offer, or activate it again; leases keep their price."""
    ctx.gas += 32_000
    _require_allowed(ctx, msg.authority)
    old = ctx.state.skus.get(msg.uuid)
    if old is None:
        raise Refused("sku", 2, f"sku {msg.uuid} not found")
    if old.active and not msg.active:
        raise Refused("sku", 1, "an update cannot deactivate a SKU")
    sku = old._replace(
        name=msg.name,
        unit=msg.unit,
        denom=msg.base_price.denom,
        price=int(msg.base_price.amount),
        meta_hash=msg.meta_hash,
        active=msg.active,
    )
    ctx.state.set(ctx.state.skus, msg.uuid, sku)
    ctx.emit("sku_updated", ("sku_uuid", msg.uuid), ("provider_uuid", old.provider_uuid))
    if sku.active and not old.active:
        ctx.emit("sku_activated", ("sku_uuid", msg.uuid), ("provider_uuid", old.provider_uuid))
    return pb.MsgUpdateSKUResponse()


def check_deactivate_sku(msg: pb.MsgDeactivateSKU) -> None:
    """Form of a deactivation."""
    forms.address(msg.authority, "authority", ("sku", 1))


def deactivate_sku(ctx: Context, msg: pb.MsgDeactivateSKU) -> pb.MsgDeactivateSKUResponse:
    """No new leases of this SKU; running ones go on."""
    ctx.gas += 32_000
    _require_allowed(ctx, msg.authority)
    sku = ctx.state.skus.get(msg.uuid)
    if sku is None:
        raise Refused("sku", 2, f"sku {msg.uuid} not found")
    _deactivate(ctx, sku, msg.authority)
    return pb.MsgDeactivateSKUResponse()


def _deactivate(ctx: Context, sku: Sku, sender: str) -> None:
    ctx.state.set(ctx.state.skus, sku.uuid, sku._replace(active=False))
    names = ("sku_uuid", sku.uuid), ("provider_uuid", sku.provider_uuid)
    ctx.emit("sku_deactivated", *names, ("deactivated_by", sender))


def check_update_params(msg: pb.MsgUpdateParams) -> None:
    """Form of new parameters."""
    for member in (msg.authority, *msg.params.allowed_list):
        forms.address(member, "allowed", ("sku", 4))


def update_params(ctx: Context, msg: pb.MsgUpdateParams) -> pb.MsgUpdateParamsResponse:
    """The authority replaces the list of those who may create."""
    if msg.authority != AUTHORITY:
        raise Refused("sku", 3, f"sender {msg.authority} is not the authority")
    ctx.state.set(ctx.state.settings, "sku_allowed", tuple(msg.params.allowed_list))
    return pb.MsgUpdateParamsResponse()
