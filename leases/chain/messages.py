"""The messages we send, packed into `Any`.

Fields are in the form every generation of the ledger takes: `MsgWithdraw.key` stays empty on the first page, so that
the same bytes are valid on a chain that does not know it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from uuid import UUID

from google.protobuf.any_pb2 import Any as PackedAny
from google.protobuf.message import Message

from leases.chain.client import Coin
from leases.chain.proto import authz_pb2, bank_pb2, billing_pb2, coin_pb2

LEASES_PER_MESSAGE = 100  # the ledger refuses more with code 9
MAX_REASON_BYTES = 256
_CUT_REASON_BYTES = MAX_REASON_BYTES - len("...")

ACKNOWLEDGE_TYPE = "/liftedinit.billing.v1.MsgAcknowledgeLease"
REJECT_TYPE = "/liftedinit.billing.v1.MsgRejectLease"
CLOSE_TYPE = "/liftedinit.billing.v1.MsgCloseLease"
DELEGATED_TYPES = (
    ACKNOWLEDGE_TYPE,
    REJECT_TYPE,
    CLOSE_TYPE,
)  # what a sub-signer is granted, in the order of the grants


def pack(message: Message) -> PackedAny:
    """Pack a message under the type URL the chain expects: `/` and the full name."""
    return PackedAny(type_url=f"/{message.DESCRIPTOR.full_name}", value=message.SerializeToString(deterministic=True))


def acknowledge(sender: str, lease_uuids: Iterable[UUID]) -> list[PackedAny]:
    """Acknowledge leases, 100 to a message, in the given order. One lease that is not PENDING fails them all."""
    return [pack(billing_pb2.MsgAcknowledgeLease(sender=sender, lease_uuids=part)) for part in _parts(lease_uuids)]


def reject(sender: str, lease_uuids: Iterable[UUID], *, reason: str) -> list[PackedAny]:
    """Refuse PENDING leases for one reason, 100 to a message."""
    told = cut_reason(reason)
    return [
        pack(billing_pb2.MsgRejectLease(sender=sender, lease_uuids=part, reason=told)) for part in _parts(lease_uuids)
    ]


def close(sender: str, lease_uuids: Iterable[UUID], *, reason: str) -> list[PackedAny]:
    """End ACTIVE leases for one reason, 100 to a message; each is settled first."""
    told = cut_reason(reason)
    return [
        pack(billing_pb2.MsgCloseLease(sender=sender, lease_uuids=part, reason=told)) for part in _parts(lease_uuids)
    ]


def withdraw_page(sender: str, provider_uuid: UUID, *, limit: int, key: bytes = b"") -> PackedAny:
    """Withdraw from one page of the provider's leases; `key` continues where the last answer ended."""
    return pack(billing_pb2.MsgWithdraw(sender=sender, provider_uuid=str(provider_uuid), limit=limit, key=key))


def withdraw_leases(sender: str, lease_uuids: Sequence[UUID]) -> PackedAny:
    """Withdraw from these leases (at most 100)."""
    return pack(billing_pb2.MsgWithdraw(sender=sender, lease_uuids=[str(uuid) for uuid in lease_uuids]))


def execute(grantee: str, inner: Iterable[PackedAny]) -> PackedAny:
    """Send messages in the name of whoever granted them to `grantee`; each keeps its own sender."""
    return pack(authz_pb2.MsgExec(grantee=grantee, msgs=inner))


def grant(granter: str, grantee: str, *, type_url: str) -> PackedAny:
    """Let `grantee` send messages of one type in `granter`'s name, without an end."""
    right = pack(authz_pb2.GenericAuthorization(msg=type_url))
    return pack(authz_pb2.MsgGrant(granter=granter, grantee=grantee, grant=authz_pb2.Grant(authorization=right)))


def revoke(granter: str, grantee: str, *, type_url: str) -> PackedAny:
    """Take such a right back; the chain refuses it where there is none."""
    return pack(authz_pb2.MsgRevoke(granter=granter, grantee=grantee, msg_type_url=type_url))


def send(sender: str, recipient: str, *, coins: Iterable[Coin]) -> PackedAny:
    """Transfer coins; an unknown recipient's account is created by it."""
    amount = [_coin(coin) for coin in sorted(coins, key=lambda coin: coin.denom)]
    return pack(bank_pb2.MsgSend(from_address=sender, to_address=recipient, amount=amount))


def fund_credit(sender: str, tenant: str, *, coin: Coin) -> PackedAny:
    """Add to a tenant's credit."""
    return pack(billing_pb2.MsgFundCredit(sender=sender, tenant=tenant, amount=_coin(coin)))


def create_lease(tenant: str, items: Iterable[tuple[UUID, int, str]], *, meta_hash: bytes = b"") -> PackedAny:
    """Ask for a lease of these items: SKU, quantity, service name (empty for a single unnamed service)."""
    inputs = [
        billing_pb2.LeaseItemInput(sku_uuid=str(sku), quantity=quantity, service_name=name)
        for sku, quantity, name in items
    ]
    return pack(billing_pb2.MsgCreateLease(tenant=tenant, items=inputs, meta_hash=meta_hash))


def cancel(tenant: str, lease_uuids: Iterable[UUID]) -> list[PackedAny]:
    """Take PENDING leases back as their tenant, 100 to a message."""
    return [pack(billing_pb2.MsgCancelLease(tenant=tenant, lease_uuids=part)) for part in _parts(lease_uuids)]


def set_custom_domain(sender: str, lease_uuid: UUID, *, service_name: str, custom_domain: str) -> PackedAny:
    """Claim a domain for one item of a lease; an empty domain gives it up."""
    return pack(
        billing_pb2.MsgSetItemCustomDomain(
            sender=sender, lease_uuid=str(lease_uuid), service_name=service_name, custom_domain=custom_domain
        )
    )


def cut_reason(reason: str) -> str:
    """Fit a reason into the 256 bytes the ledger allows: whole characters, `...` where something was cut."""
    raw = reason.encode()
    if len(raw) <= MAX_REASON_BYTES:
        return reason
    return raw[:_CUT_REASON_BYTES].decode(errors="ignore") + "..."


def _parts(lease_uuids: Iterable[UUID]) -> Iterator[list[str]]:
    texts = iter(str(uuid) for uuid in lease_uuids)
    while part := list(islice(texts, LEASES_PER_MESSAGE)):
        yield part


def _coin(coin: Coin) -> coin_pb2.Coin:
    return coin_pb2.Coin(denom=coin.denom, amount=str(coin.amount))
