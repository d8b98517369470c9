"""What a look can decide: verbs, as values. ``act.py`` has one function for each that changes anything."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from placements.command_status import CommandState
from placements.status import OperationState
from reconciliation.facts_types import NeedKind


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing to do until there is news."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do now; look again after the decision's interval."""


@dataclass(frozen=True, slots=True)
class Need:
    """Fetch this kind of fact and decide again."""

    kind: NeedKind


@dataclass(frozen=True, slots=True)
class StartProvision:
    """Give the lease to a backend: the one named, or the one that routing picks."""

    backend: str | None = None


@dataclass(frozen=True, slots=True)
class Push:
    """Make the operation due at its backend again: same id, same request, new validity."""

    operation: UUID


@dataclass(frozen=True, slots=True)
class RecordOutcome:
    """A read of the backend, or the clock, says what the callback did not: move the operation."""

    operation: UUID
    to: OperationState
    refusal: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """End the operation: nothing of it is at its backend. The lease may go elsewhere."""

    operation: UUID
    refusal: str


@dataclass(frozen=True, slots=True)
class Settle:
    """Draw the consequence of the operation's outcome: close it and tell the subscribers."""

    operation: UUID
    event: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class EndWithLease:
    """The lease ended first: close the operation, with an event where its failure was not told yet."""

    operation: UUID
    event: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Ask a lane to acknowledge the lease. ``adopt`` names a backend that was found to hold it already."""

    operation: UUID | None = None
    adopt: str | None = None


@dataclass(frozen=True, slots=True)
class Adopt:
    """Take the one backend that lists the lease as its owner."""

    backend: str


@dataclass(frozen=True, slots=True)
class Reject:
    """Ask a lane to reject the lease, which was read exactly as PENDING, with this reason."""

    reason: str
    operation: UUID | None = None


@dataclass(frozen=True, slots=True)
class Close:
    """Ask a lane to close the lease, which was read exactly as ACTIVE, with this reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class DropActions:
    """The lease ended: what waits to be signed for it is moot."""


@dataclass(frozen=True, slots=True)
class SendTeardown:
    """The lease was read exactly as ended: have these backends remove what they hold."""

    backends: tuple[str, ...]
    cause: str


@dataclass(frozen=True, slots=True)
class ParkTeardown:
    """These backends are closed to calls: put their parts of the removal aside."""

    backends: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ResumeTeardown:
    """These backends take calls again: go on with what was put aside."""

    backends: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Announce:
    """Tell the subscribers (status, error) and mark these callbacks as used."""

    events: tuple[tuple[str, str], ...]
    callbacks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How far a maintenance command is known to have come."""

    command: UUID
    to: CommandState
    refusal: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Conclude:
    """Reports, or a read of the backend, say how commands went: tell the subscribers, mark these callbacks as used."""

    results: tuple[CommandResult, ...]
    events: tuple[tuple[str, str], ...] = ()
    callbacks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PushCommand:
    """Let a command that was never sent be sent for another while."""

    command: UUID


@dataclass(frozen=True, slots=True)
class EndCommands:
    """The lease ended first: these commands end with it, and of accepted ones nothing more is expected."""

    ended: tuple[CommandResult, ...]


Act = (
    Rest
    | Wait
    | Need
    | StartProvision
    | Push
    | RecordOutcome
    | GiveUp
    | Settle
    | EndWithLease
    | Acknowledge
    | Adopt
    | Reject
    | Close
    | DropActions
    | SendTeardown
    | ParkTeardown
    | ResumeTeardown
    | Announce
    | Conclude
    | PushCommand
    | EndCommands
)


@dataclass(frozen=True, slots=True)
class Decision:
    """An act, what the lease is called from now on (None: as before), why it waits, and when to look again.

    ``after`` None means at rest until news; zero means look again at once. ``failed`` counts as a failed attempt of
    this lease: its back-off replaces ``after``. ``spread`` lets up to three times ``after`` pass, at random, so that
    those who wait for one source do not come back together.
    """

    act: Act
    phase: str | None = None
    reason: str = ""
    after: timedelta | None = None
    failed: bool = False
    spread: bool = False
