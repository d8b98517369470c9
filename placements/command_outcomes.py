"""What an answer means for a maintenance command, and writing that down with all that follows from it.

The tenant is answered from what is written here. An acceptance puts an update's payload in force and tells the lease's
subscribers, in the same transaction.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from backends.client import Accepted, NotSent, Refused
from fred import metrics
from fred.due import back_off
from leases import events
from placements import command_sql as sql
from placements import command_transitions
from placements.command_calls import Declined
from placements.command_status import AMBIGUOUS, MALFORMED, CommandKind, CommandState
from placements.status import NOT_SENT

if TYPE_CHECKING:
    from placements.outcomes import Answer


class Book(Protocol):
    """What the transaction changed: leases to touch, leases to wake, and after which times rows are due again."""

    touched: set[UUID]
    woken: set[UUID]
    delays: list[timedelta]


def write(answers: Sequence[Answer], book: Book) -> None:
    """Write these outcomes down, inside a transaction that holds the lease rows, and say in the book what changed.

    An acceptance counts whoever holds the command by now, if it is in doubt still; everything else counts only at the
    epoch that the push claimed.
    """
    kinds: dict[str, list[Answer]] = {}
    for answer in answers:
        kinds.setdefault(_kind(answer), []).append(answer)
    for kind, found in kinds.items():
        _WRITERS[kind](book, found)


def count_lost(answer: Answer) -> None:
    """An outcome that can't be written is given up: say so if it was an update that its backend took."""
    if answer.push.call.operation == CommandKind.UPDATE and isinstance(answer.result, Accepted):
        metrics.PAYLOAD_PERSIST_FAILURES.labels("update").inc()


def _news(book: Book, leases: set[UUID]) -> None:
    book.touched |= leases
    book.woken |= leases


def _kind(answer: Answer) -> str:
    if answer.was_dropped:
        return "released"
    match answer.result:
        case Accepted():
            return "accepted"
        case Refused() | Declined():
            return "refused"
        case NotSent():
            return "returned"
    return "in_doubt"


def _accepted(book: Book, answers: list[Answer]) -> None:
    moved = command_transitions.move({answer.push.operation_id: None for answer in answers}, CommandState.ACCEPTED)
    _news(book, {one.lease_uuid for one in moved})
    events.record(
        [(one.lease_uuid, one.kind.progress, "") for one in moved], request_ids=[one.request_id for one in moved]
    )


def _refused(book: Book, answers: list[Answer]) -> None:
    by_code: dict[str, list[Answer]] = {}
    for answer in answers:
        by_code.setdefault(_code(answer), []).append(answer)
    for code, found in by_code.items():
        moved = command_transitions.move(
            {answer.push.operation_id: answer.push.epoch for answer in found},
            CommandState.REFUSED,
            refusal=code,
            errors={answer.push.operation_id: getattr(answer.result, "message", "") for answer in found},
        )
        _news(book, {one.lease_uuid for one in moved})


def _code(answer: Answer) -> str:
    result = answer.result
    if isinstance(result, Refused):
        return result.kind.value
    return MALFORMED if isinstance(result, Declined) and result.malformed else "bad_request"


def _returned(book: Book, answers: list[Answer]) -> None:
    """Nothing left: the command is sent as soon as its backend is there again."""
    _reserve(book, answers, {answer.push.operation_id: _delay(answer) for answer in answers}, refusal=NOT_SENT)


def _released(book: Book, answers: list[Answer]) -> None:
    _reserve(book, answers, {answer.push.operation_id: timedelta() for answer in answers})


def _reserve(book: Book, answers: list[Answer], delays: dict[UUID, timedelta], *, refusal: str = "") -> None:
    moved = command_transitions.move(
        {answer.push.operation_id: answer.push.epoch for answer in answers},
        CommandState.RESERVED,
        refusal=refusal,
        delays=delays,
    )
    _news(book, {one.lease_uuid for one in moved})
    book.delays += [delays[one.id] for one in moved]


def _in_doubt(book: Book, answers: list[Answer]) -> None:
    """It may have arrived: nothing is sent again, the look finds out."""
    epochs = {answer.push.operation_id: answer.push.epoch for answer in answers}
    _news(book, set(sql.leave_in_doubt(epochs, refusal=AMBIGUOUS).values()))


_WRITERS = {
    "accepted": _accepted,
    "refused": _refused,
    "returned": _returned,
    "released": _released,
    "in_doubt": _in_doubt,
}


def _delay(answer: Answer) -> timedelta:
    """Time until it is tried again: the backend's own, if known, else a growing one; spread by a quarter."""
    delay = back_off(answer.push.attempts)
    if answer.retry_after is not None:
        delay = timedelta(seconds=max(answer.retry_after, 1.0))
    return delay * random.uniform(1.0, 1.25)  # noqa: S311 - it spreads load, nothing depends on it
