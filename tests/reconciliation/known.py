"""Facts as a look knows them, made by hand: a quiet world, and leases in it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from leases.status import LeaseState
from placements.command_status import CommandKind, CommandState
from placements.status import OperationState
from reconciliation.command_facts import CommandFact, MaintenanceFact, ReleaseFact
from reconciliation.decisions import Act, Decision
from reconciliation.facts_types import (
    ActionFact,
    BackendFact,
    CallbackFact,
    ExactLease,
    LeaseFacts,
    Limits,
    ListedLease,
    OperationFact,
    PayloadFact,
    PlacementFact,
    ProvisionFact,
    TeardownFact,
    WorldFact,
)

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LIMITS = Limits()
LEASE = UUID("01890a5d-ac96-774b-bcce-b302099a8057")
OPERATION = UUID("3f2c1d60-7d5a-4b57-9b1c-6c7b4a0f9e11")
COMMAND = UUID("550e8400-e29b-41d4-a716-446655440000")
DIGEST = b"\x07" * 32
PENDING, ACTIVE, CLOSED = LeaseState.PENDING, LeaseState.ACTIVE, LeaseState.CLOSED


def seconds(number: float) -> timedelta:
    """So many seconds."""
    return timedelta(seconds=number)


def ago(number: float) -> datetime:
    """So many seconds before now."""
    return NOW - seconds(number)


B1 = BackendFact("b1", frozenset({"s1"}), is_default=True, walked_at=ago(60))
B2 = BackendFact("b2", frozenset({"s1"}), walked_at=ago(60))
WORLD = WorldFact(
    backends=(B1, B2),
    head_age=seconds(1),
    trusted_from_at=ago(3600),
    trusted_block_at=ago(3600),
    walked_all_since=ago(60),
)
"""Two backends, walked a minute ago; this database saw everything for an hour."""


def lease(chain: Any, **changes: Any) -> LeaseFacts:
    """Facts of a lease that was created ten minutes ago. A chain state alone is one that was listed."""
    if isinstance(chain, LeaseState):
        chain = ListedLease(chain)
    return replace(LeaseFacts(LEASE, chain, sku="s1", created_at=ago(600), world=WORLD), **changes)


def exactly(state: LeaseState, **changes: Any) -> LeaseFacts:
    """The same, read exactly in this look."""
    return lease(ExactLease(state), **changes)


def operation(state: OperationState, **changes: Any) -> OperationFact:
    """The open operation at b1, made half a minute ago."""
    made = OperationFact(OPERATION, "b1", state, created_at=ago(30))
    if state is not OperationState.RESERVED:
        made = replace(made, first_dispatched_at=ago(30), last_dispatched_at=ago(30), dispatch_count=1)
    return replace(made, **changes)


def due_operation(state: OperationState, **changes: Any) -> OperationFact:
    """The same, due at the sender for thirty seconds yet."""
    return operation(state, **{"due_at": NOW, "valid_until": NOW + seconds(30), **changes})


def owner(backend: str = "b1", **changes: Any) -> PlacementFact:
    """A confirmed placement, made ten minutes ago."""
    return replace(PlacementFact(backend, "confirmed", set_at=ago(600)), **changes)


def row(backend: str = "b1", status: str = "ready", **changes: Any) -> ProvisionFact:
    """What a backend says it runs."""
    return replace(ProvisionFact(backend, status), **changes)


def command(state: CommandState, kind: str = "restart", **changes: Any) -> CommandFact:
    """A restart, or an update, that was admitted half a minute ago at b1, and sent then unless it is reserved."""
    made = CommandFact(COMMAND, CommandKind(kind), "b1", state, admitted_at=ago(30))
    if kind == "update":
        made = replace(made, payload_sha256=DIGEST)
    if state is not CommandState.RESERVED:
        made = replace(made, first_dispatched_at=ago(30))
    return replace(made, **changes)


def shown(status: str = "ready", *releases: ReleaseFact) -> MaintenanceFact:
    """What the backend shows of the lease."""
    return MaintenanceFact(status, releases)


def release(status: str, *, age: float = 20, version: int = 2, **changes: Any) -> ReleaseFact:
    """A version of the workload with the manifest of the update, made so many seconds ago."""
    return replace(ReleaseFact(version, status, ago(age), "", DIGEST), **changes)


def action(verb: str, state: str = "queued", **changes: Any) -> ActionFact:
    """A wish for the chain."""
    return replace(ActionFact(verb, state), **changes)


def teardown(backend: str = "b1", state: str = "open", **changes: Any) -> TeardownFact:
    """A removal that was asked for."""
    return replace(TeardownFact(backend, state), **changes)


def payload(*, intact: bool = True) -> PayloadFact:
    """A stored payload."""
    return PayloadFact(b"\x01" * 32, 7, intact)


def callback(status: str, *, about: UUID | None = None, **changes: Any) -> CallbackFact:
    """A report that no look has used; without ``about`` it is about no operation."""
    return replace(CallbackFact(1, about, status), **changes)


def world(*, backends: tuple[BackendFact, ...] = (B1, B2), **changes: Any) -> WorldFact:
    """The quiet world with something changed."""
    return replace(WORLD, backends=backends, **changes)


def case(
    rule: str,
    name: str,
    facts: LeaseFacts,
    act: Act,
    *,
    phase: str | None = None,
    reason: str = "",
    after: float | None = None,
    **how: bool,
) -> Any:
    """One line of the table: the rule that decides, the facts, and its whole decision; ``after`` in seconds."""
    interval = None if after is None else seconds(after)
    return pytest.param(rule, facts, Decision(act, phase, reason, interval, **how), id=f"{rule}: {name}".strip(": "))
