"""What a look knows of a lease's maintenance commands, and of what their backend shows of them: values only. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from placements.command_status import CommandKind, CommandState


@dataclass(frozen=True, slots=True)
class CommandFact:
    """A restart or update of which it is not known yet how it went."""

    id: UUID
    kind: CommandKind
    backend: str
    state: CommandState
    admitted_at: datetime
    due_at: datetime | None = None
    first_dispatched_at: datetime | None = None
    on_wire_until: datetime | None = None
    valid_until: datetime | None = None
    refusal: str = ""
    payload_sha256: bytes = b""

    @property
    def is_update(self) -> bool:
        """Whether it brings a new payload."""
        return self.kind is CommandKind.UPDATE

    def is_on_wire(self, now: datetime) -> bool:
        """Whether its call may be under way at this moment."""
        is_sent = self.state is CommandState.IN_DOUBT
        return is_sent and self.on_wire_until is not None and self.on_wire_until > now


@dataclass(frozen=True, slots=True)
class ReleaseFact:
    """A version of the lease's workload, as its backend lists it. ``sha256`` is of its manifest; empty: not told."""

    version: int
    status: str
    created_at: datetime | None = None
    message: str = ""
    sha256: bytes = b""


@dataclass(frozen=True, slots=True)
class MaintenanceFact:
    """What the backend holds of a lease: its state, and its releases, oldest first."""

    status: str
    releases: tuple[ReleaseFact, ...] = ()
