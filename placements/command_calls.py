"""What a maintenance command says to its backend, what the answer means, and how claimed commands become pushes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from backends.change_outcomes import classify_maintenance
from backends.change_requests import restart_request, update_request
from backends.client import Ambiguous, BackendTarget
from backends.contract import Dialect
from fred.http import Request, Response
from leases import payload_versions
from placements.calls import Met, Read, Unproven
from placements.command_sql import CommandRow
from placements.command_status import CommandKind
from placements.pushes import Push, Table, Unsendable, nowhere, push_of, sorted_out


@dataclass(frozen=True, slots=True)
class Declined(Ambiguous):
    """A 400 of an older backend that can't be read as a refusal, and yet is one: nothing was begun."""


@dataclass(frozen=True, slots=True)
class Maintenance:
    """A restart, or an update with its payload. It is sent once: an older backend runs it again each time."""

    kind: CommandKind
    callback_url: str
    keyed: bool
    payload: bytes = b""

    @property
    def operation(self) -> str:
        """What metrics and logs call it."""
        return self.kind.value

    def limit(self, target: BackendTarget) -> float:
        """The backend's own."""
        return target.timeout

    def request(self, target: BackendTarget, lease_uuid: UUID, *, tag: object) -> Request:
        """`POST /restart` or `POST /update`."""
        if self.kind is CommandKind.RESTART:
            return restart_request(target, lease_uuid, callback_url=self.callback_url, tag=tag)
        return update_request(target, lease_uuid, self.payload, callback_url=self.callback_url, tag=tag)

    def meaning(self, response: Response, *, dialect: Dialect, repeated: bool) -> Met | Unproven:
        """See `classify_maintenance`. Who sent a command key gets the newer table's answers in both dialects.

        Without one, an older backend's 400 is an error to the caller and to the breaker; but it is said before any
        effect, so that nothing of the command is left open, whatever the body holds.
        """
        del repeated
        told = Dialect.CURRENT if self.keyed else dialect
        met = classify_maintenance(response, operation=self.operation, dialect=told)
        if told is Dialect.V0_13 and response.status == 400 and isinstance(met, Ambiguous):
            return Declined(met.reason, pulse=met.pulse, malformed=met.malformed, category=met.category)
        return met

    def resolve(self, unproven: Unproven, *, read: Read) -> Met:  # noqa: ARG002 - nothing is read after a command
        """Raises TypeError: no answer needs it."""
        raise TypeError(unproven)


def of_commands(
    rows: Iterable[CommandRow], targets: Mapping[str, BackendTarget], *, confirmed_at: Mapping[UUID, float]
) -> tuple[list[Push], list[Unsendable]]:
    """Make pushes of commands that were taken, with their payloads. Reads the database."""
    rows = list(rows)
    versions = [row.payload_id for row in rows if row.payload_id is not None]
    bodies = payload_versions.bodies(versions) if versions else {}
    made: list[tuple[Push, str]] = []
    for row in rows:
        where = targets.get(row.backend) or nowhere(row.backend)
        payload = bodies.get(row.payload_id) if row.payload_id is not None else b""
        call = Maintenance(CommandKind(row.kind), row.callback_url, row.keyed, payload or b"")
        push = push_of(row, call, where, table=Table.COMMANDS, since=confirmed_at[row.id], first=True)
        push.request_id = row.request_id
        made.append((push, "the payload of this update is gone" if payload is None else ""))
    return sorted_out(made)
