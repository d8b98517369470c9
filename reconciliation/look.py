"""A look: claim leases that are due, gather their facts, decide, and finish with the acts in one transaction.

This is the only path by which anything is done for a lease: the happy case, recovery after a crash, and repair.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from uuid import UUID

import structlog
from django.db import Error, transaction

from fred import crash, due, metrics
from fred.tasks import DISPATCH, LANES, LOOK, hint
from leases.models import Lease
from placements import dispatch, routing
from reconciliation import act_sql, facts, facts_sql, placement_writes, rotation, waiting_sql
from reconciliation.act import TOUCHES, WRITES_PLACEMENTS, Decided, Outcome, act
from reconciliation.decide import decide
from reconciliation.decisions import Decision, Need, Rest, StartProvision, Wait
from reconciliation.facts_types import LeaseFacts, Limits, NeedKind, WorldFact
from reconciliation.sources import Sources

log = structlog.get_logger(__name__)

LOOK_LIMIT_S = 30.0
"""No claim of a look is renewed for longer."""
ROUNDS = 2
"""How often a decision may ask for more facts."""
CROWDS = (due.BATCH, 64, 8)
"""How many share a look that were claimed once, twice, three times without a finish; after that each is alone."""

Gather = Callable[[Mapping[UUID, int], Sources], tuple[dict[UUID, LeaseFacts], datetime]]


@dataclass(slots=True)
class Looker:
    """Looks with given sources and limits. ``gather`` can be replaced where a test counts what a look has seen."""

    sources: Sources = field(default_factory=Sources)
    limits: Limits = field(default_factory=Limits)
    gather: Gather = facts.gather
    pushes: bool = True
    """Whether this process's sender is told of new work at once, or only through the broker."""

    def at_due_leases(self, limit: int = due.BATCH) -> int:
        """Look at what is due until nothing is; return how many looks were finished or given back."""
        looked = 0
        while True:
            hint.taken(LOOK)
            claimed_at = time.monotonic()
            claims = due.claim(Lease, limit)
            if not claims:
                return looked
            crash.point("look.claimed")
            if len(claims) == limit:
                hint.send(LOOK)
            looked += len(claims)
            again = self.at_claimed(claims, claimed_at)
            if len(claims) < limit and not again:
                return looked

    def at_claimed(self, claims: Sequence[due.Claim], claimed_at: float) -> bool:
        """Look at these claimed leases; return whether one of them wants another look at once.

        A lease that was claimed before without a finish shares its look with ever fewer others: one that kills its look
        soon kills only its own, and what a killed process left behind is still done in a few looks.
        """
        epochs = {claim.pk: claim.epoch for claim in claims}
        again = False
        with due.holding(Lease, epochs, seconds=LOOK_LIMIT_S, claimed_at=claimed_at) as held:
            for group in _crowds(claims):
                again |= self._split(group)
                held.drop([claim.pk for claim in group])
        return again

    def _split(self, claims: Sequence[due.Claim]) -> bool:
        """Look at all of them; on an exception at each half, so that one bad lease costs only itself."""
        try:
            return self._look({claim.pk: claim.epoch for claim in claims}, {c.pk: c.attempts for c in claims})
        except Error as error:
            if getattr(error.__cause__, "sqlstate", None) is None:
                raise  # the database is away: the claims end by themselves
            failure: Exception = error
        except Exception as error:  # noqa: BLE001 - whatever one lease raises must not stop the others
            failure = error
        if len(claims) > 1:
            middle = len(claims) // 2
            return self._split(claims[:middle]) | self._split(claims[middle:])
        self._fail(claims[0], failure)
        return False

    @staticmethod
    def _fail(claim: due.Claim, error: Exception) -> None:
        """Put a lease off whose look raised, with what it died of; it is never dropped."""
        log.error("look failed", lease_uuid=str(claim.pk), attempts=claim.attempts, exc_info=error)
        metrics.RECONCILER_ACTIONS.labels("lease_error").inc()
        metrics.LOOK_CRASHES.labels("process_lease").inc()
        if claim.attempts == due.STUCK_AFTER:
            metrics.STUCK_LEASES.inc()
        text = f"{type(error).__name__}: {error}"[:500]
        with transaction.atomic():
            act_sql.finish([(claim.pk, claim.epoch, None, "error", due.back_off(claim.attempts), text, False)])

    def _look(self, epochs: Mapping[UUID, int], attempts: Mapping[UUID, int]) -> bool:
        known, now = self.gather(epochs, self.sources)
        crash.point("look.gathered")
        if not known:
            return True
        decisions = {uuid: decide(one, now, self.limits) for uuid, one in known.items()}
        for _ in range(ROUNDS):
            needs = {uuid: one.act.kind for uuid, one in decisions.items() if isinstance(one.act, Need)}
            if not needs:
                break
            now = self._fetch(known, needs, epochs)
            for uuid in needs:
                decisions[uuid] = decide(known[uuid], now, self.limits)
        for uuid, one in decisions.items():
            if isinstance(one.act, Need):
                decisions[uuid] = replace(one, act=Wait(), reason=one.reason or "facts_unread")
        _route(decisions, known, self.sources)
        outcome, again = _finish(epochs, attempts, decisions, known)
        crash.point("look.finished")
        if outcome.dispatch:
            if self.pushes:
                dispatch.sender().pull()
            hint.send(DISPATCH)
        if outcome.lanes:
            hint.send(LANES)
        return again

    def _fetch(
        self, known: dict[UUID, LeaseFacts], needs: Mapping[UUID, NeedKind], epochs: Mapping[UUID, int]
    ) -> datetime:
        """Get the facts that were asked for, into ``known``; return the time they are of."""
        exact = [uuid for uuid, kind in needs.items() if kind is NeedKind.EXACT_READ]
        for uuid, chain in facts.exact_reads(exact, epochs, self.sources).items():
            known[uuid] = replace(known[uuid], chain=chain)
        wanted = {
            uuid: operation.backend
            for uuid, kind in needs.items()
            if kind is NeedKind.POINT_READ and (operation := known[uuid].operation) is not None
        }
        for uuid, point in self.sources.point_reads(wanted).items():
            known[uuid] = replace(known[uuid], point=point)
        shown = {
            uuid: known[uuid].commands[-1].backend
            for uuid, kind in needs.items()
            if kind is NeedKind.MAINTENANCE_READ and known[uuid].commands
        }
        for uuid, maintenance in self.sources.maintenance_reads(shown).items():
            known[uuid] = replace(known[uuid], maintenance=maintenance)
        return facts_sql.now()


def _crowds(claims: Iterable[due.Claim]) -> Iterator[list[due.Claim]]:
    by_attempts: dict[int, list[due.Claim]] = {}
    for claim in claims:
        by_attempts.setdefault(min(claim.attempts, len(CROWDS) + 1), []).append(claim)
    for attempts, several in sorted(by_attempts.items()):
        size = CROWDS[attempts - 1] if attempts <= len(CROWDS) else 1
        yield from (several[start : start + size] for start in range(0, len(several), size))


def _route(decisions: dict[UUID, Decision], known: Mapping[UUID, LeaseFacts], sources: Sources) -> None:
    """Give every provision without an owner a backend; without one it becomes a wait."""
    wanted = {
        uuid: known[uuid].sku
        for uuid, one in decisions.items()
        if isinstance(one.act, StartProvision) and one.act.backend is None
    }
    if not wanted:
        return
    world = next(iter(known.values())).world
    candidates = _candidates(world)
    competing = routing.undecided(wanted.values(), candidates)
    loads = {
        name: routing.Load(figures.cpu_ratio, figures.disk_withheld)
        for name, figures in (sources.loads(competing) if competing else {}).items()
    }
    routed = routing.route(
        wanted, candidates, loads=loads, in_flight=facts_sql.flying() if competing else {}, turn=rotation.next_turn
    )
    if routed.fallbacks:
        metrics.ROUTING_FALLBACKS.inc(routed.fallbacks)
    for uuid in wanted:
        backend = routed.given.get(uuid)
        if backend is None:
            decisions[uuid] = Decision(Wait(), "queued", "no_backend", timedelta(seconds=30))
        else:
            decisions[uuid] = replace(decisions[uuid], act=StartProvision(backend))


def _candidates(world: WorldFact) -> list[routing.Candidate]:
    """The configured backends for routing; one known not to answer yields to one of the same SKU that does."""
    configured = [one for one in world.backends if one.configured]
    sick = {one.name for one in configured if one.breaker_open or not one.answers}
    well = [one for one in configured if one.name not in sick]
    found = []
    for one in configured:
        replaced = one.name in sick and any(one.skus & other.skus for other in well)
        if not replaced:
            found.append(routing.Candidate(one.name, one.skus, is_default=one.is_default, takes_work=one.takes_leases))
    return found


def _finish(
    epochs: Mapping[UUID, int],
    attempts: Mapping[UUID, int],
    decisions: Mapping[UUID, Decision],
    known: Mapping[UUID, LeaseFacts],
) -> tuple[Outcome, bool]:
    """End the looks and write the acts of exactly those leases that nothing happened to in between.

    Returns also whether some of them are due at once: what was overtaken is, if nobody else has claimed it.
    """
    rows = []
    for uuid, one in decisions.items():
        after = due.back_off(attempts[uuid]) if one.failed else _interval(one)
        error, touched = one.reason if one.failed else None, isinstance(one.act, TOUCHES)
        rows.append((uuid, epochs[uuid], one.phase, one.reason, after, error, touched))

    def write() -> tuple[Outcome, dict[UUID, int]]:
        left = act_sql.finish(rows)
        outcome = act(Decided(known[uuid], decisions[uuid], epoch) for uuid, epoch in left.items())
        act_sql.insert_records(_records(left, decisions, known))
        return outcome, left

    with placement_writes.watched(writes=any(isinstance(one.act, WRITES_PLACEMENTS) for one in decisions.values())):
        outcome, left = due.in_transaction(write)
    waiting_sql.wake_others(known[uuid].reason for uuid in left if known[uuid].state is not None)
    _count(left, decisions, known, attempts)
    return outcome, len(left) < len(epochs) or any(decisions[uuid].after == timedelta() for uuid in left)


def _interval(decision: Decision) -> timedelta | None:
    if decision.after is None or not decision.spread:
        return decision.after
    return decision.after * random.uniform(1, 3)  # noqa: S311 - spreads load, guards nothing


def _records(
    uuids: Iterable[UUID], decisions: Mapping[UUID, Decision], known: Mapping[UUID, LeaseFacts]
) -> list[tuple[UUID, str, str, str]]:
    """What is worth remembering: every act, and a wait or rest under a new name or reason."""
    records = []
    for uuid in uuids:
        one, before = decisions[uuid], known[uuid]
        phase = one.phase or before.phase
        if isinstance(one.act, Wait | Rest) and (phase, one.reason) == (before.phase, before.reason):
            continue
        records.append((uuid, type(one.act).__name__, phase, one.reason))
    return records


def _count(
    uuids: Iterable[UUID],
    decisions: Mapping[UUID, Decision],
    known: Mapping[UUID, LeaseFacts],
    attempts: Mapping[UUID, int],
) -> None:
    counts: Counter[tuple[str, str]] = Counter()
    for uuid in uuids:
        failed = decisions[uuid].failed
        counts[known[uuid].topic, "error" if failed else "success"] += 1
        if failed and attempts[uuid] == due.STUCK_AFTER:
            metrics.STUCK_LEASES.inc()
    for (topic, outcome), count in counts.items():
        metrics.MESSAGES.labels(topic, outcome).inc(count)


_looker = Looker()
at_due_leases = _looker.at_due_leases
