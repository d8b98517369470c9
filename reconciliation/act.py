"""One function per decision that changes anything. The only module that writes across apps.

Every function gets the leases for which a look decided that act, all of them locked and still at the epoch that the
look claimed, inside the transaction of its finish. It writes rows only: what must leave the house is pushed from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final
from uuid import UUID, uuid4

from django.conf import settings

from fred import counting, metrics
from leases import events
from placements import transitions
from placements.callback_urls import callback_urls
from placements.outcomes import RESTARTING
from placements.status import OperationState
from reconciliation import act_sql as sql
from reconciliation import command_acts
from reconciliation import decisions as d
from reconciliation.facts_types import LeaseFacts, OperationFact, PayloadFact
from reconciliation.texts import TIMED_OUT

VALID_FOR = timedelta(seconds=60)
"""How long an operation, a reject or a close may be pushed before its lease must be looked at again."""
PAYLOAD_KEPT_FOR = timedelta(hours=1)
"""How long the payload of an ended lease stays, so that a wrong reading can be corrected."""


@dataclass(frozen=True, slots=True)
class Decided:
    """A lease with its facts, what was decided, and the epoch that the finish left."""

    facts: LeaseFacts
    decision: d.Decision
    epoch: int

    @property
    def uuid(self) -> UUID:
        """The lease."""
        return self.facts.uuid

    @property
    def act(self) -> Any:
        """The decided act; each function knows its own type."""
        return self.decision.act


@dataclass(slots=True)
class Outcome:
    """What a finish left to do after its commit: whom to tell."""

    dispatch: bool = False
    lanes: bool = False
    events: list[tuple[UUID, str, str]] = field(default_factory=list)

    def tell(self, lease: UUID, status: str, error: str = "") -> None:
        """A status event for the lease's subscribers."""
        self.events.append((lease, status, error))


def start_provision(leases: Sequence[Decided], outcome: Outcome) -> None:
    """Write the attempt and its placement before any call."""
    base = settings.FRED.callback_base_url
    rows = []
    for one in leases:
        id_ = uuid4()
        urls = callback_urls(base, id_)
        payload = one.facts.payload
        digest = payload.sha256 if isinstance(payload, PayloadFact) else None
        rows.append((id_, one.uuid, one.act.backend, digest, urls.operation, urls.lifecycle))
        outcome.tell(one.uuid, "provisioning")
    sql.insert_operations(rows, valid_for=VALID_FOR)
    counting.count(metrics.RECONCILER_ACTIONS.labels("provisioned"), len(leases))
    outcome.dispatch = True


def push(leases: Sequence[Decided], outcome: Outcome) -> None:
    """Make operations due again, with a new validity."""
    sql.renew_operations([one.act.operation for one in leases], valid_for=VALID_FOR)
    outcome.dispatch = True


def record_outcome(leases: Sequence[Decided], outcome: Outcome) -> None:
    """Move operations by what a read of the backend, or the clock, said."""
    groups: dict[tuple[OperationState, str, str], dict[UUID, int | None]] = {}
    for one in leases:
        groups.setdefault((one.act.to, one.act.refusal, one.act.error), {})[one.act.operation] = None
    for (to, refusal, error), operations in groups.items():
        moved = transitions.move(operations, to, refusal=refusal, error=error)
        if to is OperationState.ACCEPTED:
            sql.stop_pushing(moved)
        if refusal == TIMED_OUT:
            counting.count(metrics.CALLBACK_TIMEOUTS, len(moved))
    for one in leases:
        operation = one.facts.operation
        if operation is not None and operation.is_restore and one.act.to is OperationState.ACCEPTED:
            outcome.tell(one.uuid, RESTARTING)


def give_up(leases: Sequence[Decided], outcome: Outcome) -> None:
    """End and settle operations of which nothing is at their backend; forget a placement that only they made."""
    for one in leases:
        transitions.move({one.act.operation: None}, OperationState.ENDED, refusal=one.act.refusal)
    _settle(leases, outcome="error")
    sql.delete_attempted_placements([one.uuid for one in leases])


def settle(leases: Sequence[Decided], outcome: Outcome) -> None:
    """Close operations; a success confirms the placement, a refusal for lack of room takes an attempted one back."""
    ready = [one for one in leases if one.act.event == "ready"]
    unmade = [one for one in leases if not one.act.event]
    _settle(ready, outcome="success")
    _settle_failed([one for one in leases if one.act.event == "failed"])
    _settle(unmade, outcome="error")
    sql.confirm_placements({one.uuid: one.act.operation for one in ready})
    sql.delete_attempted_placements([one.uuid for one in unmade])
    for one in leases:
        if one.act.event:
            outcome.tell(one.uuid, one.act.event, one.act.error)


def end_with_lease(leases: Sequence[Decided], outcome: Outcome) -> None:
    """End operations whose lease is over; their placement stays, for the teardown."""
    transitions.move({one.act.operation: None for one in leases}, OperationState.ENDED, refusal="lease_ended")
    _settle_failed(leases)
    sql.delete_untouched_placements([one.uuid for one in leases])
    sql.let_go_of_payloads([one.uuid for one in leases], kept_for=PAYLOAD_KEPT_FOR)
    for one in leases:
        if one.act.event:
            outcome.tell(one.uuid, one.act.event, one.act.error)


def acknowledge(leases: Sequence[Decided], outcome: Outcome) -> None:
    """Write the wish to acknowledge; where a backend was found to hold the lease, take it as the owner.

    A rejection that was wished for earlier and is not signed yet is moot by that.
    """
    sql.adopt({one.uuid: one.act.adopt for one in leases if one.act.adopt})
    sql.drop_actions([one.uuid for one in leases], verb="reject")
    sql.want([(one.uuid, "ack", "", one.act.operation, None) for one in leases], valid_for=None)
    counting.count(metrics.RECONCILER_ACTIONS.labels("acknowledged"), sum(one.act.operation is None for one in leases))
    outcome.lanes = True


def adopt(leases: Sequence[Decided], outcome: Outcome) -> None:
    """Take the backend that lists the lease as its owner."""
    sql.adopt({one.uuid: one.act.backend for one in leases})


def reject(leases: Sequence[Decided], outcome: Outcome) -> None:
    """Write, or renew, the wish to reject; it falls if the lease moves on from here."""
    sql.want(
        [(one.uuid, "reject", one.act.reason, one.act.operation, one.epoch) for one in leases], valid_for=VALID_FOR
    )
    outcome.lanes = True


def close(leases: Sequence[Decided], outcome: Outcome) -> None:
    """Write, or renew, the wish to close; it falls if the lease moves on from here."""
    sql.want([(one.uuid, "close", one.act.reason, None, one.epoch) for one in leases], valid_for=VALID_FOR)
    outcome.lanes = True


def drop_actions(leases: Sequence[Decided], outcome: Outcome) -> None:
    """Nobody signs anything more for these leases."""
    sql.drop_actions([one.uuid for one in leases])


def send_teardown(leases: Sequence[Decided], outcome: Outcome) -> None:
    """Want what backends hold removed; the payload goes a while later."""
    sql.want_teardowns([(one.uuid, backend, one.act.cause) for one in leases for backend in one.act.backends])
    sql.let_go_of_payloads([one.uuid for one in leases], kept_for=PAYLOAD_KEPT_FOR)
    counting.count(metrics.RECONCILER_ACTIONS.labels("deprovisioned"), sum(bool(one.facts.listed) for one in leases))
    for one in leases:
        if one.facts.last_status != "deprovisioning":
            outcome.tell(one.uuid, "deprovisioning")
    outcome.dispatch = True


def park_teardown(leases: Sequence[Decided], outcome: Outcome) -> None:
    """Put parts of removals aside: nobody pushes them until their backend takes calls again."""
    sql.park_teardowns([(one.uuid, backend) for one in leases for backend in one.act.backends])
    for one in leases:
        counting.count(metrics.DEFERRED_CLOSES.labels("parked", one.decision.reason), len(one.act.backends))


def resume_teardown(leases: Sequence[Decided], outcome: Outcome) -> None:
    """Go on with what was put aside."""
    sql.resume_teardowns([(one.uuid, backend) for one in leases for backend in one.act.backends])
    counting.count(
        metrics.DEFERRED_CLOSES.labels("dispatched", "backend_fenced"), sum(len(one.act.backends) for one in leases)
    )
    outcome.dispatch = True


def announce(leases: Sequence[Decided], outcome: Outcome) -> None:
    """Tell subscribers, and mark the callbacks as used."""
    for one in leases:
        for status, error in one.act.events:
            outcome.tell(one.uuid, status, error)
    sql.apply_callbacks([id_ for one in leases for id_ in one.act.callbacks])
    ended = [one.uuid for one in leases if one.facts.is_ended]
    sql.let_go_of_payloads(ended, kept_for=PAYLOAD_KEPT_FOR)


ACTS: Mapping[type, Callable[[Sequence[Decided], Outcome], None]] = {
    d.StartProvision: start_provision,
    d.Push: push,
    d.RecordOutcome: record_outcome,
    d.GiveUp: give_up,
    d.Settle: settle,
    d.EndWithLease: end_with_lease,
    d.Acknowledge: acknowledge,
    d.Adopt: adopt,
    d.Reject: reject,
    d.Close: close,
    d.DropActions: drop_actions,
    d.SendTeardown: send_teardown,
    d.ParkTeardown: park_teardown,
    d.ResumeTeardown: resume_teardown,
    d.Announce: announce,
    **command_acts.ACTS,
}
"""Acts that write rows; what is not here (Rest, Wait, Need) changes nothing but the lease itself."""

WRITES_PLACEMENTS: Final = (d.StartProvision, d.Settle, d.GiveUp, d.EndWithLease, d.Acknowledge, d.Adopt)
"""Acts that say where a lease is, or that it is nowhere."""

TOUCHES: Final = (
    d.StartProvision,
    d.Push,
    d.RecordOutcome,
    d.GiveUp,
    d.Settle,
    d.EndWithLease,
    d.SendTeardown,
    d.Conclude,
    d.EndCommands,
)
"""Acts about something at a backend's side. The finish says so of their leases, in the update that it makes anyway."""


def act(decided: Iterable[Decided]) -> Outcome:
    """Write the acts of these leases, all of a kind together, and their status events."""
    outcome = Outcome()
    kinds: dict[type, list[Decided]] = {}
    for one in decided:
        kinds.setdefault(type(one.act), []).append(one)
    for kind, function in ACTS.items():
        if leases := kinds.get(kind):
            function(leases, outcome)
    events.record(outcome.events)
    return outcome


def _settle_failed(leases: Sequence[Decided]) -> None:
    """Close operations; what the backend itself reported as failed counts as that, any other end as an error."""
    reported: list[Decided] = []
    others: list[Decided] = []
    for one in leases:
        (reported if _is_reported_failure(one.facts.operation) else others).append(one)
    _settle(reported, outcome="failed")
    _settle(others, outcome="error")


def _is_reported_failure(operation: OperationFact | None) -> bool:
    return operation is not None and operation.state is OperationState.FAILED and operation.refusal != TIMED_OUT


def _settle(leases: Sequence[Decided], *, outcome: str) -> None:
    if not leases:
        return
    settled = sql.settle_operations([one.act.operation for one in leases])
    for backend, kind, seconds in settled:
        counting.count(metrics.PROVISIONINGS.labels(outcome, backend, kind))
        if seconds is not None:
            counting.observe(metrics.PROVISIONING_SECONDS.labels(backend, kind), seconds)
