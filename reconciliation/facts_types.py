"""What a look knows about a lease when it decides: values only, no database, no clock.

A fact is a value, or one of three that are not: :class:`Absent` (asked, and it is not there), :class:`Unknown` (asked,
no usable answer) and :class:`NotRead` (nobody asked). They are never taken for each other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from leases.status import TERMINAL, LeaseState
from placements.command_status import OPEN
from placements.status import FINAL, OperationState
from reconciliation.command_facts import CommandFact, MaintenanceFact


@dataclass(frozen=True, slots=True)
class Absent:
    """Asked and answered: there is none."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Asked, no usable answer. ``reason`` is shown to operators; ``is_own``: the source answers for other leases.

    ``state`` is that of a lease of another provider. ``behind``: an answer came, from so many blocks before the news.
    """

    reason: str
    is_own: bool = False
    state: LeaseState | None = None
    behind: int = 0


@dataclass(frozen=True, slots=True)
class NotRead:
    """Nobody asked, because nothing needed it."""


@dataclass(frozen=True, slots=True)
class ListedLease:
    """The lease as a list, or an earlier read, gave it. Enough to go on with; never enough to destroy by."""

    state: LeaseState


@dataclass(frozen=True, slots=True)
class ExactLease:
    """The lease as one read by its uuid gave it in this look, or a stored terminal state, which is exact for ever."""

    state: LeaseState


ChainFact = ListedLease | ExactLease | Absent | Unknown | NotRead


@dataclass(frozen=True, slots=True)
class PayloadFact:
    """The stored payload: digest of the bytes as they are now, and whether that is the digest they came with."""

    sha256: bytes
    size: int
    intact: bool


@dataclass(frozen=True, slots=True)
class OperationFact:
    """The lease's open operation."""

    id: UUID
    backend: str
    state: OperationState
    created_at: datetime
    valid_until: datetime | None = None
    due_at: datetime | None = None
    first_dispatched_at: datetime | None = None
    last_dispatched_at: datetime | None = None
    on_wire_until: datetime | None = None
    dispatch_count: int = 0
    refusal: str = ""
    error: str = ""
    is_restore: bool = False
    """Whether a tenant asked for it, to have what a backend keeps of another lease put under this one."""

    @property
    def has_outcome(self) -> bool:
        """Whether the backend's part is over; the lease has yet to draw the consequence."""
        return self.state in FINAL

    def is_on_wire(self, now: datetime) -> bool:
        """Whether a call may be under way at this moment, so that its effect may still come."""
        return self.on_wire_until is not None and self.on_wire_until > now and not self.has_outcome


@dataclass(frozen=True, slots=True)
class HistoryFact:
    """The lease's settled operations: failed tries since the last success, and when the last one ended."""

    failures: int = 0
    last_ended_at: datetime | None = None
    last_refusal: str = ""
    succeeded: bool = False


@dataclass(frozen=True, slots=True)
class PlacementFact:
    """The backend that the lease belongs to."""

    backend: str
    status: str
    set_at: datetime
    lifecycle_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class ProvisionFact:
    """What one backend says of the lease, by a point read or in a complete walk of its list."""

    backend: str
    status: str
    reason: str = ""
    is_ours: bool = True


PointFact = ProvisionFact | Absent | Unknown | NotRead


@dataclass(frozen=True, slots=True)
class ActionFact:
    """An acknowledge, reject or close that was asked for."""

    verb: str
    state: str
    reason: str = ""
    valid_until: datetime | None = None
    due_at: datetime | None = None
    last_error: str = ""

    @property
    def is_open(self) -> bool:
        """Whether a lane has yet to bring it to an end."""
        return self.state in {"queued", "in_tx"}


@dataclass(frozen=True, slots=True)
class TeardownFact:
    """One backend's part in tearing the lease down."""

    backend: str
    state: str
    due_at: datetime | None = None
    done_at: datetime | None = None
    last_error: str = ""

    @property
    def is_parked(self) -> bool:
        """Whether it was put aside until its backend takes calls again."""
        return self.state == "parked"

    @property
    def is_done(self) -> bool:
        """Whether the backend said that it has removed what it held."""
        return self.state == "done"


@dataclass(frozen=True, slots=True)
class CallbackFact:
    """A callback that moved no operation and that no look has used yet."""

    id: int
    selector_id: UUID | None
    status: str
    error: str = ""
    retained: bool = False
    received_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class BackendFact:
    """A backend as far as it matters for giving it work."""

    name: str
    skus: frozenset[str]
    is_default: bool = False
    configured: bool = True
    fenced: bool = False
    drained: bool = False
    is_understood: bool = True
    """Whether its dialect is known, and is one that things are pushed in."""
    breaker_open: bool = False
    answers: bool = True
    walked_at: datetime | None = None

    @property
    def takes_calls(self) -> bool:
        """Whether anything may be pushed to it."""
        return self.configured and not self.fenced and self.is_understood

    @property
    def takes_leases(self) -> bool:
        """Whether leases that are nowhere yet may be given to it."""
        return self.takes_calls and not self.drained


@dataclass(frozen=True, slots=True)
class WorldFact:
    """What all leases of a batch share."""

    backends: tuple[BackendFact, ...] = ()
    head_age: timedelta | None = None
    trusted_from_at: datetime | None = None
    """Since when, by the database's clock, this database saw everything."""
    trusted_block_at: datetime | None = None
    """The same moment by the clock of the chain's blocks."""
    walked_all_since: datetime | None = None
    """Begin of the newest complete walk of that backend whose newest walk is oldest; None: one was never walked."""

    def backend(self, name: str) -> BackendFact | None:
        """The backend of this name, if the configuration still has it."""
        return next((one for one in self.backends if one.name == name and one.configured), None)


class NeedKind(StrEnum):
    """Facts that ``decide`` may ask for."""

    EXACT_READ = "exact_read"
    POINT_READ = "point_read"
    MAINTENANCE_READ = "maintenance_read"


@dataclass(frozen=True, slots=True)
class LeaseFacts:
    """Everything known about one lease, read in one look."""

    uuid: UUID
    chain: ChainFact
    tenant: str = ""
    sku: str = ""
    created_at: datetime | None = None
    touched_at: datetime | None = None
    phase: str = "observed"
    reason: str = ""
    meta_hash: bytes = b""
    payload: PayloadFact | Absent | Unknown | NotRead = field(default_factory=NotRead)
    operation: OperationFact | None = None
    history: HistoryFact = field(default_factory=HistoryFact)
    placement: PlacementFact | None = None
    point: PointFact = field(default_factory=NotRead)
    listed: tuple[ProvisionFact, ...] = ()
    """What complete walks list, begun after anything last changed for the lease (``touched_at``)."""
    retained_at: tuple[str, ...] = ()
    absent_at: frozenset[str] = frozenset()
    """Backends whose complete walk, begun after ``touched_at``, does not list the lease."""
    commands: tuple[CommandFact, ...] = ()
    """Maintenance commands of which it is not known how they went, oldest first."""
    maintenance: MaintenanceFact | Absent | Unknown | NotRead = field(default_factory=NotRead)
    actions: tuple[ActionFact, ...] = ()
    teardowns: tuple[TeardownFact, ...] = ()
    callbacks: tuple[CallbackFact, ...] = ()
    last_status: str = ""
    """Status of the newest event that subscribers got; empty: none yet."""
    world: WorldFact = field(default_factory=WorldFact)

    @property
    def state(self) -> LeaseState | None:
        """The chain state as far as it is known."""
        return self.chain.state if isinstance(self.chain, ListedLease | ExactLease) else None

    @property
    def is_exact(self) -> bool:
        """Whether the chain state may be destroyed by."""
        return isinstance(self.chain, ExactLease)

    @property
    def is_ended(self) -> bool:
        """Whether the chain says, exactly, that the lease is over."""
        return isinstance(self.chain, ExactLease) and self.chain.state in TERMINAL

    @property
    def is_pending(self) -> bool:
        """Whether the lease still waits for its acknowledgement."""
        return self.state is LeaseState.PENDING

    @property
    def is_active(self) -> bool:
        """Whether the lease is acknowledged and billed."""
        return self.state is LeaseState.ACTIVE

    @property
    def waits_for_payload(self) -> bool:
        """Whether its tenant has yet to upload what the lease's hash announces."""
        return bool(self.meta_hash) and isinstance(self.payload, Absent)

    @property
    def topic(self) -> str:
        """The kind of news that a look at this lease most likely follows; a label of metrics, nothing more."""
        if self.is_ended:
            return "events.lease.expired" if self.state is LeaseState.EXPIRED else "events.lease.closed"
        if self.operation is not None or self.callbacks or self.is_active:
            return "events.backend.callback"
        return "events.payload.received" if isinstance(self.payload, PayloadFact) else "events.lease.created"

    @property
    def command(self) -> CommandFact | None:
        """The open maintenance command: its tenant's answer is not decided yet."""
        return next((one for one in self.commands if one.state in OPEN), None)

    def action(self, verb: str) -> ActionFact | None:
        """The action of this verb, open or not."""
        return next((one for one in self.actions if one.verb == verb), None)

    def is_trusted(self) -> bool:
        """Whether this database saw the lease from its birth, so that having no rows for it means something."""
        trusted = self.world.trusted_block_at
        return trusted is not None and self.created_at is not None and self.created_at >= trusted

    def is_walked(self) -> bool:
        """Whether every backend was walked to the end since this database is trusted and since the lease changed."""
        since, trusted = self.world.walked_all_since, self.world.trusted_from_at
        return (
            since is not None
            and trusted is not None
            and since > trusted
            and (self.touched_at is None or since > self.touched_at)
        )


@dataclass(frozen=True, slots=True)
class Limits:
    """Times that decisions use; all of them settings."""

    callback_timeout: timedelta = timedelta(minutes=10)
    watch_first: timedelta = timedelta(seconds=5)
    watch_longest: timedelta = timedelta(seconds=60)
    confirm_after: timedelta = timedelta(minutes=2)
    source_retry: timedelta = timedelta(seconds=10)
    stale_retry: timedelta = timedelta(seconds=1)
    head_may_age: timedelta = timedelta(seconds=30)
    longest: timedelta = timedelta(seconds=60)
    maintenance_timeout: timedelta = timedelta(minutes=10)
    """How long a backend may show nothing of a restart or update that it may have got."""
    undelivered: timedelta = timedelta(hours=1)
    """How long one may wait for its backend to be there."""
    late_push: timedelta = timedelta(seconds=35)
    """After the last push of an operation, the longest time in which its request may still reach the backend."""
    at_once: timedelta = timedelta()
    retry_s: tuple[int, ...] = (1, 2, 5, 10, 30, 60)
    late_retry: timedelta = timedelta(minutes=5)

    def back_off(self, failures: int) -> timedelta:
        """How long to wait after this many failed tries."""
        if failures <= 0:
            return timedelta()
        if failures <= len(self.retry_s):
            return timedelta(seconds=self.retry_s[failures - 1])
        return self.late_retry
