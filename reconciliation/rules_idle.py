"""Rules for a live lease without an open operation: start it, adopt it, or leave it alone."""

from __future__ import annotations

from datetime import datetime

from reconciliation.decisions import Acknowledge, Adopt, Decision, Need, Reject, Rest, StartProvision, Wait
from reconciliation.facts_types import LeaseFacts, Limits, ListedLease, NeedKind, PayloadFact, ProvisionFact, Unknown
from reconciliation.texts import PAYLOAD_CORRUPTED, PROVISIONING_FAILED


def ack_open(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """PENDING, an acknowledgement is on its way | wait for the lane"""
    ack = facts.action("ack")
    if not facts.is_pending or ack is None or not ack.is_open:
        return None
    return Decision(Wait(), "acking", "", limits.longest)


def reject_in_tx(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """PENDING, a rejection is signed | wait for the lane"""
    reject = facts.action("reject")
    if not facts.is_pending or reject is None or reject.state != "in_tx":
        return None
    return Decision(Wait(), "rejecting", "", limits.longest)


def several_list_it(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """live, listed by several backends, or by another than its owner | wait; an operator decides"""
    reporters = {one.backend for one in facts.listed if one.is_ours}
    if facts.placement is not None and reporters:
        reporters.add(facts.placement.backend)
    if len(reporters) < 2:
        return None
    phase = "degraded" if facts.is_active else "queued"
    return Decision(Wait(), phase, "conflict", limits.longest)


def listed_at_closed(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """live, listed by a backend that is fenced or in no known dialect | wait; nothing is concluded from its list"""
    closed = {one.name: one for one in facts.world.backends if one.configured and not one.takes_calls}
    known = [closed[one.backend] for one in facts.listed if one.is_ours and one.backend in closed]
    if not known:
        return None
    phase = "active" if facts.is_active else "queued"
    reason = "backend_fenced" if any(one.fenced for one in known) else "backend_dialect"
    return Decision(Wait(), phase, reason, limits.longest)


def found_ready(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """PENDING, a backend lists it as ready | adopt it and acknowledge on chain"""
    row = _row(facts)
    if not facts.is_pending or row is None or row.status != "ready":
        return None
    return Decision(Acknowledge(adopt=row.backend), "acking", after=limits.longest)


def found_failed(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """PENDING by an exact read, a backend lists it as failed | reject on chain"""
    row = _row(facts)
    if not facts.is_pending or row is None or row.status != "failed":
        return None
    if not facts.is_exact:
        return Decision(Need(NeedKind.EXACT_READ), after=limits.stale_retry)
    return Decision(Reject(PROVISIONING_FAILED), "rejecting", after=limits.longest)


def found_in_progress(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """PENDING, a backend lists it in another state | wait for it"""
    if not facts.is_pending or _row(facts) is None:
        return None
    return Decision(Wait(), "provisioning", "", limits.longest)


def data_retained(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """PENDING, a backend keeps data under its uuid | wait; a fresh volume must not cover it"""
    if not facts.is_pending or not facts.retained_at:
        return None
    return Decision(Wait(), "queued", "retained_live", limits.longest)


def payload_corrupt(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """PENDING by an exact read, the stored payload is not what was uploaded | reject on chain: `payload corrupted`"""
    if not facts.is_pending or not isinstance(facts.payload, PayloadFact) or facts.payload.intact:
        return None
    if not facts.is_exact:
        return Decision(Need(NeedKind.EXACT_READ), reason="payload_corrupt", after=limits.stale_retry)
    return Decision(Reject(PAYLOAD_CORRUPTED), "rejecting", "payload_corrupt", limits.longest)


def payload_unreadable(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """PENDING, what was recorded of its payload can't be read | wait; nothing is sent, and nothing ended, for it"""
    if not facts.is_pending or not isinstance(facts.payload, Unknown):
        return None
    return Decision(Wait(), "queued", "payload_unreadable", limits.longest, failed=True)


def awaiting_payload(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """PENDING, its payload is not uploaded | rest until the upload, or until the chain expires it"""
    if not facts.is_pending or not facts.waits_for_payload:
        return None
    return Decision(Rest(), "awaiting_payload", "payload_missing")


def unknown_past(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """PENDING, from before this database can vouch for, backends not walked since | wait for a complete walk"""
    if not facts.is_pending or facts.is_walked():
        return None
    trusted = facts.world.trusted_from_at
    if facts.placement is not None and trusted is not None and facts.placement.set_at >= trusted:
        return None
    if facts.placement is None and facts.is_trusted():
        return None
    return Decision(Wait(), "queued", "inventory_pending", limits.source_retry)


def backing_off(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """PENDING, the last try ended a moment ago | wait out the back-off"""
    history = facts.history
    if not facts.is_pending or history.failures == 0 or history.last_ended_at is None:
        return None
    left = history.last_ended_at + limits.back_off(history.failures) - now
    if left <= limits.at_once:
        return None
    reason = "capacity" if history.last_refusal == "insufficient_resources" else "backoff"
    return Decision(Wait(), "queued", reason, left)


def head_too_old(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """PENDING as stored, but the watcher has seen no block for a while | read the lease exactly first"""
    age = facts.world.head_age
    if not facts.is_pending or not isinstance(facts.chain, ListedLease):
        return None
    if age is not None and age <= limits.head_may_age:
        return None
    return Decision(Need(NeedKind.EXACT_READ), after=limits.source_retry)


def owner_unconfigured(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """PENDING, its placement names a backend that is not configured | wait; no other is chosen"""
    if not facts.is_pending or facts.placement is None or facts.world.backend(facts.placement.backend) is not None:
        return None
    return Decision(Wait(), "queued", "backend_unconfigured", limits.longest)


def owner_closed(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """PENDING, its placement names a backend that is fenced or in no known dialect | wait; no other is chosen"""
    if not facts.is_pending or facts.placement is None:
        return None
    owner = facts.world.backend(facts.placement.backend)
    if owner is None or owner.takes_calls:
        return None
    reason = "backend_fenced" if owner.fenced else "backend_dialect"
    return Decision(Wait(), "queued", reason, limits.longest)


def ready_to_provision(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """PENDING, nothing stands in the way
    | provision: on its owner, else where routing says (no backend, no room: wait)
    """
    if not facts.is_pending:
        return None
    owner = facts.placement.backend if facts.placement is not None else None
    return Decision(StartProvision(owner), "provisioning", after=limits.longest)


def active_unowned(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """ACTIVE, listed by one backend, not yet confirmed as its owner | adopt it"""
    row = _row(facts)
    if not facts.is_active or row is None:
        return None
    if facts.placement is not None and facts.placement.status == "confirmed":
        return None
    return Decision(Adopt(row.backend), "active", after=limits.at_once)


def active_failed(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """ACTIVE, its backend lists or reported it as failed | rest, degraded"""
    row = _row(facts)
    if not facts.is_active:
        return None
    if row.status != "failed" if row is not None else facts.last_status != "failed":
        return None
    return Decision(Rest(), "degraded", "failed")


def active_missing(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """ACTIVE, missing from a complete walk of its backend, or of all | wait, degraded, with the reason"""
    if not facts.is_active or _row(facts) is not None:
        return None
    if facts.placement is not None:
        if facts.placement.backend not in facts.absent_at:
            return None
    elif not facts.is_walked():
        return Decision(Wait(), "observed", "inventory_pending", limits.source_retry)
    reason = "missing"
    if facts.waits_for_payload:
        reason = "payload_missing"
    elif isinstance(facts.payload, PayloadFact) and not facts.payload.intact:
        reason = "payload_corrupt"
    elif isinstance(facts.payload, Unknown):
        reason = "payload_unreadable"
    return Decision(Wait(), "degraded", reason, limits.late_retry)


def active_confirmed(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """ACTIVE, nothing speaks against it | rest"""
    return Decision(Rest(), "active") if facts.is_active else None


PENDING = (
    ack_open,
    reject_in_tx,
    several_list_it,
    listed_at_closed,
    found_ready,
    found_failed,
    found_in_progress,
    data_retained,
    payload_corrupt,
    payload_unreadable,
    awaiting_payload,
    unknown_past,
    backing_off,
    head_too_old,
    owner_unconfigured,
    owner_closed,
    ready_to_provision,
)
ACTIVE = (active_unowned, active_failed, active_missing, active_confirmed)


def _row(facts: LeaseFacts) -> ProvisionFact | None:
    """The first of our own rows that a fresh complete walk lists."""
    return next((one for one in facts.listed if one.is_ours), None)
