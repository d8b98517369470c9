"""Rules for a live lease with an open operation: pushing it, watching it, and drawing the consequence."""

from __future__ import annotations

from datetime import datetime, timedelta

from placements.status import NOT_SENT, OperationState
from reconciliation.decisions import Acknowledge, Decision, GiveUp, Need, Push, RecordOutcome, Reject, Settle, Wait
from reconciliation.facts_types import (
    Absent,
    LeaseFacts,
    Limits,
    NeedKind,
    NotRead,
    OperationFact,
    ProvisionFact,
    Unknown,
)
from reconciliation.texts import (
    CALLBACK_TIMEOUT,
    CAPACITY,
    GONE,
    PROVISIONING_FAILED,
    TIMED_OUT,
    chain_reason,
    rejection,
)

S = OperationState


def removed_by_backend(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """`deprovisioned` for the open operation | the operation is over; the lease is looked at afresh"""
    operation = facts.operation
    if operation is None or operation.has_outcome or facts.is_ended:
        return None
    if not any(one.status == "deprovisioned" and one.selector_id == operation.id for one in facts.callbacks):
        return None
    return Decision(GiveUp(operation.id, GONE), "queued", "backoff", limits.at_once)


def succeeded_active(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """succeeded, ACTIVE | settle: `ready`"""
    if not facts.is_active or not _is(facts.operation, S.SUCCEEDED):
        return None
    return Decision(Settle(facts.operation.id, "ready"), "active")  # type: ignore[union-attr]


def succeeded_pending(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """succeeded, PENDING | acknowledge on chain, and wait for a lane"""
    if not facts.is_pending or not _is(facts.operation, S.SUCCEEDED):
        return None
    ack = facts.action("ack")
    if ack is not None and ack.is_open:
        return Decision(Wait(), "acking", "", limits.longest)
    if ack is not None and not facts.is_exact:
        return Decision(Need(NeedKind.EXACT_READ), after=limits.stale_retry)
    return Decision(Acknowledge(facts.operation.id), "acking", after=limits.longest)  # type: ignore[union-attr]


def no_room(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """refused: no room there | settle without an event; routed again after a back-off"""
    if not _is(facts.operation, S.REFUSED) or facts.operation.refusal != CAPACITY:  # type: ignore[union-attr]
        return None
    wait = limits.back_off(facts.history.failures + 1)
    phase = "degraded" if facts.is_active else "queued"
    return Decision(Settle(facts.operation.id), phase, "capacity", wait)  # type: ignore[union-attr]


def failed_pending(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """failed, timed out or refused for good, PENDING by an exact read | reject on chain with the reason"""
    operation = facts.operation
    if not facts.is_pending or operation is None or operation.state not in {S.FAILED, S.REFUSED}:
        return None
    reject = facts.action("reject")
    if reject is not None and reject.state == "in_tx":
        return Decision(Wait(), "rejecting", "", limits.longest)
    if not facts.is_exact:
        return Decision(Need(NeedKind.EXACT_READ), after=limits.stale_retry)
    return Decision(Reject(_reason(operation), operation.id), "rejecting", after=limits.longest)


def failed_active(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """failed, timed out or refused for good, ACTIVE by an exact read
    | settle: `failed`; nothing on chain, nothing deleted
    """
    operation = facts.operation
    if not facts.is_active or operation is None or operation.state not in {S.FAILED, S.REFUSED}:
        return None
    if not facts.is_exact:
        return Decision(Need(NeedKind.EXACT_READ), after=limits.stale_retry)
    error = operation.error or PROVISIONING_FAILED
    if operation.state is S.REFUSED:
        error = rejection(operation.refusal)
    elif operation.refusal == TIMED_OUT:
        error = CALLBACK_TIMEOUT
    return Decision(Settle(operation.id, "failed", error), "degraded", "failed")


def ended_elsewhere(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """ended without an effect, not settled | settle without an event; routed again after a back-off"""
    if not _is(facts.operation, S.ENDED):
        return None
    wait = limits.back_off(facts.history.failures + 1)
    return Decision(Settle(facts.operation.id), "queued", "backoff", wait)  # type: ignore[union-attr]


def backend_closed(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """without outcome, at a backend that is fenced, not configured or in no known dialect
    | never sent, not bound to an owner and another backend answers: give it up; else wait, without time limit
    """
    operation = facts.operation
    if operation is None or operation.has_outcome:
        return None
    backend = facts.world.backend(operation.backend)
    if backend is not None and backend.takes_calls:
        return None
    if operation.state is S.RESERVED and not _is_bound(facts) and _another_answers(facts, operation.backend):
        return Decision(GiveUp(operation.id, NOT_SENT), "queued", "backoff", limits.at_once)
    reason = "backend_unconfigured"
    if backend is not None:
        reason = "backend_fenced" if backend.fenced else "backend_dialect"
    return Decision(Wait(), "provisioning", reason, limits.longest)


def past_the_limit(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """no callback within the time limit
    | point read; ready counts as success, anything else fails it: `callback_timeout`
    """
    operation = facts.operation
    if operation is None or operation.state not in {S.IN_DOUBT, S.ACCEPTED} or operation.first_dispatched_at is None:
        return None
    if now - operation.first_dispatched_at <= limits.callback_timeout:
        return None
    if isinstance(facts.point, NotRead):
        return Decision(Need(NeedKind.POINT_READ), after=limits.watch_first)
    if isinstance(facts.point, ProvisionFact) and facts.point.status == "ready":
        return Decision(RecordOutcome(operation.id, S.SUCCEEDED), after=limits.at_once)
    return Decision(RecordOutcome(operation.id, S.FAILED, TIMED_OUT), after=limits.at_once)


def reserved(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """chosen, nothing sent
    | wait for the sender; not sent, not bound to an owner and another backend answers: give it up; stale: renew it
    """
    operation = facts.operation
    if operation is None or operation.state is not S.RESERVED:
        return None
    if (doubt := _from_before(facts, operation, limits)) is not None:
        return doubt
    if operation.refusal == NOT_SENT and not _is_bound(facts) and _another_answers(facts, operation.backend):
        return Decision(GiveUp(operation.id, NOT_SENT), "queued", "backoff", limits.at_once)
    return _renewed(facts, operation, now, limits)


def in_doubt_being_pushed(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """in doubt, the sender is at it | wait; stale: renew it"""
    operation = facts.operation
    if operation is None or operation.state is not S.IN_DOUBT or operation.due_at is None:
        return None
    if (doubt := _from_before(facts, operation, limits)) is not None:
        return doubt
    return _renewed(facts, operation, now, limits)


def in_doubt(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """in doubt, no more pushes
    | point read: ready is success, a row is acceptance, absent after the last push: push again
    """
    operation = facts.operation
    if operation is None or operation.state is not S.IN_DOUBT:
        return None
    wait = _watch(operation, now, limits)
    match facts.point:
        case NotRead():
            return Decision(Need(NeedKind.POINT_READ), after=limits.watch_first)
        case Unknown():
            return Decision(Wait(), "provisioning", "backend_silent", wait)
        case Absent():
            if operation.last_dispatched_at is None or now - operation.last_dispatched_at > limits.late_push:
                return Decision(Push(operation.id), "provisioning", "", limits.longest)
            return Decision(Wait(), "provisioning", "in_doubt", wait)
        case ProvisionFact(status="ready"):
            return Decision(RecordOutcome(operation.id, S.SUCCEEDED), after=limits.at_once)
        case ProvisionFact():
            return Decision(RecordOutcome(operation.id, S.ACCEPTED), "provisioning", "", limits.at_once)


def confirmed_by_a_walk(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """accepted a while ago, and its backend's list says ready or failed | that is the outcome; the callback was lost"""
    operation = facts.operation
    if operation is None or operation.state is not S.ACCEPTED or operation.first_dispatched_at is None:
        return None
    if now - operation.first_dispatched_at < limits.confirm_after:
        return None
    row = next((one for one in facts.listed if one.is_ours and one.backend == operation.backend), None)
    if row is None or row.status not in {"ready", "failed"}:
        return None
    if row.status == "ready":
        return Decision(RecordOutcome(operation.id, S.SUCCEEDED), after=limits.at_once)
    return Decision(RecordOutcome(operation.id, S.FAILED), after=limits.at_once)


def accepted(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """accepted, within the time limit | wait for the callback"""
    operation = facts.operation
    if operation is None:
        return None
    left = limits.callback_timeout
    if operation.first_dispatched_at is not None:
        left -= now - operation.first_dispatched_at
    soonest = timedelta(milliseconds=10)
    return Decision(Wait(), "provisioning", "", max(min(left, limits.longest), soonest))


TABLE = (
    succeeded_active,
    succeeded_pending,
    no_room,
    failed_pending,
    failed_active,
    ended_elsewhere,
    backend_closed,
    past_the_limit,
    reserved,
    in_doubt_being_pushed,
    in_doubt,
    confirmed_by_a_walk,
    accepted,
)


def _is_bound(facts: LeaseFacts) -> bool:
    """Whether the lease belongs to its backend for good, so that no other may get it."""
    return facts.placement is not None and facts.placement.status != "attempted"


def _is(operation: OperationFact | None, state: OperationState) -> bool:
    return operation is not None and operation.state is state


def _reason(operation: OperationFact) -> str:
    if operation.state is S.REFUSED:
        return rejection(operation.refusal)
    if operation.refusal == TIMED_OUT:
        return CALLBACK_TIMEOUT
    return chain_reason(operation.error)


def _from_before(facts: LeaseFacts, operation: OperationFact, limits: Limits) -> Decision | None:
    """A wait, if the operation is older than what this database vouches for and nothing was walked since."""
    trusted = facts.world.trusted_from_at
    if (trusted is None or operation.created_at < trusted) and not facts.is_walked():
        return Decision(Wait(), "provisioning", "inventory_pending", limits.source_retry)
    return None


def _renewed(facts: LeaseFacts, operation: OperationFact, now: datetime, limits: Limits) -> Decision:
    reason = "backend_silent" if operation.refusal == NOT_SENT else ""
    if operation.due_at is None or operation.valid_until is None or operation.valid_until <= now:
        return Decision(Push(operation.id), "provisioning", reason, limits.longest)
    return Decision(Wait(), "provisioning", reason, min(operation.valid_until - now, limits.longest))


def _another_answers(facts: LeaseFacts, backend: str) -> bool:
    """Whether a backend other than this one serves the lease's SKU, takes work, and has answered a walk."""
    return any(
        one.name != backend
        and facts.sku in one.skus
        and one.takes_leases
        and not one.breaker_open
        and one.answers
        and one.walked_at is not None
        for one in facts.world.backends
    )


def _watch(operation: OperationFact, now: datetime, limits: Limits) -> timedelta:
    """The older the doubt, the rarer the reads: half its age, between the first and the longest interval."""
    since = operation.last_dispatched_at or operation.created_at
    return min(max((now - since) / 2, limits.watch_first), limits.watch_longest)
