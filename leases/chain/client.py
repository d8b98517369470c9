"""What the product asks of a chain, and the facts it gets back.

`ChainClient` is the contract, `leases.chain.cosmos.CosmosClient` the real one. Everything here is plain values: no
gRPC, no Django. Heights are block heights; times are aware and in UTC, cut to microseconds; amounts are whole base
units of their denomination.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol
from uuid import UUID

from leases.status import TERMINAL, LeaseState


class Doubt(StrEnum):
    """Why a read gave no fact."""

    SILENT = "silent"  # no answer, or an error: the chain as a source is in question
    FOREIGN = "foreign"  # an answer, about a lease of another provider
    UNREADABLE = "unreadable"  # an answer that this build cannot use, such as a state number it does not know


@dataclass(frozen=True, slots=True)
class Unknown:
    """Asked, and no fact came of it. Never a reason to destroy anything.

    `state` is that of a lease of another provider: enough to answer who asks about it, never stored.
    """

    reason: str
    doubt: Doubt = Doubt.SILENT
    state: LeaseState | None = None


@dataclass(frozen=True, slots=True)
class Absent:
    """The node says there is no such thing, at this height or later.

    The chain never deletes a lease: an absent lease means another chain, a chain that was reset, or a node behind.
    """

    height: int


@dataclass(frozen=True, slots=True)
class Coin:
    """An amount of one denomination, in whole base units."""

    denom: str
    amount: int


@dataclass(frozen=True, slots=True)
class LeaseItem:
    """One line of a lease. The price is per second and per unit, fixed when the lease was created.

    `service_name` is empty for all items of a lease or set and unique for all. `custom_domain` stays set after the
    lease ended.
    """

    sku_uuid: UUID
    quantity: int
    locked_price: Coin
    service_name: str = ""
    custom_domain: str = ""


@dataclass(frozen=True, slots=True)
class ChainLease:
    """A lease as the chain holds it (`liftedinit.billing.v1.Lease`).

    A time is None until it happened. An empty `meta_hash` means that no payload is expected.
    """

    uuid: UUID
    tenant: str
    provider_uuid: UUID
    state: LeaseState
    items: tuple[LeaseItem, ...]
    created_at: datetime | None
    last_settled_at: datetime | None = None
    acknowledged_at: datetime | None = None
    closed_at: datetime | None = None
    rejected_at: datetime | None = None
    expired_at: datetime | None = None
    meta_hash: bytes = b""
    rejection_reason: str = ""
    closure_reason: str = ""
    min_lease_duration_seconds: int = 0

    @property
    def is_terminal(self) -> bool:
        """Whether it has ended; nothing leaves such a state."""
        return self.state in TERMINAL


@dataclass(frozen=True, slots=True)
class ExactLease:
    """A lease read by its uuid, at this height. Only a single read makes one: a list never does."""

    lease: ChainLease
    height: int


@dataclass(frozen=True, slots=True)
class LeasePage:
    """One page of a listing, with the height it was read at.

    `unreadable` are the uuids of rows this build cannot use (an unknown state number): they exist.
    """

    leases: tuple[ChainLease, ...]
    height: int
    unreadable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Account:
    """Number and committed sequence of an account at this height (-1: not said). The mempool may count further."""

    address: str
    number: int
    sequence: int
    height: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True)
class BlockHead:
    """The newest block of the node that was asked."""

    height: int
    time: datetime
    chain_id: str = ""


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider as registered on chain (`liftedinit.sku.v1.Provider`)."""

    uuid: UUID
    address: str
    payout_address: str
    is_active: bool
    api_url: str


@dataclass(frozen=True, slots=True)
class Broadcast:
    """What the node's mempool said. Code 0 means accepted there, nothing more."""

    code: int
    codespace: str
    tx_hash: str
    raw_log: str

    @property
    def is_accepted(self) -> bool:
        """Whether this node's mempool holds the transaction now."""
        return self.code == 0


@dataclass(frozen=True, slots=True)
class TxResult:
    """An included transaction. A code other than 0 means: executed and failed, fee and sequence are gone."""

    tx_hash: str
    height: int
    code: int
    codespace: str
    raw_log: str
    gas_wanted: int
    gas_used: int
    data: str = ""  # hexadecimal TxMsgData

    @property
    def is_success(self) -> bool:
        """Whether all its messages took effect."""
        return self.code == 0


class ChainClient(Protocol):
    """A chain, as this provider needs it.

    Synchronous and safe to share between the threads of a process; connects lazily, in the process that calls.
    Every call has a time limit. Reads of single things answer with values and never raise for a silent node;
    the rest raises `ChainUnavailable` when there is no usable answer.
    """

    @property
    def endpoint(self) -> str:
        """Host and port of the node that is asked now."""
        ...

    def lease(self, lease_uuid: UUID) -> ExactLease | Absent | Unknown:
        """Read one lease exactly. A lease of another provider is `Unknown` with `Doubt.FOREIGN`."""
        ...

    def leases(self, lease_uuids: Sequence[UUID]) -> Mapping[UUID, ExactLease | Absent | Unknown]:
        """Read many leases exactly, side by side. Every uuid asked for has an entry.

        Once the node has stopped answering the rest is `Unknown` at once.
        """
        ...

    def list_leases(self, provider_uuid: UUID, state: LeaseState | None = None) -> Iterator[LeasePage]:
        """Walk a provider's leases of one state, or of all.

        A lease may appear twice. The listing is complete only if the iterator ends without an error
        (`ChainUnavailable`, and `ListingIncomplete` of that kind); until then only what is present is known.
        """
        ...

    def account(self, address: str) -> Account:
        """Read number and sequence. Raises `AccountAbsent`, `AccountUnreadable`, `ChainUnavailable`."""
        ...

    def balance(self, address: str, denom: str) -> int:
        """Return a balance in base units; 0 for an unknown address. Raises `ChainUnavailable`, `CallRefused`."""
        ...

    def has_grant(self, granter: str, grantee: str, *, type_url: str) -> bool:
        """Whether `grantee` may send messages of this type for `granter`. Raises `ChainUnavailable`, `CallRefused`."""
        ...

    def simulate(self, tx_bytes: bytes) -> int:
        """Return the gas this transaction would use.

        Raises `SimulationRefused` with the node's text, `GasUnknown`, `CallRefused`, `ChainUnavailable`.
        """
        ...

    def broadcast(self, tx_bytes: bytes) -> Broadcast:
        """Hand signed bytes to the node's mempool. After `ChainUnavailable` they may have arrived."""
        ...

    def tx(self, tx_hash: str) -> TxResult | Absent | Unknown:
        """Look an included transaction up by its hash. `Absent` holds a height at which it was not found."""
        ...

    def latest_height(self) -> BlockHead:
        """Read the newest block of the node. Raises `ChainUnavailable`."""
        ...

    def block_time(self, height: int) -> datetime:
        """Read when a block was made. Raises `ChainUnavailable`, and `CallRefused` for one the node does not hold."""
        ...

    def is_syncing(self) -> bool:
        """Whether the node is still catching up, so that its word is old. Raises `ChainUnavailable`."""
        ...

    def provider(self, provider_uuid: UUID) -> Provider | Absent | Unknown:
        """Read a provider's registration."""
        ...

    def close(self) -> None:
        """Give up the connection of this process; the next call makes a new one."""
        ...
