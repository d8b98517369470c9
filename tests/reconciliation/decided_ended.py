"""Decisions for leases that could not be read, with reports to announce, and that are over."""

from __future__ import annotations

from leases.status import LeaseState
from placements.status import OperationState
from reconciliation.decisions import Announce, DropActions, EndWithLease, GiveUp, Need, Rest, SendTeardown, Wait
from reconciliation.facts_types import Absent, NeedKind, NotRead, Unknown
from reconciliation.texts import retained_text
from tests.reconciliation.known import (
    ACTIVE,
    CLOSED,
    LEASE,
    NOW,
    OPERATION,
    PENDING,
    action,
    ago,
    callback,
    case,
    exactly,
    lease,
    operation,
    owner,
    row,
    seconds,
    teardown,
    world,
)

S = OperationState
EXACT, POINT = Need(NeedKind.EXACT_READ), Need(NeedKind.POINT_READ)
DISTRUSTING = world(trusted_from_at=ago(10), trusted_block_at=ago(10))

SOURCES = [
    case(
        "source_unknown",
        "a silent chain concludes nothing",
        lease(Unknown("chain_silent")),
        Wait(),
        reason="chain_silent",
        after=10,
        spread=True,
    ),
    case(
        "source_unknown",
        "an error of this lease alone is its failed attempt",
        lease(Unknown("chain_error", is_own=True), operation=operation(S.FAILED)),
        Wait(),
        reason="chain_error",
        after=10,
        failed=True,
    ),
    case("never_read", "", lease(NotRead()), EXACT, after=1),
    case(
        "absent_on_chain",
        "a phantom is not torn down",
        lease(Absent(), placement=owner(), listed=(row(),)),
        Wait(),
        reason="chain_unknown",
        after=60,
    ),
]
REPORTS = [
    case(
        "removed_by_backend",
        "",
        lease(PENDING, operation=operation(S.ACCEPTED), callbacks=(callback("deprovisioned", about=OPERATION),)),
        GiveUp(OPERATION, "deprovisioned"),
        phase="queued",
        reason="backoff",
        after=0,
    ),
    case(
        "observation",
        "success",
        lease(ACTIVE, callbacks=(callback("success", id=7),)),
        Announce((("ready", ""),), (7,)),
        after=0,
    ),
    case(
        "observation",
        "failure; a removal without data is no event",
        lease(ACTIVE, callbacks=(callback("failed", error="it died"), callback("deprovisioned", id=2))),
        Announce((("failed", "it died"),), (1, 2)),
        after=0,
    ),
    case(
        "observation",
        "an ended lease is not ready again, but its data is kept",
        exactly(CLOSED, callbacks=(callback("success"), callback("deprovisioned", id=2, retained=True))),
        Announce((("retained", retained_text(LEASE)),), (1, 2)),
        after=0,
    ),
]
ENDED = [
    case(
        "on_the_wire",
        "",
        exactly(CLOSED, operation=operation(S.IN_DOUBT, on_wire_until=NOW + seconds(20))),
        Wait(),
        phase="tearing_down",
        reason="provision_on_wire",
        after=20,
    ),
    case(
        "open_operation",
        "",
        exactly(CLOSED, operation=operation(S.ACCEPTED)),
        EndWithLease(OPERATION),
        phase="tearing_down",
        after=0,
    ),
    case(
        "open_operation",
        "its failure is told in the backend's words",
        exactly(LeaseState.REJECTED, operation=operation(S.FAILED, error="image pull failed")),
        EndWithLease(OPERATION, "failed", "image pull failed"),
        phase="tearing_down",
        after=0,
    ),
    case(
        "open_operation",
        "its time limit is told",
        exactly(LeaseState.REJECTED, operation=operation(S.FAILED, refusal="callback_timeout")),
        EndWithLease(OPERATION, "failed", "callback timeout"),
        phase="tearing_down",
        after=0,
    ),
    case(
        "open_operation",
        "its refusal is told in our words",
        exactly(LeaseState.REJECTED, operation=operation(S.REFUSED, refusal="unknown_sku", error="no plan x")),
        EndWithLease(OPERATION, "failed", "invalid SKU"),
        phase="tearing_down",
        after=0,
    ),
    case("open_actions", "", exactly(CLOSED, actions=(action("ack"),)), DropActions(), phase="tearing_down", after=0),
    case(
        "something_at_a_backend",
        "its owner and whoever lists it",
        exactly(CLOSED, placement=owner("b2"), listed=(row("b1"), row("b2"))),
        SendTeardown(("b1", "b2"), "lease closed"),
        phase="tearing_down",
        after=60,
    ),
    case(
        "something_at_a_backend",
        "listed again after a removal",
        exactly(LeaseState.EXPIRED, teardowns=(teardown("b1", "done"),), listed=(row("b1"),)),
        SendTeardown(("b1",), "lease expired"),
        phase="tearing_down",
        after=60,
    ),
    case(
        "something_at_a_backend",
        "from before this database: wherever it may be",
        exactly(CLOSED, world=DISTRUSTING, absent_at=frozenset({"b1"})),
        SendTeardown(("b2",), "lease closed"),
        phase="tearing_down",
        after=60,
    ),
    case(
        "teardown_open",
        "",
        exactly(CLOSED, placement=owner(), teardowns=(teardown(),)),
        Wait(),
        phase="tearing_down",
        after=60,
    ),
    case(
        "teardown_open",
        "the backend does not answer",
        exactly(CLOSED, placement=owner(), teardowns=(teardown(last_error="no answer"),)),
        Wait(),
        phase="tearing_down",
        reason="backend_silent",
        after=60,
    ),
    case(
        "teardown_open",
        "the backend is not configured any more",
        exactly(CLOSED, placement=owner("gone"), teardowns=(teardown("gone"),)),
        Wait(),
        phase="tearing_down",
        reason="backend_unconfigured",
        after=60,
    ),
    case(
        "rejection_undecided",
        "",
        exactly(LeaseState.REJECTED, actions=(action("reject", "in_tx"),)),
        Wait(),
        phase="tearing_down",
        after=60,
    ),
    case(
        "end_untold",
        "our own rejection, with its reason",
        exactly(LeaseState.REJECTED, actions=(action("reject", "done", reason="payload corrupted"),)),
        Announce((("failed", "payload corrupted"),)),
        phase="ended",
        after=0,
    ),
    case(
        "end_untold",
        "the chain's end",
        exactly(LeaseState.EXPIRED),
        Announce((("failed", "lease expired"),)),
        phase="ended",
        after=0,
    ),
    case(
        "over",
        "",
        exactly(CLOSED, last_status="deprovisioning", teardowns=(teardown(state="done"),)),
        Rest(),
        phase="ended",
    ),
    case("over", "its data is kept", exactly(CLOSED, last_status="retained"), Rest(), phase="retained"),
]
