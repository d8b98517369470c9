"""Rules for a lease that the chain, read exactly, calls ended."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from placements.status import OperationState
from reconciliation.decisions import (
    Announce,
    Decision,
    DropActions,
    EndWithLease,
    ParkTeardown,
    Rest,
    ResumeTeardown,
    SendTeardown,
    Wait,
)
from reconciliation.facts_types import ExactLease, LeaseFacts, Limits
from reconciliation.texts import CALLBACK_TIMEOUT, ENDINGS, PROVISIONING_FAILED, TIMED_OUT, rejection

TOLD = frozenset({"failed", "deprovisioning", "retained"})
"""Status events after which a subscriber knows that the lease is over."""


def on_the_wire(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """ended, while a provision may be on the wire | wait for its answer, or for its latest end"""
    operation = facts.operation
    if not facts.is_ended or operation is None or operation.on_wire_until is None or not operation.is_on_wire(now):
        return None
    return Decision(Wait(), "tearing_down", "provision_on_wire", min(operation.on_wire_until - now, limits.longest))


def open_operation(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """ended, with an open operation | end the operation; tell of a failure that was not told yet"""
    operation = facts.operation
    if not facts.is_ended or operation is None:
        return None
    event = error = ""
    if operation.state is OperationState.FAILED:
        event = "failed"
        error = CALLBACK_TIMEOUT if operation.refusal == TIMED_OUT else operation.error or PROVISIONING_FAILED
    elif operation.state is OperationState.REFUSED and not operation.is_restore:
        event, error = "failed", rejection(operation.refusal)
    return Decision(EndWithLease(operation.id, event, error), "tearing_down", after=limits.at_once)


def open_actions(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """ended, with a wish waiting to be signed | the wish is moot"""
    if not facts.is_ended or not any(one.state == "queued" for one in facts.actions):
        return None
    return Decision(DropActions(), "tearing_down", after=limits.at_once)


def something_at_a_backend(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """ended, and a backend has, may have or again lists something of it | have it removed there"""
    if not isinstance(facts.chain, ExactLease) or not facts.is_ended:
        return None
    done = {one.backend for one in facts.teardowns}
    wanted = {one.backend for one in facts.listed if one.is_ours and one.status != "deprovisioning"}
    wanted -= {one.backend for one in facts.teardowns if not one.is_done}
    if facts.placement is not None and facts.placement.backend not in done:
        wanted.add(facts.placement.backend)
    if not wanted and not done and facts.placement is None and not facts.is_trusted():
        wanted = {one.name for one in facts.world.backends if one.configured and one.name not in facts.absent_at}
    if not wanted:
        return None
    cause = ENDINGS[facts.chain.state]
    after = limits.at_once if wanted & _closed(facts) else limits.longest  # what can't be sent is put aside next
    return Decision(SendTeardown(tuple(sorted(wanted)), cause), "tearing_down", after=after)


def teardown_closed(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """ended, a removal is to be sent to a backend that is fenced or in no known dialect | put it aside"""
    if not facts.is_ended:
        return None
    closed = _closed(facts)
    wanted = sorted(one.backend for one in facts.teardowns if one.state == "open" and one.backend in closed)
    if not wanted:
        return None
    return Decision(ParkTeardown(tuple(wanted)), "tearing_down", _why_parked(facts, wanted), limits.longest)


def teardown_reopened(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """ended, a removal was put aside and its backend takes calls again | go on with it"""
    if not facts.is_ended:
        return None
    opened = {one.name for one in facts.world.backends if one.takes_calls}
    wanted = sorted(one.backend for one in facts.teardowns if one.is_parked and one.backend in opened)
    return Decision(ResumeTeardown(tuple(wanted)), "tearing_down", after=limits.longest) if wanted else None


def teardown_open(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """ended, and a backend has yet to confirm the removal | wait; the sender repeats it"""
    if not facts.is_ended or all(one.is_done for one in facts.teardowns):
        return None
    waiting = [one for one in facts.teardowns if not one.is_done]
    reason = "backend_unconfigured" if any(facts.world.backend(one.backend) is None for one in waiting) else ""
    if parked := [one.backend for one in waiting if one.is_parked]:
        reason = reason or _why_parked(facts, parked)
    if not reason and any(one.last_error for one in waiting):
        reason = "backend_silent"
    return Decision(Wait(), "tearing_down", reason, limits.longest)


def rejection_undecided(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """REJECTED while our rejection is signed, subscribers not told | wait for the lane: was it ours?"""
    reject = facts.action("reject")
    if not facts.is_ended or facts.last_status in TOLD or reject is None or reject.state != "in_tx":
        return None
    return Decision(Wait(), "tearing_down", "", limits.longest)


def end_untold(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """ended, nothing at a backend, subscribers not told | announce the end"""
    if not isinstance(facts.chain, ExactLease) or not facts.is_ended or facts.last_status in TOLD:
        return None
    reject = facts.action("reject")
    ours = reject.reason if reject is not None and reject.state == "done" else ""
    return Decision(Announce((("failed", ours or ENDINGS[facts.chain.state]),)), "ended", after=limits.at_once)


def over(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """ended, everything removed | rest; the placement stays until it is pruned"""
    if not facts.is_ended:
        return None
    kept = facts.retained_at or facts.last_status == "retained"
    return Decision(Rest(), "retained" if kept else "ended")


def _closed(facts: LeaseFacts) -> set[str]:
    """Configured backends that are closed to calls."""
    return {one.name for one in facts.world.backends if one.configured and not one.takes_calls}


def _why_parked(facts: LeaseFacts, backends: Iterable[str]) -> str:
    fenced = any((one := facts.world.backend(name)) is not None and one.fenced for name in backends)
    return "backend_fenced" if fenced else "backend_dialect"


TABLE = (
    on_the_wire,
    open_operation,
    open_actions,
    something_at_a_backend,
    teardown_closed,
    teardown_reopened,
    teardown_open,
    rejection_undecided,
    end_untold,
    over,
)
