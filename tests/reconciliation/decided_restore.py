"""Decisions for live leases into which a tenant wanted data of another restored."""

from __future__ import annotations

from placements.status import OperationState
from reconciliation.decisions import Acknowledge, EndWithLease, GiveUp, Push, RecordOutcome, Reject, Settle
from reconciliation.facts_types import Absent, LeaseFacts
from tests.reconciliation.known import (
    ACTIVE,
    CLOSED,
    NOW,
    OPERATION,
    PENDING,
    ago,
    case,
    exactly,
    lease,
    operation,
    row,
)

S = OperationState


def restoring(state: OperationState, **changes: object) -> LeaseFacts:
    """A PENDING lease with an open restore, which would wait for a payload otherwise."""
    return lease(PENDING, operation=operation(state, is_restore=True, **changes), meta_hash=b"\x01" * 32)


RESTORES = [
    case(
        "restore_unsent",
        "",
        restoring(S.RESERVED, due_at=NOW),
        GiveUp(OPERATION, "not_sent"),
        phase="queued",
        reason="backoff",
        after=0,
    ),
    *(
        case(
            "restore_refused",
            code,
            restoring(S.REFUSED, refusal=code),
            Settle(OPERATION),
            phase="queued",
            reason="backoff",
            after=0,
        )
        for code in ("not_retained", "insufficient_resources", "validation", "demote_exceeds_tier")
    ),
    case(
        "restore_refused",
        "never sent",
        restoring(S.ENDED, refusal="not_sent"),
        Settle(OPERATION),
        phase="queued",
        reason="backoff",
        after=0,
    ),
    case(
        "restore_refused",
        "also of a lease that became active",
        lease(ACTIVE, operation=operation(S.REFUSED, refusal="invalid_state", is_restore=True)),
        Settle(OPERATION),
        phase="degraded",
        reason="backoff",
        after=0,
    ),
    case(
        "open_operation",
        "lc117 a restore that was refused is told by nobody but the request",
        exactly(CLOSED, operation=operation(S.REFUSED, refusal="not_retained", is_restore=True)),
        EndWithLease(OPERATION),
        phase="tearing_down",
        after=0,
    ),
    case(
        "in_doubt",
        "lc118 a restore that may have arrived and is not there is sent again, to the same backend",
        lease(PENDING, operation=operation(S.IN_DOUBT, is_restore=True, last_dispatched_at=ago(40)), point=Absent()),
        Push(OPERATION),
        phase="provisioning",
        after=60,
    ),
    case(
        "in_doubt",
        "a restore that is there was taken",
        lease(PENDING, operation=operation(S.IN_DOUBT, is_restore=True), point=row(status="restarting")),
        RecordOutcome(OPERATION, S.ACCEPTED),
        phase="provisioning",
        after=0,
    ),
    case(
        "succeeded_pending",
        "lc114 a restore is acknowledged like a provision",
        restoring(S.SUCCEEDED),
        Acknowledge(OPERATION),
        phase="acking",
        after=60,
    ),
    case(
        "failed_pending",
        "a restore that failed after it was taken",
        exactly(PENDING, operation=operation(S.FAILED, error="volume broken", is_restore=True)),
        Reject("volume broken", OPERATION),
        phase="rejecting",
        after=60,
    ),
    case(
        "past_the_limit",
        "a restore",
        lease(PENDING, operation=operation(S.ACCEPTED, is_restore=True, first_dispatched_at=ago(601)), point=Absent()),
        RecordOutcome(OPERATION, S.FAILED, "callback_timeout"),
        after=0,
    ),
]
