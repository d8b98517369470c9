"""Decisions for live leases without an open operation."""

from __future__ import annotations

from dataclasses import replace

from leases.status import LeaseState
from reconciliation.decisions import Acknowledge, Adopt, Need, Reject, Rest, StartProvision, Wait
from reconciliation.facts_types import Absent, HistoryFact, NeedKind
from tests.reconciliation.known import (
    ACTIVE,
    B1,
    PENDING,
    action,
    ago,
    case,
    exactly,
    lease,
    owner,
    payload,
    row,
    seconds,
    world,
)

EXACT, POINT = Need(NeedKind.EXACT_READ), Need(NeedKind.POINT_READ)
DISTRUSTING = world(trusted_from_at=ago(10), trusted_block_at=ago(10))
HASHED = {"meta_hash": b"\x01" * 32}

PENDING_IDLE = [
    case("ack_open", "", lease(PENDING, actions=(action("ack", "in_tx"),)), Wait(), phase="acking", after=60),
    case("reject_in_tx", "", lease(PENDING, actions=(action("reject", "in_tx"),)), Wait(), phase="rejecting", after=60),
    case(
        "several_list_it",
        "two list it",
        lease(PENDING, listed=(row("b1"), row("b2"))),
        Wait(),
        phase="queued",
        reason="conflict",
        after=60,
    ),
    case(
        "several_list_it",
        "another than its owner lists it",
        lease(ACTIVE, placement=owner("b1"), listed=(row("b2"),)),
        Wait(),
        phase="degraded",
        reason="conflict",
        after=60,
    ),
    case(
        "found_ready",
        "",
        lease(PENDING, listed=(row("b2"), row("b1", is_ours=False))),
        Acknowledge(adopt="b2"),
        phase="acking",
        after=60,
    ),
    case("found_failed", "read first", lease(PENDING, listed=(row(status="failed"),)), EXACT, after=1),
    case(
        "found_failed",
        "read exactly",
        exactly(PENDING, listed=(row(status="failed"),)),
        Reject("provisioning failed"),
        phase="rejecting",
        after=60,
    ),
    *(
        case(
            "found_in_progress",
            status,
            exactly(PENDING, listed=(row(status=status),)),
            Wait(),
            phase="provisioning",
            after=60,
        )
        for status in ("provisioning", "restarting", "updating", "failing", "deprovisioning", "unknown", "foo")
    ),
    case(
        "data_retained",
        "",
        lease(PENDING, retained_at=("b1",)),
        Wait(),
        phase="queued",
        reason="retained_live",
        after=60,
    ),
    case(
        "payload_corrupt",
        "read first",
        lease(PENDING, payload=payload(intact=False), **HASHED),
        EXACT,
        reason="payload_corrupt",
        after=1,
    ),
    case(
        "payload_corrupt",
        "read exactly",
        exactly(PENDING, payload=payload(intact=False), **HASHED),
        Reject("payload corrupted"),
        phase="rejecting",
        reason="payload_corrupt",
        after=60,
    ),
    case(
        "awaiting_payload",
        "",
        lease(PENDING, payload=Absent(), **HASHED),
        Rest(),
        phase="awaiting_payload",
        reason="payload_missing",
    ),
    case(
        "unknown_past",
        "without a placement",
        lease(PENDING, world=replace(DISTRUSTING, walked_all_since=ago(20))),
        Wait(),
        phase="queued",
        reason="inventory_pending",
        after=10,
    ),
    case(
        "unknown_past",
        "with one from before",
        lease(PENDING, placement=owner(), world=replace(DISTRUSTING, walked_all_since=None)),
        Wait(),
        phase="queued",
        reason="inventory_pending",
        after=10,
    ),
    case(
        "backing_off",
        "",
        lease(PENDING, history=HistoryFact(failures=3, last_ended_at=ago(2), last_refusal="insufficient_resources")),
        Wait(),
        phase="queued",
        reason="capacity",
        after=3,
    ),
    case(
        "head_too_old", "no block for half a minute", lease(PENDING, world=world(head_age=seconds(31))), EXACT, after=10
    ),
    case("head_too_old", "no block ever", lease(PENDING, world=world(head_age=None)), EXACT, after=10),
    case(
        "owner_unconfigured",
        "",
        lease(PENDING, placement=owner("old-name")),
        Wait(),
        phase="queued",
        reason="backend_unconfigured",
        after=60,
    ),
    case(
        "ready_to_provision",
        "a new lease, where routing says",
        lease(PENDING),
        StartProvision(),
        phase="provisioning",
        after=60,
    ),
    case(
        "ready_to_provision",
        "again, at its owner",
        lease(PENDING, placement=owner("b2"), payload=payload(), **HASHED),
        StartProvision("b2"),
        phase="provisioning",
        after=60,
    ),
    case(
        "ready_to_provision",
        "an exact read needs no head, a back-off ends",
        exactly(PENDING, world=world(head_age=None), history=HistoryFact(failures=1, last_ended_at=ago(1))),
        StartProvision(),
        phase="provisioning",
        after=60,
    ),
]
ACTIVE_IDLE = [
    case("active_unowned", "", lease(ACTIVE, listed=(row("b2"),)), Adopt("b2"), phase="active", after=0),
    case(
        "active_failed",
        "listed so",
        lease(ACTIVE, placement=owner(), listed=(row(status="failed"),), last_status="ready"),
        Rest(),
        phase="degraded",
        reason="failed",
    ),
    case(
        "active_failed",
        "",
        lease(ACTIVE, placement=owner(), last_status="failed"),
        Rest(),
        phase="degraded",
        reason="failed",
    ),
    case(
        "active_missing",
        "at its owner",
        lease(ACTIVE, placement=owner(), absent_at=frozenset({"b1"})),
        Wait(),
        phase="degraded",
        reason="missing",
        after=300,
    ),
    case(
        "active_missing",
        "ownerless, not walked",
        lease(ACTIVE, world=world(walked_all_since=None)),
        Wait(),
        phase="observed",
        reason="inventory_pending",
        after=10,
    ),
    case(
        "active_missing",
        "nowhere, and no payload to make it again",
        lease(ACTIVE, payload=Absent(), **HASHED),
        Wait(),
        phase="degraded",
        reason="payload_missing",
        after=300,
    ),
    case(
        "active_missing",
        "nowhere, and its payload is corrupt: no close",
        exactly(ACTIVE, payload=payload(intact=False), **HASHED),
        Wait(),
        phase="degraded",
        reason="payload_corrupt",
        after=300,
    ),
    case("active_confirmed", "listed", lease(ACTIVE, placement=owner(), listed=(row(),)), Rest(), phase="active"),
    case(
        "active_confirmed",
        "its backend is silent",
        lease(ACTIVE, placement=owner(), world=world(backends=(replace(B1, answers=False),))),
        Rest(),
        phase="active",
    ),
    case("at_rest", "", lease(LeaseState.UNSPECIFIED, placement=owner()), Rest()),
]
