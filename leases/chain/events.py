"""What the chain tells of leases, as typed events.

The node writes the same events in two ways: as a list of `{type, attributes}` (results of blocks and transactions,
and inside frames), and flattened to `"type.attribute": [values…]` (the `events` member of a frame). The list is exact;
in the map values belong together by their position, so a shorter list may be out of step and only the three fields
every event has are read by position.

An event is a hint, never a proof: whoever acts reads the lease exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from uuid import UUID

import msgspec


class EventType(StrEnum):
    """Events of the billing module that tell of one lease; names as on the chain."""

    CREATED = "lease_created"
    ACKNOWLEDGED = "lease_acknowledged"
    REJECTED = "lease_rejected"
    CANCELLED = "lease_cancelled"
    CLOSED = "lease_closed"
    EXPIRED = "lease_expired"  # at the end of a block, not in a transaction
    AUTO_CLOSED = "lease_auto_closed"  # a provider-wide withdrawal found the credit empty; also other providers'
    WITHDRAWN = "provider_withdraw"  # only where a withdrawal by uuids closed the lease; names no tenant
    DOMAIN_SET = "lease_custom_domain_set"
    DOMAIN_CLEARED = "lease_custom_domain_cleared"


@dataclass(frozen=True, slots=True)
class LeaseEvent:
    """One event of one lease, in the block of this height.

    `provider_uuid` is None where the chain named none (possible for automatic closes of other providers). `tx_hash` is
    empty for events of a block and where only the results of a block were read. `attributes` are all values of the
    event by name; from a flattened frame only those that surely belong to it.
    """

    type: EventType
    lease_uuid: UUID
    provider_uuid: UUID | None
    tenant: str
    height: int
    tx_hash: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Header:
    """A new block was committed. Hashes are upper-case hexadecimal: its own where known, and of the block before."""

    height: int
    time: datetime
    chain_id: str = ""
    block_hash: str = ""
    last_hash: str = ""


class AbciAttribute(msgspec.Struct, gc=False):
    """One attribute of an event as the node's JSON has it."""

    key: str = ""
    value: str | None = ""


class AbciEvent(msgspec.Struct, gc=False):
    """One event as the node's JSON has it."""

    type: str = ""
    attributes: list[AbciAttribute] = []


@dataclass(frozen=True, slots=True)
class Occurrence:
    """An event as text, before its uuids are believed."""

    type: EventType
    lease_uuid: str
    provider_uuid: str
    tenant: str
    attributes: Mapping[str, str] = field(default_factory=dict)


_TYPES = {kind.value: kind for kind in EventType}
_MAP_ORDER = (EventType.AUTO_CLOSED, *(kind for kind in EventType if kind is not EventType.AUTO_CLOSED))


def from_list(events: Iterable[AbciEvent], provider_uuid: str) -> Iterator[Occurrence]:
    """Read events in the node's list form: ours, and automatic closes of all providers."""
    for event in events:
        kind = _TYPES.get(event.type)
        if kind is None:
            continue
        attributes = {attribute.key: attribute.value or "" for attribute in event.attributes}
        occurrence = Occurrence(
            type=kind,
            lease_uuid=attributes.get("lease_uuid", ""),
            provider_uuid=attributes.get("provider_uuid", ""),
            tenant=attributes.get("tenant", ""),
            attributes=attributes,
        )
        if _is_wanted(occurrence, provider_uuid):
            yield occurrence


def from_map(events: Mapping[str, Sequence[str]], provider_uuid: str) -> Iterator[Occurrence]:
    """Read events in the flattened form of a frame: automatic closes first, then ours of every type."""
    for kind in _MAP_ORDER:
        uuids = events.get(f"{kind}.lease_uuid", ())
        if not uuids:
            continue
        prefix = f"{kind}."
        in_step = {
            name.removeprefix(prefix): values
            for name, values in events.items()
            if name.startswith(prefix) and len(values) == len(uuids)
        }
        for position, uuid in enumerate(uuids):
            occurrence = Occurrence(
                type=kind,
                lease_uuid=uuid,
                provider_uuid=_at(events.get(f"{kind}.provider_uuid", ()), position),
                tenant=_at(events.get(f"{kind}.tenant", ()), position),
                attributes={name: values[position] for name, values in in_step.items()},
            )
            if _is_wanted(occurrence, provider_uuid):
                yield occurrence


def typed(occurrences: Iterable[Occurrence], *, height: int, tx_hash: str = "") -> tuple[LeaseEvent, ...]:
    """Turn texts into events of this height; one whose lease uuid is none is dropped."""
    found: list[LeaseEvent] = []
    for occurrence in occurrences:
        lease_uuid = _uuid(occurrence.lease_uuid)
        if lease_uuid is None:
            continue
        found.append(
            LeaseEvent(
                type=occurrence.type,
                lease_uuid=lease_uuid,
                provider_uuid=_uuid(occurrence.provider_uuid),
                tenant=occurrence.tenant,
                height=height,
                tx_hash=tx_hash,
                attributes=occurrence.attributes,
            )
        )
    return tuple(found)


def moment(text: str) -> datetime:
    """Read a time of the node: RFC 3339 with up to nine fraction digits, cut to microseconds.

    Raises ValueError for anything else.
    """
    head, dot, fraction = text.removesuffix("Z").partition(".")
    digits = fraction[:6].ljust(6, "0") if dot else "000000"
    return datetime.fromisoformat(f"{head}.{digits}+00:00")


def _is_wanted(occurrence: Occurrence, provider_uuid: str) -> bool:
    if not occurrence.lease_uuid:
        return False
    if occurrence.type is EventType.AUTO_CLOSED:
        return bool(occurrence.tenant)
    if occurrence.provider_uuid != provider_uuid:
        return False
    # A withdrawal that only paid leaves the lease as it was.
    return occurrence.type is not EventType.WITHDRAWN or occurrence.attributes.get("auto_closed") == "true"


def _at(values: Sequence[str], position: int) -> str:
    return values[position] if position < len(values) else ""


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
