"""Waiting for the answer of a maintenance command, whoever sends it: this process's sender, another's, or a worker."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from uuid import UUID

from django.db import connection

from backends.client import Accepted
from fred.connections import let_go
from placements import dispatch
from placements.awaited import Met, Silent, Waiter, expected
from placements.command_status import OPEN, CommandKind, CommandState
from placements.pushes import Claimed

POLL_S = 0.25
"""How often the row is looked at for what another process wrote."""


@dataclass(frozen=True, slots=True)
class AwaitedCommand:
    """A command as its row says, and what its request met.

    ``took``: this process heard the backend take it. ``unwritten``: this process sent it, and can't say what was
    written of that.
    """

    id: UUID
    kind: CommandKind
    tenant: str
    payload_sha256: bytes
    state: CommandState
    refusal: str
    error: str
    took: bool = False
    unwritten: bool = False

    @property
    def is_open(self) -> bool:
        """Whether the command may still run, or run again."""
        return self.state in OPEN

    @property
    def is_answered(self) -> bool:
        """Whether waiting is in vain: its answer is decided, or it is known that it can't be decided soon."""
        return not self.is_open or bool(self.refusal)


_COLUMNS = "SELECT id, kind, tenant, payload_sha256, state, refusal, error FROM placements_maintenancecommand"


def find(lease_uuid: UUID, maintenance_id: UUID) -> AwaitedCommand | None:
    """The command of this name, if the lease has one."""
    return _read(f"{_COLUMNS} WHERE lease_uuid = %s AND maintenance_id = %s", lease_uuid, maintenance_id)


def outcome(command: UUID, claimed: Claimed | None, *, until: float) -> AwaitedCommand | None:
    """Wait for a command, having it sent first if it is claimed for us; None when it is there no more.

    ``until`` is a time of ``time.monotonic()``. What has not left by then does not leave from here; it stays open, and
    somebody sends it.
    """
    asleep = threading.Event()
    with expected(command) as waiter:
        if claimed is not None:
            dispatch.take([claimed])
        while True:
            found = _look(command, waiter, is_ours=claimed is not None)
            if found is None or found.is_answered or found.took or found.unwritten:
                return found
            left = until - time.monotonic()
            if left <= 0:
                break
            let_go()
            pause = min(POLL_S, left)
            if waiter.outcome is None:
                waiter.wait(time.monotonic() + pause)
            else:  # given back unsent: somebody else will have it
                asleep.wait(pause)
        if claimed is not None:
            waiter.leave()
        return _look(command, waiter, is_ours=claimed is not None)


def _look(command: UUID, waiter: Waiter, *, is_ours: bool) -> AwaitedCommand | None:
    told = waiter.outcome  # before the row: what is told is written
    found = _read(f"{_COLUMNS} WHERE id = %s", command)
    if found is None:
        return None
    took = isinstance(told, Met) and isinstance(told.answer.result, Accepted)
    unwritten = is_ours and isinstance(told, Silent) and told.sent and found.is_open
    return replace(found, took=took, unwritten=unwritten)


def _read(statement: str, *params: UUID) -> AwaitedCommand | None:
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        row = cursor.fetchone()
    if row is None:
        return None
    id_, kind, tenant, digest, state, refusal, error = row
    return AwaitedCommand(id_, CommandKind(kind), tenant, bytes(digest), CommandState(state), refusal, error)
