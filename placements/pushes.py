"""What is pushed to a backend.

A :class:`Push` is one claimed row on its way: the clerk makes it and prolongs its claim, the loop sends it. Nothing of
it is the truth; the row is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import Protocol
from uuid import UUID

import orjson

from backends.client import BackendTarget, Pulse
from backends.contract import Dialect, LeaseItem, ProvisionSpec
from placements import push_sql
from placements.calls import Call, Deprovision, Provision, Restore, Unproven
from placements.push_sql import OperationRow, TeardownRow

START_WITHIN_S = 3.0
"""A push starts only so long after the moment before its claim, or the claim's renewal, was sent."""

READ_LIMIT_S = 10.0
"""Time limit of a point read that a push depends on."""


class Table(StrEnum):
    """Where a pushed row stands; `placements.desks` says how each is kept."""

    TEARDOWNS = "teardowns"
    OPERATIONS = "operations"
    COMMANDS = "commands"


class Stage(StrEnum):
    """Which call of a push is on the wire."""

    WAITING = "waiting"
    READING = "reading"  # what does the backend hold, before an operation in doubt is sent again
    POSTING = "posting"
    RESOLVING = "resolving"  # what does the backend hold, after an answer that proves nothing


@dataclass(frozen=True, slots=True)
class Claimed:
    """A row that its maker inserted in doubt and already claimed.

    ``claimed_at`` is ``time.monotonic()`` from before the inserting statement was sent. The insert counts as the first
    push: it sets ``dispatch_count`` 1, both dispatch times, ``on_wire_until`` and ``due_at`` five seconds ahead.
    """

    id: UUID
    epoch: int
    backend: str
    claimed_at: float
    table: Table = Table.OPERATIONS


@dataclass(eq=False, slots=True)
class Push:
    """One row on its way to its backend.

    ``confirmed_at`` is the monotonic time from before the statement by which the claim was last known to be ours;
    ``valid_until`` and ``held_until`` (no renewal after it) are monotonic times too.
    """

    id: UUID | int
    table: Table
    call: Call
    lease_uuid: UUID
    target: BackendTarget
    epoch: int
    attempts: int
    first: bool
    confirmed_at: float
    held_until: float
    valid_until: float = inf
    refusal: str = ""
    request_id: str = ""
    """The request that asked for it, if one did."""
    stage: Stage = Stage.WAITING
    posted: bool = False
    ticket: int | None = None
    pulses: list[Pulse] = field(default_factory=list)
    unproven: Unproven | None = None

    @property
    def is_teardown(self) -> bool:
        """Whether this removes a lease's workload."""
        return self.table is Table.TEARDOWNS

    @property
    def is_restore(self) -> bool:
        """Whether this puts kept data under a new lease, and a tenant's request asked for it."""
        return isinstance(self.call, Restore)

    @property
    def limit(self) -> float:
        """The time limit of its longest call in seconds."""
        return self.call.limit(self.target)

    @property
    def operation_id(self) -> UUID:
        """The id of the operation, or of the command."""
        if isinstance(self.id, UUID):
            return self.id
        raise TypeError(self.id)

    @property
    def teardown_id(self) -> int:
        """The teardown's id; only for a push that removes a workload."""
        if isinstance(self.id, int):
            return self.id
        raise TypeError(self.id)

    @property
    def backend(self) -> str:
        """Name of the backend."""
        return self.target.name

    def may_start(self, now: float) -> bool:
        """Whether a call that changes something may be started at this monotonic time."""
        return now - self.confirmed_at <= START_WITHIN_S and now < self.valid_until


@dataclass(frozen=True, slots=True)
class Unsendable:
    """A claimed operation that cannot be sent as it is; nothing left this machine."""

    push: Push
    reason: str


class CalledRow(Protocol):
    """What a claimed operation and a claimed command have in common."""

    @property
    def id(self) -> UUID:
        """Its key."""

    @property
    def lease_uuid(self) -> UUID:
        """Whose it is."""

    @property
    def epoch(self) -> int:
        """That of the claim."""

    @property
    def attempts(self) -> int:
        """How often it was claimed."""

    @property
    def valid_s(self) -> float | None:
        """Seconds for which it may still be started; None: no bound."""


def push_of(row: CalledRow, call: Call, target: BackendTarget, *, table: Table, since: float, first: bool) -> Push:
    """One claimed row as a push; its claim is renewed until its answer must be there."""
    return Push(
        id=row.id,
        table=table,
        call=call,
        lease_uuid=row.lease_uuid,
        target=target,
        epoch=row.epoch,
        attempts=row.attempts,
        first=first,
        confirmed_at=since,
        held_until=since + target.timeout + push_sql.ANSWER_MARGIN.total_seconds(),
        valid_until=inf if row.valid_s is None else since + row.valid_s,
    )


def sorted_out(pushes: Iterable[tuple[Push, str]]) -> tuple[list[Push], list[Unsendable]]:
    """Those that can be sent, and those that can't: their backend takes no calls, or the text says what is wrong."""
    ready: list[Push] = []
    unsendable: list[Unsendable] = []
    for push, wrong in pushes:
        reason = closed(push.target) if push.target.shut or push.target.closed else wrong
        if reason:
            unsendable.append(Unsendable(push, reason))
        else:
            ready.append(push)
    return ready, unsendable


def of_operations(
    rows: Iterable[OperationRow], targets: Mapping[str, BackendTarget], *, confirmed_at: Mapping[UUID, float]
) -> tuple[list[Push], list[Unsendable]]:
    """Make pushes of claimed operations, with their payloads. Reads the database."""
    rows = list(rows)
    with_payload = [row.id for row in rows if row.payload_sha256 is not None]
    bodies = push_sql.payloads(with_payload) if with_payload else {}
    made: list[tuple[Push, str]] = []
    for row in rows:
        where = targets.get(row.backend) or nowhere(row.backend)
        call = _call(row, where, bodies.get(row.id, b""))
        push = push_of(row, call, where, table=Table.OPERATIONS, since=confirmed_at[row.id], first=row.first)
        push.refusal, push.request_id = row.refusal, row.request_id
        wrong = "" if row.reachable else closed(where)
        if not wrong and row.payload_sha256 is not None and row.id not in bodies:
            wrong = "the payload of this operation is gone"
        made.append((push, wrong))
    return sorted_out(made)


def _call(row: OperationRow, where: BackendTarget, payload: bytes) -> Provision | Restore:
    """The request as it was stored when the operation was made: a repeat sends the same bytes."""
    items = tuple(LeaseItem(**item) for item in orjson.loads(row.items))
    if row.source_lease_uuid is not None:
        return Restore(
            source=row.source_lease_uuid,
            tenant=row.tenant,
            provider_uuid=row.provider_uuid,
            items=items,
            callback_url=row.callback_url,
        )
    spec = ProvisionSpec(
        lease_uuid=row.lease_uuid,
        tenant=row.tenant,
        provider_uuid=row.provider_uuid,
        items=items,
        callback_url=row.callback_url,
        payload=payload,
        payload_hash=bytes(row.payload_sha256).hex() if row.payload_sha256 is not None else "",
        # The older servers ignore it, and use the one URL they know for everything.
        lifecycle_callback_url=row.lifecycle_url if where.dialect is Dialect.CURRENT else "",
    )
    return Provision(spec)


def closed(where: BackendTarget) -> str:
    """Why nothing may be pushed there."""
    return f'backend "{where.name}" takes no calls: {where.closed or where.broken or "it is fenced or not configured"}'


def nowhere(name: str) -> BackendTarget:
    """What stands for a backend that the configuration does not have (any more): nothing is sent there."""
    return BackendTarget(name=name, url="", fenced=True)


def of_teardowns(
    rows: Iterable[TeardownRow], targets: Mapping[str, BackendTarget], *, confirmed_at: Mapping[int, float]
) -> tuple[list[Push], list[Unsendable]]:
    """Make pushes of claimed teardowns."""
    made: list[tuple[Push, str]] = []
    for row in rows:
        since = confirmed_at[row.id]
        push = Push(
            id=row.id,
            table=Table.TEARDOWNS,
            call=Deprovision(),
            lease_uuid=row.lease_uuid,
            target=targets.get(row.backend) or nowhere(row.backend),
            epoch=row.epoch,
            attempts=row.attempts,
            first=True,
            confirmed_at=since,
            held_until=inf,
        )
        push.held_until = since + START_WITHIN_S + push.limit + push_sql.ANSWER_MARGIN.total_seconds()
        made.append((push, ""))
    return sorted_out(made)
