"""The messages of the bank and of authz: sending money, acting for others."""

from __future__ import annotations

from google.protobuf.any_pb2 import Any

from leases.chain.devchain import forms
from leases.chain.devchain.context import Context
from leases.chain.devchain.errors import Refused
from leases.chain.devchain.keys import DISTRIBUTION, FEE_COLLECTOR, add_coins
from leases.chain.devchain.records import Grant
from leases.chain.proto import authz_pb2, bank_pb2

GENERIC = "/cosmos.authz.v1beta1.GenericAuthorization"


def check_send(msg: bank_pb2.MsgSend) -> None:
    """Form of a payment."""
    forms.address(msg.from_address, "from", ("sdk", 18))
    forms.address(msg.to_address, "to", ("sdk", 18))
    if not msg.amount or not all(c.amount.isascii() and c.amount.isdigit() and int(c.amount) for c in msg.amount):
        raise Refused("sdk", 18, "amount must be positive")


def send(ctx: Context, msg: bank_pb2.MsgSend) -> bank_pb2.MsgSendResponse:
    """Move money; the receiver's account is made when it is missing."""
    ctx.gas += 35_000
    if msg.to_address in (FEE_COLLECTOR, DISTRIBUTION):
        raise Refused("sdk", 4, f"{msg.to_address} is not allowed to receive funds")
    coins = add_coins((), tuple((coin.denom, int(coin.amount)) for coin in msg.amount))
    ctx.require_funds(msg.from_address, coins)
    ctx.pay(msg.from_address, msg.to_address, coins)
    ctx.state.account(msg.to_address)
    return bank_pb2.MsgSendResponse()


def check_grant(msg: authz_pb2.MsgGrant) -> None:
    """Form of a grant: only generic authorizations exist here."""
    forms.address(msg.granter, "granter", ("sdk", 18))
    forms.address(msg.grantee, "grantee", ("sdk", 18))
    if msg.granter == msg.grantee:
        raise Refused("sdk", 18, "grantee and granter should be different")
    if msg.grant.authorization.type_url != GENERIC:
        raise Refused("sdk", 2, f"unable to resolve type URL {msg.grant.authorization.type_url}")


def _nanoseconds(grant: authz_pb2.Grant) -> int:
    if not grant.HasField("expiration"):
        return 0
    return grant.expiration.seconds * 10**9 + grant.expiration.nanos


def grant(ctx: Context, msg: authz_pb2.MsgGrant) -> authz_pb2.MsgGrantResponse:
    """Let a grantee send one type of message for the granter; its account is made when it is missing."""
    ctx.gas += 12_000
    expires_at = _nanoseconds(msg.grant)
    if expires_at and expires_at <= ctx.time:
        raise Refused("sdk", 18, "expiration must be after the current block time")
    allowed = authz_pb2.GenericAuthorization.FromString(msg.grant.authorization.value)
    state = ctx.state
    state.account(msg.grantee)
    entry = Grant(msg.granter, msg.grantee, allowed.msg, expires_at)
    state.set(state.grants, (msg.granter, msg.grantee, allowed.msg), entry)
    _emit(ctx, "cosmos.authz.v1beta1.EventGrant", entry)
    return authz_pb2.MsgGrantResponse()


def check_revoke(msg: authz_pb2.MsgRevoke) -> None:
    """Form of a revocation."""
    forms.address(msg.granter, "granter", ("sdk", 18))
    forms.address(msg.grantee, "grantee", ("sdk", 18))


def revoke(ctx: Context, msg: authz_pb2.MsgRevoke) -> authz_pb2.MsgRevokeResponse:
    """Take a grant back."""
    ctx.gas += 12_000
    key = (msg.granter, msg.grantee, msg.msg_type_url)
    entry = ctx.state.grants.get(key)
    if entry is None:
        raise Refused("authz", 2, "failed to delete grant with given granter")
    ctx.state.remove(ctx.state.grants, key)
    _emit(ctx, "cosmos.authz.v1beta1.EventRevoke", entry)
    return authz_pb2.MsgRevokeResponse()


def _emit(ctx: Context, event_type: str, entry: Grant) -> None:
    """A typed event: its values are JSON strings."""
    ctx.emit(
        event_type,
        ("grantee", f'"{entry.grantee}"'),
        ("granter", f'"{entry.granter}"'),
        ("msg_type_url", f'"{entry.msg_type}"'),
    )


def authorization(entry: Grant) -> Any:
    """The stored authorization as the chain shows it."""
    value = authz_pb2.GenericAuthorization(msg=entry.msg_type).SerializeToString()
    return Any(type_url=GENERIC, value=value)


def require_grant(ctx: Context, granter: str, grantee: str, msg_type: str) -> None:
    """Refuse unless a live grant of exactly this type exists."""
    entry = ctx.state.grants.get((granter, grantee, msg_type))
    if entry is None or (entry.expires_at and entry.expires_at <= ctx.time):
        # The chain prints a blank before the colon of the registered text.
        names = f"granter: {granter}, grantee: {grantee} & msgType: {msg_type} "
        raise Refused("authz", 2, f"failed to get grant with given {names}")
