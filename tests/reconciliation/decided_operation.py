"""Decisions for live leases with an open operation."""

from __future__ import annotations

from dataclasses import replace

from placements.status import OperationState
from reconciliation.decisions import Acknowledge, GiveUp, Need, Push, RecordOutcome, Reject, Settle, Wait
from reconciliation.facts_types import Absent, HistoryFact, LeaseFacts, NeedKind, NotRead, PointFact, Unknown
from tests.reconciliation.known import (
    ACTIVE,
    B1,
    B2,
    NOW,
    OPERATION,
    PENDING,
    action,
    ago,
    callback,
    case,
    due_operation,
    exactly,
    lease,
    operation,
    owner,
    row,
    world,
)

S = OperationState
EXACT, POINT = Need(NeedKind.EXACT_READ), Need(NeedKind.POINT_READ)
DISTRUSTING = world(trusted_from_at=ago(10), trusted_block_at=ago(10))


def limit(point: PointFact) -> LeaseFacts:
    """A lease whose backend said nothing for a second longer than it may."""
    return lease(PENDING, operation=operation(S.ACCEPTED, first_dispatched_at=ago(601)), point=point)


OUTCOMES = [
    case(
        "succeeded_active",
        "what it reported since is told next",
        lease(ACTIVE, operation=operation(S.SUCCEEDED), callbacks=(callback("failed", about=OPERATION),)),
        Settle(OPERATION, "ready"),
        phase="active",
        after=0,
    ),
    case(
        "succeeded_active",
        "its acknowledgement is not recorded yet: looked at again",
        lease(ACTIVE, operation=operation(S.SUCCEEDED), actions=(action("ack", "in_tx"),)),
        Settle(OPERATION, "ready"),
        phase="active",
        after=60,
    ),
    case(
        "succeeded_active",
        "",
        lease(ACTIVE, operation=operation(S.SUCCEEDED)),
        Settle(OPERATION, "ready"),
        phase="active",
    ),
    case(
        "succeeded_pending",
        "first",
        lease(PENDING, operation=operation(S.SUCCEEDED)),
        Acknowledge(OPERATION),
        phase="acking",
        after=60,
    ),
    case(
        "succeeded_pending",
        "a lane has it",
        lease(PENDING, operation=operation(S.SUCCEEDED), actions=(action("ack", "in_tx"),)),
        Wait(),
        phase="acking",
        after=60,
    ),
    case(
        "succeeded_pending",
        "once decided, again only on an exact read",
        lease(PENDING, operation=operation(S.SUCCEEDED), actions=(action("ack", "failed"),)),
        EXACT,
        after=1,
    ),
    case(
        "no_room",
        "",
        lease(
            PENDING, operation=operation(S.REFUSED, refusal="insufficient_resources"), history=HistoryFact(failures=2)
        ),
        Settle(OPERATION),
        phase="queued",
        reason="capacity",
        after=5,
    ),
    case("failed_pending", "a list refuses nothing", lease(PENDING, operation=operation(S.FAILED)), EXACT, after=1),
    case(
        "failed_pending",
        "the backend's words, made fit",
        exactly(PENDING, operation=operation(S.FAILED, error="no\x00 such\nimage")),
        Reject("no such image", OPERATION),
        phase="rejecting",
        after=60,
    ),
    case(
        "failed_pending",
        "a refusal in our words",
        exactly(PENDING, operation=operation(S.REFUSED, refusal="image_not_allowed", error="evil/image")),
        Reject("image not allowed", OPERATION),
        phase="rejecting",
        after=60,
    ),
    case(
        "failed_pending",
        "the time limit",
        exactly(PENDING, operation=operation(S.FAILED, refusal="callback_timeout")),
        Reject("callback timeout", OPERATION),
        phase="rejecting",
        after=60,
    ),
    case(
        "failed_pending",
        "signed already",
        lease(PENDING, operation=operation(S.FAILED), actions=(action("reject", "in_tx"),)),
        Wait(),
        phase="rejecting",
        after=60,
    ),
    case("failed_active", "read first", lease(ACTIVE, operation=operation(S.FAILED)), EXACT, after=1),
    case(
        "failed_active",
        "told, nothing more",
        exactly(ACTIVE, operation=operation(S.FAILED, error="it died")),
        Settle(OPERATION, "failed", "it died"),
        phase="degraded",
        reason="failed",
    ),
    case(
        "failed_active",
        "refused",
        exactly(ACTIVE, operation=operation(S.REFUSED, refusal="what")),
        Settle(OPERATION, "failed", "validation error"),
        phase="degraded",
        reason="failed",
    ),
    case(
        "failed_active",
        "the time limit",
        exactly(ACTIVE, operation=operation(S.FAILED, refusal="callback_timeout")),
        Settle(OPERATION, "failed", "callback timeout"),
        phase="degraded",
        reason="failed",
    ),
    case(
        "ended_elsewhere",
        "",
        lease(PENDING, operation=operation(S.ENDED)),
        Settle(OPERATION),
        phase="queued",
        reason="backoff",
        after=1,
    ),
]
UNDER_WAY = [
    case("past_the_limit", "its backend is asked first", limit(NotRead()), POINT, after=5),
    case("past_the_limit", "ready is success", limit(row()), RecordOutcome(OPERATION, S.SUCCEEDED), after=0),
    *(
        case(
            "past_the_limit",
            f"{type(point).__name__} fails it",
            limit(point),
            RecordOutcome(OPERATION, S.FAILED, "callback_timeout"),
            after=0,
        )
        for point in (Absent(), Unknown("backend_silent"), row(status="provisioning"))
    ),
    case(
        "reserved",
        "until its validity ends",
        lease(PENDING, operation=due_operation(S.RESERVED)),
        Wait(),
        phase="provisioning",
        after=30,
    ),
    case(
        "reserved",
        "stale is renewed",
        lease(PENDING, operation=due_operation(S.RESERVED, valid_until=NOW)),
        Push(OPERATION),
        phase="provisioning",
        after=60,
    ),
    case(
        "reserved",
        "never sent, another backend answers",
        lease(PENDING, operation=due_operation(S.RESERVED, refusal="not_sent")),
        GiveUp(OPERATION, "not_sent"),
        phase="queued",
        reason="backoff",
        after=0,
    ),
    case(
        "reserved",
        "never sent, but bound to its owner",
        lease(PENDING, placement=owner(), operation=due_operation(S.RESERVED, refusal="not_sent")),
        Wait(),
        phase="provisioning",
        reason="backend_silent",
        after=30,
    ),
    case(
        "reserved",
        "never sent, no other answers",
        lease(
            PENDING,
            operation=due_operation(S.RESERVED, refusal="not_sent"),
            world=world(backends=(B1, replace(B2, answers=False))),
        ),
        Wait(),
        phase="provisioning",
        reason="backend_silent",
        after=30,
    ),
    case(
        "reserved",
        "from before this database: after a walk",
        lease(PENDING, operation=due_operation(S.RESERVED), world=replace(DISTRUSTING, walked_all_since=None)),
        Wait(),
        phase="provisioning",
        reason="inventory_pending",
        after=10,
    ),
    case(
        "in_doubt_being_pushed",
        "the sender has it",
        lease(PENDING, operation=due_operation(S.IN_DOUBT)),
        Wait(),
        phase="provisioning",
        after=30,
    ),
    case(
        "in_doubt_being_pushed",
        "stale is renewed at the same backend",
        lease(PENDING, operation=due_operation(S.IN_DOUBT, valid_until=ago(1), refusal="not_sent")),
        Push(OPERATION),
        phase="provisioning",
        reason="backend_silent",
        after=60,
    ),
    case("in_doubt", "ask its backend", lease(PENDING, operation=operation(S.IN_DOUBT)), POINT, after=5),
    case(
        "in_doubt",
        "no answer proves nothing",
        lease(PENDING, operation=operation(S.IN_DOUBT), point=Unknown("backend_silent")),
        Wait(),
        phase="provisioning",
        reason="backend_silent",
        after=15,
    ),
    case(
        "in_doubt",
        "absent so soon may still arrive",
        lease(PENDING, operation=operation(S.IN_DOUBT), point=Absent()),
        Wait(),
        phase="provisioning",
        reason="in_doubt",
        after=15,
    ),
    case(
        "in_doubt",
        "absent after the last push: again, there",
        lease(PENDING, operation=operation(S.IN_DOUBT, last_dispatched_at=ago(36)), point=Absent()),
        Push(OPERATION),
        phase="provisioning",
        after=60,
    ),
    case(
        "in_doubt",
        "ready",
        lease(PENDING, operation=operation(S.IN_DOUBT), point=row()),
        RecordOutcome(OPERATION, S.SUCCEEDED),
        after=0,
    ),
    case(
        "in_doubt",
        "anything it has is acceptance",
        lease(PENDING, operation=operation(S.IN_DOUBT), point=row(status="failed")),
        RecordOutcome(OPERATION, S.ACCEPTED),
        phase="provisioning",
        after=0,
    ),
    case(
        "confirmed_by_a_walk",
        "ready",
        lease(PENDING, operation=operation(S.ACCEPTED, first_dispatched_at=ago(120)), listed=(row(),)),
        RecordOutcome(OPERATION, S.SUCCEEDED),
        after=0,
    ),
    case(
        "confirmed_by_a_walk",
        "failed",
        lease(PENDING, operation=operation(S.ACCEPTED, first_dispatched_at=ago(120)), listed=(row(status="failed"),)),
        RecordOutcome(OPERATION, S.FAILED),
        after=0,
    ),
    case(
        "accepted",
        "a list so soon decides nothing",
        lease(PENDING, operation=operation(S.ACCEPTED, first_dispatched_at=ago(119)), listed=(row(),)),
        Wait(),
        phase="provisioning",
        after=60,
    ),
    case(
        "accepted",
        "another provider's row decides nothing",
        lease(
            PENDING,
            operation=operation(S.ACCEPTED, first_dispatched_at=ago(570)),
            listed=(row(status="failed", is_ours=False),),
        ),
        Wait(),
        phase="provisioning",
        after=30,
    ),
    case(
        "accepted",
        "until the time limit",
        lease(PENDING, operation=operation(S.ACCEPTED, first_dispatched_at=ago(590))),
        Wait(),
        phase="provisioning",
        after=10,
    ),
]
