"""Rules for a live lease into which its tenant wanted data of another restored, where they differ from a provision's.

What a backend took is watched, confirmed and acknowledged like a provision. What it did not take says nothing against
the lease: its tenant was told, and may still upload, restore from elsewhere, or cancel.
"""

from __future__ import annotations

from datetime import datetime

from placements.status import NOT_SENT, OperationState
from reconciliation.decisions import Decision, GiveUp, Settle
from reconciliation.facts_types import LeaseFacts, Limits

S = OperationState


def restore_unsent(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """restore, nothing sent | give it up: nobody waits for it any more; the lease is looked at afresh"""
    operation = facts.operation
    if operation is None or not operation.is_restore or operation.state is not S.RESERVED:
        return None
    return Decision(GiveUp(operation.id, NOT_SENT), "queued", "backoff", limits.at_once)


def restore_refused(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """restore, refused or ended without an effect | settle without an event; the lease is looked at afresh"""
    operation = facts.operation
    if operation is None or not operation.is_restore or operation.state not in {S.REFUSED, S.ENDED}:
        return None
    return Decision(Settle(operation.id), "degraded" if facts.is_active else "queued", "backoff", limits.at_once)


TABLE = (restore_unsent, restore_refused)
