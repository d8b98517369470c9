"""Admitting a restart or update: recorded before anything is sent, at most one open per lease, within a shared budget.

One transaction: lock the lease, look at what hangs on it, insert the command claimed for the caller's sender, with its
payload as a proposal, and ask for a look. What was admitted is sent, by whoever holds the claim or by who finds it due.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from uuid import UUID, uuid4

from django.conf import settings

from fred import counting, crash, due, metrics
from fred.tasks import DISPATCH, hint
from leases import payload_versions, wake
from leases.status import LeaseState
from placements import dispatch
from placements.callback_urls import callback_urls
from placements.command_status import CommandKind
from placements.pushes import Claimed, Table
from reconciliation import command_admission_sql as sql

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


def _admit(wish: CommandWish, since: float) -> Admitted | Known | NotAdmitted:
    with wake.news_about([wish.lease_uuid], known=True) as news:
        target = sql.target(wish.lease_uuid, wish.maintenance_id, backend=wish.backend) if news.locked else None
        if target is not None and target.known is not None:
            return Known(target.known)
        if target is None or target.chain_state != LeaseState.ACTIVE:
            return NotAdmitted.LEASE_ENDED
        backend = target.backend
        if backend is None or target.status not in {"confirmed", None} or not sql.takes_calls(backend):
            return NotAdmitted.UNPLACED
        if target.is_busy:
            return NotAdmitted.BUSY
        if refused := _over_budget(wish):
            return refused
        news.wake([wish.lease_uuid], touched=True)
        return _insert(wish, target, backend, since)


def _over_budget(wish: CommandWish) -> NotAdmitted | None:
    """Whether this one is too much."""
    sql.queue_up()  # read only what is committed after it
    found = sql.open_commands(wish.tenant, record_bytes=RECORD_BYTES)
    size = found.size_bytes + len(wish.payload) + RECORD_BYTES
    if found.number + 1 > MOST_OPEN:
        return NotAdmitted.COUNT
    if size > MOST_BYTES:
        return NotAdmitted.BYTES
    if found.own and found.number + 1 > MOST_OPEN - 1:
        return NotAdmitted.RESERVED_COUNT
    if found.own and size > MOST_BYTES - RESERVED_BYTES:
        return NotAdmitted.RESERVED_BYTES
    return None


def _insert(wish: CommandWish, target: sql.CommandTarget, backend: str, since: float) -> Admitted:
    counting.count(metrics.MAINTENANCE_EVICTED, sql.forget_oldest(wish.lease_uuid, kept=KEPT_PER_LEASE - 1))
    lifecycle = target.lifecycle_id or _new_lifecycle(wish.lease_uuid)
    command = sql.NewCommand(
        id=uuid4(),
        lease_uuid=wish.lease_uuid,
        kind=wish.kind,
        maintenance_id=wish.maintenance_id,
        keyed=wish.keyed,
        tenant=wish.tenant,
        backend=backend,
        callback_url=callback_urls(settings.FRED.callback_base_url, lifecycle).lifecycle,
        payload_id=_proposed(wish),
        payload=wish.payload,
        request_id=wish.request_id,
        is_claimed=dispatch.free(backend) > 0,
    )
    sql.insert(command, valid_for=VALID_FOR)
    claimed = Claimed(command.id, 1, backend, since, Table.COMMANDS) if command.is_claimed else None
    return Admitted(command.id, claimed)


def _proposed(wish: CommandWish) -> int | None:
    return payload_versions.propose(wish.lease_uuid, wish.payload) if wish.kind is CommandKind.UPDATE else None


def _new_lifecycle(lease_uuid: UUID) -> UUID:
    """The id that the backend is to report with from now on; a lease that was found there has none yet."""
    id_ = uuid4()
    sql.set_lifecycle(lease_uuid, id_)
    return id_
