"""All messages the simulated chain knows: their class, their signer, their checks and their effect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any as Whatever
from typing import NamedTuple, TypeVar

from google.protobuf.any_pb2 import Any
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from leases.chain.devchain import bank, billing, forms, sku, withdrawals
from leases.chain.devchain.context import Context
from leases.chain.devchain.errors import Refused
from leases.chain.proto import authz_pb2, bank_pb2, billing_pb2, sku_pb2

M = TypeVar("M", bound=Message)


class MessageType(NamedTuple):
    """How one type of message is decoded, checked and run."""

    cls: type[Message]
    signer: str
    check: Callable[[Whatever], None]
    run: Callable[[Context, Whatever], Message]


def check_exec(msg: authz_pb2.MsgExec) -> None:
    """Form of acting for others: every inner message is checked too."""
    forms.address(msg.grantee, "grantee", ("sdk", 18))
    if not msg.msgs:
        raise Refused("sdk", 18, "messages cannot be empty")
    for inner in msg.msgs:
        decoded = unpack(inner)
        TYPES[inner.type_url].check(decoded)


def execute(ctx: Context, msg: authz_pb2.MsgExec) -> authz_pb2.MsgExecResponse:
    """Run messages of granters; a message of the grantee itself needs no grant."""
    ctx.gas += 3_500
    outer = ctx.suffix
    results = []
    for index, inner in enumerate(msg.msgs):
        kind = TYPES[inner.type_url]
        decoded = kind.cls.FromString(inner.value)
        granter = getattr(decoded, kind.signer)
        if granter != msg.grantee:
            bank.require_grant(ctx, granter, msg.grantee, inner.type_url)
        ctx.suffix = (("authz_msg_index", str(index)), *outer)
        results.append(kind.run(ctx, decoded).SerializeToString())
    ctx.suffix = outer
    return authz_pb2.MsgExecResponse(results=results)


def inner_messages(message: Message) -> Iterator[Message]:
    """A message and, of one that acts for others, everything inside it."""
    yield message
    if isinstance(message, authz_pb2.MsgExec):
        for inner in message.msgs:
            yield from inner_messages(unpack(inner))


_B, _S, _A = billing_pb2, sku_pb2, authz_pb2
_KINDS = (
    MessageType(_B.MsgFundCredit, "sender", billing.check_fund_credit, billing.fund_credit),
    MessageType(_B.MsgCreateLease, "tenant", forms.create, billing.create_lease),
    MessageType(_B.MsgCreateLeaseForTenant, "authority", forms.create, billing.create_for_tenant),
    MessageType(_B.MsgAcknowledgeLease, "sender", billing.check_uuids, billing.acknowledge),
    MessageType(_B.MsgRejectLease, "sender", billing.check_reject, billing.reject),
    MessageType(_B.MsgCancelLease, "tenant", billing.check_cancel, billing.cancel),
    MessageType(_B.MsgCloseLease, "sender", billing.check_close, billing.close),
    MessageType(_B.MsgWithdraw, "sender", forms.withdraw, withdrawals.withdraw),
    MessageType(_B.MsgSetItemCustomDomain, "sender", forms.domain_message, withdrawals.set_domain),
    MessageType(_B.MsgUpdateParams, "authority", withdrawals.check_params, withdrawals.update_params),
    MessageType(_S.MsgCreateProvider, "authority", sku.check_provider, sku.create_provider),
    MessageType(_S.MsgUpdateProvider, "authority", sku.check_provider, sku.update_provider),
    MessageType(_S.MsgDeactivateProvider, "authority", sku.check_deactivate_provider, sku.deactivate_provider),
    MessageType(_S.MsgCreateSKU, "authority", sku.check_sku, sku.create_sku),
    MessageType(_S.MsgUpdateSKU, "authority", sku.check_sku, sku.update_sku),
    MessageType(_S.MsgDeactivateSKU, "authority", sku.check_deactivate_sku, sku.deactivate_sku),
    MessageType(_S.MsgUpdateParams, "authority", sku.check_update_params, sku.update_params),
    MessageType(bank_pb2.MsgSend, "from_address", bank.check_send, bank.send),
    MessageType(_A.MsgGrant, "granter", bank.check_grant, bank.grant),
    MessageType(_A.MsgRevoke, "granter", bank.check_revoke, bank.revoke),
    MessageType(_A.MsgExec, "grantee", check_exec, execute),
)
TYPES: dict[str, MessageType] = {f"/{kind.cls.DESCRIPTOR.full_name}": kind for kind in _KINDS}


def unpack(packed: Any) -> Message:
    """Decode a message; refuse unknown types, broken bytes and unknown fields as a transaction parser does."""
    kind = TYPES.get(packed.type_url)
    if kind is None:
        raise Refused("sdk", 2, f"unable to resolve type URL {packed.type_url}")
    return parse_strictly(kind.cls, packed.value)


def parse_strictly(cls: type[M], data: bytes) -> M:
    """Decode bytes that must hold no unknown field."""
    try:
        message = cls.FromString(data)
    except DecodeError:
        raise Refused("sdk", 2, f"error decoding {cls.DESCRIPTOR.full_name}") from None
    refuse_unknown_fields(message)
    return message


def refuse_unknown_fields(message: Message, *, ignore_non_critical: bool = False) -> None:
    """Refuse fields the chain does not know; those with bit 11 of the number set may be let through."""
    for field in UnknownFieldSet(message):  # type: ignore[attr-defined]
        if not (ignore_non_critical and field.field_number >> 10 & 1):
            name = message.DESCRIPTOR.full_name
            raise Refused("sdk", 2, f'errUnknownField "{name}": {{TagNum: {field.field_number}}}')
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for part in value if field.is_repeated else (value,):
            refuse_unknown_fields(part)


def pack(message: Message) -> Any:
    """A message with its type URL."""
    return Any(type_url=f"/{message.DESCRIPTOR.full_name}", value=message.SerializeToString())


def signer_of(type_url: str, message: Message) -> str:
    """Whose message this is."""
    return str(getattr(message, TYPES[type_url].signer))
