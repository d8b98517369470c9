"""Statements that admit a restart or update. They run with the lease row locked."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from django.db import connection

from fred.due import CLAIM_FOR
from placements.command_status import CommandKind, CommandState


@dataclass(frozen=True, slots=True)
class CommandTarget:
    """The lease that a command is for. ``known`` is the command that it has of this name already."""

    chain_state: int | None
    status: str | None
    backend: str | None
    lifecycle_id: UUID | None
    is_busy: bool
    known: UUID | None


@dataclass(frozen=True, slots=True)
class OpenCommands:
    """What is open of all tenants together, and how many of those are this tenant's."""

    number: int
    size_bytes: int
    own: int


@dataclass(frozen=True, slots=True)
class NewCommand:
    """A command to be written down; ``is_claimed``: for the sender of the process that writes it."""

    id: UUID
    lease_uuid: UUID
    kind: CommandKind
    maintenance_id: UUID
    keyed: bool
    tenant: str
    backend: str
    callback_url: str
    payload_id: int | None
    payload: bytes
    request_id: str
    is_claimed: bool


_TARGET: Final = """
    SELECT l.chain_state, p.status, COALESCE(p.backend, %(backend)s),
           CASE WHEN p.lifecycle_retired_at IS NULL THEN p.lifecycle_id END,
           EXISTS (SELECT FROM placements_maintenancecommand WHERE lease_uuid = l.uuid AND settled_at IS NULL)
           OR EXISTS (SELECT FROM placements_operation
                       WHERE settled_at IS NULL AND (lease_uuid = l.uuid OR source_lease_uuid = l.uuid))
           OR EXISTS (SELECT FROM leases_chainaction
                       WHERE lease_uuid = l.uuid AND verb = 'close' AND state IN ('queued', 'in_tx'))
           OR EXISTS (SELECT FROM placements_teardown WHERE lease_uuid = l.uuid AND state <> 'done'),
           (SELECT id FROM placements_maintenancecommand
             WHERE lease_uuid = l.uuid AND maintenance_id = %(maintenance)s)
      FROM leases_lease AS l LEFT JOIN placements_placement AS p ON p.lease_uuid = l.uuid
     WHERE l.uuid = %(lease)s
"""


def target(lease_uuid: UUID, maintenance_id: UUID, *, backend: str | None) -> CommandTarget:
    """How this lease stands; ``backend`` is where it is asked for if it is placed nowhere."""
    return CommandTarget(
        *_row(_TARGET, {"lease": lease_uuid, "maintenance": maintenance_id, "backend": backend}),
    )


def takes_calls(backend: str) -> bool:
    """Whether this backend may be called at all."""
    found = _row("SELECT EXISTS (SELECT FROM backends_backend WHERE name = %s AND takes_calls)", [backend])
    return bool(found[0])


def queue_up() -> None:
    """Admissions stand in a row from here to their commit, so that none is overlooked by the next."""
    _run("SELECT pg_advisory_xact_lock(hashtext('maintenance budget'))", [])


def open_commands(tenant: str, *, record_bytes: int) -> OpenCommands:
    """Count what is open; each command takes so many bytes beside its payload."""
    return OpenCommands(
        *_row(
            """
            SELECT count(*), COALESCE(sum(size_bytes + %s), 0), count(*) FILTER (WHERE tenant = %s)
              FROM placements_maintenancecommand WHERE settled_at IS NULL
            """,
            [record_bytes, tenant],
        )
    )


def insert(command: NewCommand, *, valid_for: timedelta) -> None:
    """Write a command down, due at once or claimed, later than every other of its lease."""
    _run(
        """
        INSERT INTO placements_maintenancecommand
               (id, lease_uuid, kind, maintenance_id, keyed, tenant, backend, callback_url, admitted_at, payload_id,
                payload_sha256, size_bytes, state, refusal, error, due_at, epoch, attempts, valid_until, request_id)
        SELECT %s, %s, %s, %s, %s, %s, %s, %s,
               GREATEST(clock_timestamp(), max(admitted_at) + interval '1 microsecond'), %s, sha256(%s), %s,
               %s, '', '', now() + %s, 1, %s, now() + %s, %s
          FROM placements_maintenancecommand WHERE lease_uuid = %s
        """,
        [
            command.id,
            command.lease_uuid,
            command.kind.value,
            command.maintenance_id,
            command.keyed,
            command.tenant,
            command.backend,
            command.callback_url,
            command.payload_id,
            command.payload,
            len(command.payload),
            CommandState.RESERVED.value,
            CLAIM_FOR if command.is_claimed else timedelta(),
            int(command.is_claimed),
            valid_for,
            command.request_id,
            command.lease_uuid,
        ],
    )


def set_lifecycle(lease_uuid: UUID, lifecycle_id: UUID) -> None:
    """Give a placement the id that its backend is to report with from now on."""
    _run(
        """
        UPDATE placements_placement SET lifecycle_id = %s, lifecycle_retired_at = NULL, revision = revision + 1
         WHERE lease_uuid = %s
        """,
        [lifecycle_id, lease_uuid],
    )


def forget_oldest(lease_uuid: UUID, *, kept: int) -> int:
    """Delete settled commands of a lease beyond its newest so many; return how many went."""
    return _run(
        """
        DELETE FROM placements_maintenancecommand
         WHERE settled_at IS NOT NULL AND id IN (
               SELECT id FROM placements_maintenancecommand
                WHERE lease_uuid = %s ORDER BY admitted_at DESC OFFSET %s)
        """,
        [lease_uuid, kept],
    )


def _row(statement: str, params: Any) -> tuple[Any, ...]:
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        found: tuple[Any, ...] = cursor.fetchone()
        return found


def _run(statement: str, params: Any) -> int:
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return int(cursor.rowcount)
