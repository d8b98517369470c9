"""Admitting a restart or update: recorded before anything is sent, at most one open per lease, within a shared budget.

One transaction: lock the lease, look at what hangs on it, insert the command claimed for the caller's sender, with its
payload as a proposal, and ask for a look. What was admitted is sent, by whoever holds the claim or by who finds it due.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid4

from django.conf import settings
from django.db import connection

from fred import crash, due, metrics
from fred.tasks import DISPATCH, hint
from leases import payload_versions, wake
from leases.status import LeaseState
from placements import dispatch
from placements.callback_urls import callback_urls
from placements.command_status import CommandKind, CommandState
from placements.pushes import Claimed, Table

MOST_OPEN = 1024
"""Open commands of all tenants together."""
MOST_BYTES = 64 * 1024 * 1024
"""Their bytes together: payloads, and so much for each record."""
RECORD_BYTES = 512
RESERVED_BYTES = 2 * 1024 * 1024
"""The last command and the last so many bytes are not for a tenant that has open commands."""
KEPT_PER_LEASE = 1024
"""Commands of a lease whose answers are kept; the oldest settled one goes for a new one."""
VALID_FOR = timedelta(seconds=60)
"""How long a command may be sent before its lease must be looked at again."""


@dataclass(frozen=True, slots=True)
class CommandWish:
    """What a tenant asks for. ``backend`` is asked where the lease is placed nowhere; None: it has to be placed."""

    lease_uuid: UUID
    tenant: str
    kind: CommandKind
    maintenance_id: UUID
    keyed: bool
    payload: bytes = b""
    backend: str | None = None
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class Admitted:
    """The command is recorded. ``claimed`` is to be handed to this process's sender; None: others send it."""

    command: UUID
    claimed: Claimed | None


@dataclass(frozen=True, slots=True)
class Known:
    """The lease has a command of this name already."""

    command: UUID


class NotAdmitted(StrEnum):
    """Why nothing was recorded."""

    LEASE_ENDED = "lease_ended"  # or not ACTIVE yet
    UNPLACED = "unplaced"  # no settled owner, or one that takes no calls
    BUSY = "busy"  # another command, operation or the end of this lease is under way
    RESERVED_COUNT = "reserved_count"  # the tenant may come again when its open commands are done
    RESERVED_BYTES = "reserved_bytes"
    COUNT = "count"  # too much is open already
    BYTES = "bytes"


def admit_command(wish: CommandWish) -> Admitted | Known | NotAdmitted:
    """Record a command for an ACTIVE lease and claim it for this process's sender, if that has a free slot.

    The chain facts must be as new as the caller wants them; they are looked at once more as stored. Whoever sends a
    name again gets the command that has it, whatever it asked for.
    """
    since = time.monotonic()
    found = due.in_transaction(lambda: _admit(wish, since))
    if isinstance(found, NotAdmitted):
        if found in _OF_BUDGET:
            metrics.MAINTENANCE_REFUSALS.labels(found.value).inc()
        return found
    crash.point("command.admitted")
    if isinstance(found, Admitted) and found.claimed is None:
        hint.send(DISPATCH)
    return found


_OF_BUDGET = frozenset({NotAdmitted.COUNT, NotAdmitted.BYTES, NotAdmitted.RESERVED_COUNT, NotAdmitted.RESERVED_BYTES})


@dataclass(frozen=True, slots=True)
class _Standing:
    """How the lease stands, its row locked."""

    chain_state: int | None
    status: str | None
    backend: str | None
    lifecycle_id: UUID | None
    is_busy: bool
    known: UUID | None


_STAND = """
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


def _admit(wish: CommandWish, since: float) -> Admitted | Known | NotAdmitted:
    with wake.news_about([wish.lease_uuid], known=True) as news:
        stands = _stand(wish) if news.locked else None
        if stands is not None and stands.known is not None:
            return Known(stands.known)
        if stands is None or stands.chain_state != LeaseState.ACTIVE:
            return NotAdmitted.LEASE_ENDED
        backend = stands.backend
        if backend is None or stands.status not in {"confirmed", None} or not _takes_calls(backend):
            return NotAdmitted.UNPLACED
        if stands.is_busy:
            return NotAdmitted.BUSY
        if refused := _over_budget(wish):
            return refused
        news.wake([wish.lease_uuid], touched=True)
        return _insert(wish, stands, backend, since)


def _stand(wish: CommandWish) -> _Standing:
    names = {"lease": wish.lease_uuid, "maintenance": wish.maintenance_id, "backend": wish.backend}
    return _Standing(*_row(_STAND, names))


def _takes_calls(backend: str) -> bool:
    found = _row("SELECT EXISTS (SELECT FROM backends_backend WHERE name = %s AND takes_calls)", [backend])
    return bool(found[0])


def _over_budget(wish: CommandWish) -> NotAdmitted | None:
    """Whether this one is too much. Admissions stand in a row from here to their commit, so that none is overlooked."""
    _run("SELECT pg_advisory_xact_lock(hashtext('maintenance budget'))", [])  # read only what is committed after it
    number, size, own = _row(
        """
        SELECT count(*), COALESCE(sum(size_bytes + %s), 0), count(*) FILTER (WHERE tenant = %s)
          FROM placements_maintenancecommand WHERE settled_at IS NULL
        """,
        [RECORD_BYTES, wish.tenant],
    )
    size += len(wish.payload) + RECORD_BYTES
    if number + 1 > MOST_OPEN:
        return NotAdmitted.COUNT
    if size > MOST_BYTES:
        return NotAdmitted.BYTES
    if own and number + 1 > MOST_OPEN - 1:
        return NotAdmitted.RESERVED_COUNT
    if own and size > MOST_BYTES - RESERVED_BYTES:
        return NotAdmitted.RESERVED_BYTES
    return None


def _insert(wish: CommandWish, stands: _Standing, backend: str, since: float) -> Admitted:
    _forget_oldest(wish.lease_uuid)
    lifecycle = stands.lifecycle_id or _new_lifecycle(wish.lease_uuid)
    version = payload_versions.propose(wish.lease_uuid, wish.payload) if wish.kind is CommandKind.UPDATE else None
    claims = dispatch.free(backend) > 0
    id_ = uuid4()
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
            id_,
            wish.lease_uuid,
            wish.kind.value,
            wish.maintenance_id,
            wish.keyed,
            wish.tenant,
            backend,
            callback_urls(settings.FRED.callback_base_url, lifecycle).lifecycle,
            version,
            wish.payload,
            len(wish.payload),
            CommandState.RESERVED.value,
            due.CLAIM_FOR if claims else timedelta(),
            int(claims),
            VALID_FOR,
            wish.request_id,
            wish.lease_uuid,
        ],
    )
    return Admitted(id_, Claimed(id_, 1, backend, since, Table.COMMANDS) if claims else None)


def _new_lifecycle(lease_uuid: UUID) -> UUID:
    """The id that the backend is to report with from now on; a lease that was found there has none yet."""
    id_ = uuid4()
    _run(
        """
        UPDATE placements_placement SET lifecycle_id = %s, lifecycle_retired_at = NULL, revision = revision + 1
         WHERE lease_uuid = %s
        """,
        [id_, lease_uuid],
    )
    return id_


def _forget_oldest(lease_uuid: UUID) -> None:
    gone = _run(
        """
        DELETE FROM placements_maintenancecommand
         WHERE settled_at IS NOT NULL AND id IN (
               SELECT id FROM placements_maintenancecommand
                WHERE lease_uuid = %s ORDER BY admitted_at DESC OFFSET %s)
        """,
        [lease_uuid, KEPT_PER_LEASE - 1],
    )
    metrics.MAINTENANCE_EVICTED.inc(gone)


def _row(statement: str, params: Any) -> tuple[Any, ...]:
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        found: tuple[Any, ...] = cursor.fetchone()
        return found


def _run(statement: str, params: Any) -> int:
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return int(cursor.rowcount)
