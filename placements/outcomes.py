"""What an answer means for the row that was pushed, and writing that down for many rows at once."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from uuid import UUID

import structlog

from backends.client import (
    Accepted,
    Ambiguous,
    CapacityClaimed,
    Deferred,
    Done,
    NotSent,
    RefusalKind,
    Refused,
)
from fred import metrics
from fred.due import back_off
from leases import events, wake
from leases import sql as leases_sql
from placements import command_outcomes, push_sql, transitions
from placements.command_calls import Declined
from placements.pushes import Push, Table
from placements.status import NOT_SENT, OperationState

log = structlog.get_logger(__name__)

RESTARTING = "restarting"
"""Status event of a lease into which a backend took over what it keeps of another."""

ASK_AGAIN = timedelta(seconds=1)
"""How soon an operation in doubt after its first push is looked up at its backend, and sent again if unknown there."""

LONGEST_TEARDOWN_DELAY = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class Unread:
    """The point read before a repeat got no answer: nothing was sent."""

    reason: str


@dataclass(frozen=True, slots=True)
class Dropped:
    """Surely never started: the claim had become too old, or the process is ending."""


Result = Accepted | Refused | NotSent | Ambiguous | Unread | Dropped | Done | Deferred


@dataclass(frozen=True, slots=True)
class Answer:
    """How one push ended. ``retry_after``: seconds until its backend may be reached again, if that is known."""

    push: Push
    result: Result
    retry_after: float | None = None

    @property
    def was_dropped(self) -> bool:
        """Whether its call was never started."""
        return isinstance(self.result, Dropped)


class Verdict(StrEnum):
    """What is written down."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    RETURNED = "returned"  # never sent: reserved again, later
    RELEASED = "released"  # never started: reserved or due again, now
    UNSENT = "unsent"  # never sent, and nobody asks for it any more: ended
    ASK_AGAIN = "ask_again"  # in doubt: read, then send again
    LATER = "later"  # in doubt: the same again, after a back-off
    WATCH = "watch"  # in doubt: nothing is sent any more, the look watches
    KEPT = "kept"  # nothing is written: the claim ends by itself
    GONE = "gone"  # torn down
    AGAIN = "again"  # not torn down yet


def verdict(push: Push, result: Result) -> Verdict:  # noqa: PLR0911 - a table
    """The meaning of an answer for this row."""
    if push.is_teardown:
        match result:
            case Done():
                return Verdict.GONE
            case Dropped():
                return Verdict.RELEASED
        return Verdict.AGAIN
    match result:
        case Accepted():
            return Verdict.ACCEPTED
        case Refused():
            return Verdict.REFUSED
        case NotSent() | Dropped() if push.is_restore and push.first:
            return Verdict.UNSENT  # its request is told so, and its tenant may choose otherwise
        case Dropped():
            return Verdict.RELEASED if push.first else Verdict.KEPT
        case NotSent():
            return Verdict.RETURNED if push.first else Verdict.LATER
        case Unread():
            return Verdict.LATER
    return Verdict.ASK_AGAIN if push.first else Verdict.WATCH


@dataclass(frozen=True, slots=True)
class Recorded:
    """Answers that are written down, those whose lease was busy, and the shortest time until a row is due again."""

    done: list[Answer]
    busy: list[Answer]
    soonest: timedelta | None


def record(answers: Sequence[Answer]) -> Recorded:
    """Write these outcomes down in one transaction, and wake the leases for which they are news.

    An acceptance counts whoever holds the row by now, if it is in doubt still; everything else counts only at the epoch
    that the push claimed. Answers about leases that somebody holds at this moment are left for the next time.
    """
    by_verdict: dict[Verdict, list[Answer]] = {}
    with wake.news_about({answer.push.lease_uuid for answer in answers}, skip_locked=True, known=True) as news:
        done = [answer for answer in answers if answer.push.lease_uuid in news.locked]
        commands = [answer for answer in done if answer.push.table is Table.COMMANDS]
        for answer in done:
            if answer.push.table is not Table.COMMANDS:
                by_verdict.setdefault(verdict(answer.push, answer.result), []).append(answer)
        book = _Book()
        command_outcomes.write(commands, book)
        for kind, found in by_verdict.items():
            _WRITERS[kind](book, found)
        if book.touched:
            leases_sql.touch(sorted(book.touched))
        if book.woken:
            news.wake(sorted(book.woken))
    _count(done)
    busy = [answer for answer in answers if answer.push.lease_uuid not in news.locked]
    return Recorded(done, busy, min(book.delays, default=None))


class _Book:
    """What one transaction changed: leases to touch, leases to wake, delays that were set."""

    def __init__(self) -> None:
        self.touched: set[UUID] = set()
        self.woken: set[UUID] = set()
        self.delays: list[timedelta] = []

    def accepted(self, answers: list[Answer]) -> None:
        moved = transitions.move(
            {answer.push.operation_id: None for answer in answers}, OperationState.ACCEPTED, rest=True
        )
        self.touched |= {answer.push.lease_uuid for answer in answers if answer.push.id in moved}
        restores = {answer.push.operation_id: answer.push for answer in answers if answer.push.is_restore}
        if restores:
            first = {id_ for id_, push in restores.items() if push.first}
            # A callback may have been quicker than the answer: as long as its end is not told, the beginning may be.
            told = (moved & restores.keys()) | push_sql.untold(first)
            begun = [restores[id_] for id_ in sorted(told)]
            events.record(
                [(push.lease_uuid, RESTARTING, "") for push in begun], request_ids=[push.request_id for push in begun]
            )

    def refused(self, answers: list[Answer]) -> None:
        by_code: dict[str, list[Answer]] = {}
        for answer in answers:
            if isinstance(answer.result, Refused):
                by_code.setdefault(answer.result.code or answer.result.kind.value, []).append(answer)
        for code, found in by_code.items():
            moved = transitions.move(
                {answer.push.operation_id: answer.push.epoch for answer in found},
                OperationState.REFUSED,
                refusal=code,
                errors={answer.push.operation_id: _words(answer) for answer in found},
            )
            self._news(answer.push for answer in found if answer.push.id in moved)

    def returned(self, answers: list[Answer]) -> None:
        delays = {answer.push.operation_id: _delay(answer) for answer in answers}
        moved = self._reserve(answers, delays, refusal=NOT_SENT)
        self.touched |= {push.lease_uuid for push in moved}
        self.woken |= {push.lease_uuid for push in moved if push.refusal != NOT_SENT}  # once in a row of such failures

    def unsent(self, answers: list[Answer]) -> None:
        moved = transitions.move(
            {answer.push.operation_id: answer.push.epoch for answer in answers}, OperationState.ENDED, refusal=NOT_SENT
        )
        self._news(answer.push for answer in answers if answer.push.id in moved)

    def released(self, answers: list[Answer]) -> None:
        operations = [answer for answer in answers if not answer.push.is_teardown]
        teardowns = [answer for answer in answers if answer.push.is_teardown]
        if operations:
            self._reserve(operations, {answer.push.operation_id: timedelta() for answer in operations})
        if teardowns:
            self.again(teardowns)

    def in_doubt(self, answers: list[Answer]) -> None:
        delays: dict[UUID, timedelta | None] = {}
        for answer in answers:
            match verdict(answer.push, answer.result):
                case Verdict.WATCH:
                    delays[answer.push.operation_id] = None
                case Verdict.ASK_AGAIN:
                    delays[answer.push.operation_id] = ASK_AGAIN
                case _:
                    delays[answer.push.operation_id] = _delay(answer)
        changed = push_sql.leave_in_doubt({answer.push.operation_id: answer.push.epoch for answer in answers}, delays)
        self.touched |= {answer.push.lease_uuid for answer in answers if answer.push.id in changed}
        self.woken |= {
            answer.push.lease_uuid
            for answer in answers
            if answer.push.id in changed and delays[answer.push.operation_id] is None
        }
        self.delays += [delay for id_, delay in delays.items() if id_ in changed and delay is not None]

    def kept(self, _answers: list[Answer]) -> None:
        """The claim ends by itself."""

    def gone(self, answers: list[Answer]) -> None:
        leases = push_sql.finish_teardowns(answer.push.teardown_id for answer in answers)
        self.touched |= leases
        self.woken |= leases

    def again(self, answers: list[Answer]) -> None:
        delays = {answer.push.teardown_id: _delay(answer) for answer in answers}
        self.touched |= push_sql.put_off_teardowns(
            (answer.push.teardown_id, answer.push.epoch, delays[answer.push.teardown_id], _reason(answer))
            for answer in answers
        )
        self.delays += delays.values()

    def _news(self, pushes: Iterable[Push]) -> None:
        leases = {push.lease_uuid for push in pushes}
        self.touched |= leases
        self.woken |= leases

    def _reserve(self, answers: list[Answer], delays: dict[UUID, timedelta], *, refusal: str = "") -> list[Push]:
        moved = transitions.move(
            {answer.push.operation_id: answer.push.epoch for answer in answers},
            OperationState.RESERVED,
            refusal=refusal,
        )
        if moved:
            push_sql.put_back({id_: delays[id_] for id_ in moved})
            self.delays += [delays[id_] for id_ in moved]
        return [answer.push for answer in answers if answer.push.id in moved]


_WRITERS: dict[Verdict, Callable[[_Book, list[Answer]], None]] = {
    Verdict.ACCEPTED: _Book.accepted,
    Verdict.REFUSED: _Book.refused,
    Verdict.RETURNED: _Book.returned,
    Verdict.RELEASED: _Book.released,
    Verdict.UNSENT: _Book.unsent,
    Verdict.ASK_AGAIN: _Book.in_doubt,
    Verdict.LATER: _Book.in_doubt,
    Verdict.WATCH: _Book.in_doubt,
    Verdict.KEPT: _Book.kept,
    Verdict.GONE: _Book.gone,
    Verdict.AGAIN: _Book.again,
}


def _delay(answer: Answer) -> timedelta:
    """Time until the same is tried again: the backend's own, if known, else a growing one; spread by a quarter."""
    if isinstance(answer.result, Dropped):
        return timedelta()
    delay = back_off(answer.push.attempts)
    if answer.push.is_teardown:
        delay = min(delay, LONGEST_TEARDOWN_DELAY)
    if answer.retry_after is not None:
        delay = timedelta(seconds=max(answer.retry_after, 1.0))
    return delay * random.uniform(1.0, 1.25)  # noqa: S311 - it spreads load, nothing depends on it


def _words(answer: Answer) -> str:
    return answer.result.message if isinstance(answer.result, Refused) else ""


def _reason(answer: Answer) -> str:
    return getattr(answer.result, "reason", "")


def _count(answers: Iterable[Answer]) -> None:
    """Count and log what was met. Reasons are for operators: the row's ``error`` is read by tenants."""
    unlucky: dict[tuple[str, str, str, str], list[Answer]] = {}
    for answer in answers:
        push, result = answer.push, answer.result
        if isinstance(result, Dropped):
            continue
        operation = push.call.operation
        outcome = _OUTCOMES[type(result)]
        metrics.BACKEND_CALL_OUTCOMES.labels(push.backend, operation, outcome).inc()
        if isinstance(result, Refused) and result.kind is RefusalKind.CAPACITY:
            metrics.INSUFFICIENT_RESOURCES.labels(push.backend, "coded_refusal").inc()
        if isinstance(push.unproven, CapacityClaimed) and isinstance(result, Ambiguous):
            metrics.INSUFFICIENT_RESOURCES.labels(push.backend, "ambiguous").inc()
        if not isinstance(result, Accepted | Done):
            unlucky.setdefault((push.backend, operation, outcome, _why(result)), []).append(answer)
    for (backend, operation, outcome, why), found in unlucky.items():  # a silent backend is one line, not thousands
        log.warning(
            "push.not_accepted",
            backend=backend,
            operation=operation,
            outcome=outcome,
            reason=why,
            number=len(found),
            lease_uuid=str(found[0].push.lease_uuid),
        )


def _why(result: Result) -> str:
    return (result.code or result.kind.value) if isinstance(result, Refused) else getattr(result, "reason", "")


_OUTCOMES: dict[type, str] = {
    Accepted: "accepted",
    Refused: "refused",
    Declined: "refused",
    NotSent: "not_dispatched",
    Ambiguous: "ambiguous",
    Unread: "ambiguous",
    Done: "done",
    Deferred: "deferred",
}
