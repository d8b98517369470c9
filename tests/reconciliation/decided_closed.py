"""Decisions about leases at backends that are fenced, drained, or in no known dialect."""

from __future__ import annotations

from dataclasses import replace

from placements.status import OperationState
from reconciliation.decisions import (
    Adopt,
    GiveUp,
    ParkTeardown,
    ResumeTeardown,
    SendTeardown,
    StartProvision,
    Wait,
)
from tests.reconciliation.known import (
    ACTIVE,
    B1,
    B2,
    CLOSED,
    OPERATION,
    PENDING,
    ago,
    case,
    due_operation,
    exactly,
    lease,
    operation,
    owner,
    row,
    teardown,
    world,
)

S = OperationState
FENCED = world(backends=(replace(B1, fenced=True), B2))
UNCLEAR = world(backends=(replace(B1, is_understood=False), B2))
DRAINED = world(backends=(replace(B1, drained=True), B2))
ALONE = world(backends=(replace(B1, fenced=True),))
GONE = world(backends=(replace(B1, configured=False), B2))
OTHER_DRAINED = world(backends=(replace(B1, fenced=True), replace(B2, drained=True)))

CLOSED_BACKENDS = [
    *(
        case(
            "backend_closed",
            f"{state}: nothing is sent, no time limit runs out, nothing is rejected",
            lease(PENDING, operation=operation(state, first_dispatched_at=ago(10_000)), world=FENCED),
            Wait(),
            phase="provisioning",
            reason="backend_fenced",
            after=60,
        )
        for state in (S.IN_DOUBT, S.ACCEPTED)
    ),
    case(
        "backend_closed",
        "not configured: the same",
        lease(PENDING, operation=operation(S.ACCEPTED, first_dispatched_at=ago(10_000)), world=GONE),
        Wait(),
        phase="provisioning",
        reason="backend_unconfigured",
        after=60,
    ),
    case(
        "backend_closed",
        "dialect unknown: the same",
        lease(PENDING, operation=due_operation(S.IN_DOUBT), world=UNCLEAR),
        Wait(),
        phase="provisioning",
        reason="backend_dialect",
        after=60,
    ),
    case(
        "backend_closed",
        "never sent, another answers: it may go there",
        lease(PENDING, operation=due_operation(S.RESERVED), world=FENCED),
        GiveUp(OPERATION, "not_sent"),
        phase="queued",
        reason="backoff",
        after=0,
    ),
    *(
        case(
            "backend_closed",
            f"never sent, {name}: it stays",
            lease(PENDING, operation=due_operation(S.RESERVED), **how),
            Wait(),
            phase="provisioning",
            reason="backend_fenced",
            after=60,
        )
        for name, how in {
            "nobody else serves it": {"world": ALONE},
            "the other is drained": {"world": OTHER_DRAINED},
            "bound to its owner": {"world": FENCED, "placement": owner()},
        }.items()
    ),
    case(
        "owner_closed",
        "fenced: no other is chosen",
        lease(PENDING, placement=owner(), world=FENCED),
        Wait(),
        phase="queued",
        reason="backend_fenced",
        after=60,
    ),
    case(
        "owner_closed",
        "dialect unknown: no other is chosen",
        lease(PENDING, placement=owner(), world=UNCLEAR),
        Wait(),
        phase="queued",
        reason="backend_dialect",
        after=60,
    ),
    *(
        case(
            "listed_at_closed",
            f"{state.name}, listed as {status} before the fence: nothing is concluded",
            exactly(state, listed=(row("b1", status),), world=FENCED),
            Wait(),
            phase="active" if state is ACTIVE else "queued",
            reason="backend_fenced",
            after=60,
        )
        for state in (PENDING, ACTIVE)
        for status in ("ready", "failed", "provisioning")
    ),
    case(
        "listed_at_closed",
        "dialect unknown",
        exactly(PENDING, listed=(row("b1"),), world=UNCLEAR),
        Wait(),
        phase="queued",
        reason="backend_dialect",
        after=60,
    ),
    case(
        "active_unowned",
        "a drained backend keeps what it has",
        exactly(ACTIVE, listed=(row("b1"),), world=DRAINED),
        Adopt("b1"),
        phase="active",
        after=0,
    ),
    case(
        "ready_to_provision",
        "on its owner, drained or not",
        lease(PENDING, placement=owner(), world=DRAINED),
        StartProvision("b1"),
        phase="provisioning",
        after=60,
    ),
    case(
        "something_at_a_backend",
        "fenced or not, a removal is wanted there",
        exactly(CLOSED, placement=owner(), world=FENCED),
        SendTeardown(("b1",), "lease closed"),
        phase="tearing_down",
        after=0,
    ),
    case(
        "teardown_closed",
        "fenced: put aside; the other's goes on",
        exactly(CLOSED, teardowns=(teardown("b1"), teardown("b2")), world=FENCED),
        ParkTeardown(("b1",)),
        phase="tearing_down",
        reason="backend_fenced",
        after=60,
    ),
    case(
        "teardown_closed",
        "dialect unknown",
        exactly(CLOSED, teardowns=(teardown("b1"),), world=UNCLEAR),
        ParkTeardown(("b1",)),
        phase="tearing_down",
        reason="backend_dialect",
        after=60,
    ),
    case(
        "teardown_open",
        "put aside",
        exactly(CLOSED, teardowns=(teardown("b1", "parked"),), world=FENCED),
        Wait(),
        phase="tearing_down",
        reason="backend_fenced",
        after=60,
    ),
    case(
        "teardown_open",
        "a drained backend is told",
        exactly(CLOSED, teardowns=(teardown("b1"),), world=DRAINED),
        Wait(),
        phase="tearing_down",
        after=60,
    ),
    case(
        "teardown_reopened",
        "the fence is lifted",
        exactly(CLOSED, teardowns=(teardown("b1", "parked"), teardown("b2", "done"))),
        ResumeTeardown(("b1",)),
        phase="tearing_down",
        after=60,
    ),
]
