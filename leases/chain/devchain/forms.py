"""Form checks: what a message must look like before the chain looks at its state."""

from __future__ import annotations

import re
from collections.abc import Sequence

from leases.chain.devchain.errors import Refused
from leases.chain.devchain.keys import decode_address
from leases.chain.proto import billing_pb2 as pb

UUID_V7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}").fullmatch
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?").fullmatch
MAX_BATCH = 100


def address(text: str, name: str, refusal: tuple[str, int] = ("billing", 9)) -> None:
    """Refuse what is no bech32 address of this chain."""
    if decode_address(text) is None:
        raise Refused(*refusal, f"invalid {name} address: {text}")


def lease_uuids(uuids: Sequence[str]) -> None:
    """One to a hundred canonical lower-case UUIDv7, none twice."""
    if not uuids:
        raise Refused("billing", 9, "lease_uuids cannot be empty")
    if len(uuids) > MAX_BATCH:
        raise Refused("billing", 9, f"too many leases: {len(uuids)} exceeds maximum {MAX_BATCH}")
    seen: set[str] = set()
    for index, uuid in enumerate(uuids):
        if not UUID_V7(uuid):
            raise Refused("billing", 9, f"lease_uuids[{index}] invalid format: {uuid}")
        if uuid in seen:
            raise Refused("billing", 9, f"duplicate lease_uuid: {uuid}")
        seen.add(uuid)


def reason(text: str, code: int) -> None:
    """At most 256 bytes."""
    if len(text.encode()) > 256:
        raise Refused("billing", code, "reason exceeds maximum length of 256 characters")


def items(lines: Sequence[pb.LeaseItemInput]) -> None:
    """Lines of a new lease: number, SKU, quantity, names all or none."""
    if not lines:
        raise Refused("billing", 16, "a lease needs at least one item")
    if len(lines) > 100:
        raise Refused("billing", 21, f"{len(lines)} items exceed the maximum of 100")
    for index, line in enumerate(lines):
        if not UUID_V7(line.sku_uuid):
            raise Refused("billing", 9, f"items[{index}] invalid sku_uuid format: {line.sku_uuid}")
        if not 1 <= line.quantity <= 10**9:
            raise Refused("billing", 17, f"items[{index}] quantity must be between 1 and 1000000000")
    _item_names(lines)


def _item_names(lines: Sequence[pb.LeaseItemInput]) -> None:
    names = [line.service_name for line in lines]
    if not any(names):
        if len({line.sku_uuid for line in lines}) < len(lines):
            raise Refused("billing", 18, "a sku_uuid occurs twice")
        return
    if not all(names):
        raise Refused("billing", 28, "either all or none of the items must have a service_name")
    for index, name in enumerate(names):
        if not _LABEL(name) or name in names[:index]:
            raise Refused("billing", 28, f"items[{index}] service_name is invalid or used twice")


def create(msg: pb.MsgCreateLease | pb.MsgCreateLeaseForTenant) -> None:
    """A new lease, for oneself or for a tenant."""
    address(msg.tenant, "tenant")
    if len(msg.meta_hash) > 64:
        raise Refused("billing", 27, f"meta_hash has {len(msg.meta_hash)} bytes, at most 64 are allowed")
    items(msg.items)


def withdraw(msg: pb.MsgWithdraw) -> None:
    """One of the two modes, and its limits."""
    address(msg.sender, "sender")
    if msg.lease_uuids and msg.provider_uuid:
        raise Refused("billing", 25, "cannot specify both lease_uuids and provider_uuid")
    if not msg.lease_uuids and not msg.provider_uuid:
        raise Refused("billing", 25, "must specify either lease_uuids or provider_uuid")
    if msg.lease_uuids:
        lease_uuids(msg.lease_uuids)
        if msg.key:
            raise Refused("billing", 25, "key is only valid in provider-wide mode")
    elif not UUID_V7(msg.provider_uuid):
        raise Refused("billing", 9, f"invalid provider_uuid format: {msg.provider_uuid}")
    if len(msg.key) > 64:
        raise Refused("billing", 25, "key exceeds maximum length of 64 bytes")
    if msg.limit > MAX_BATCH:
        raise Refused("billing", 9, f"limit {msg.limit} exceeds maximum allowed {MAX_BATCH}")


def domain_message(msg: pb.MsgSetItemCustomDomain) -> None:
    """Form of setting or clearing a custom domain."""
    address(msg.sender, "sender", ("billing", 6))
    if not UUID_V7(msg.lease_uuid):
        raise Refused("billing", 9, f"invalid lease_uuid format: {msg.lease_uuid}")
    if msg.service_name and not _LABEL(msg.service_name):
        raise Refused("billing", 28, f"invalid service_name: {msg.service_name}")
    if msg.custom_domain:
        domain(msg.custom_domain)


def domain(text: str) -> None:
    """A lower-case domain name with at least one dot; no address, no scheme."""
    labels = text.split(".")
    if len(text) > 253 or len(labels) < 2 or not all(_LABEL(label) for label in labels) or labels[-1].isdigit():
        raise Refused("billing", 29, f"{text} is not a valid domain name")
