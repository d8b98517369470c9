"""What backends report, applied once: stored, the guarded result written on the operation, the lease woken.

No chain call and no act stands here. A report that moves no operation (a workload died, a restart is done, a teardown
finished) waits in the inbox for the look that it asks for.
"""

from collections.abc import Iterable, Sequence
from uuid import UUID

from django.db import DataError, IntegrityError
from msgspec import structs

from fred import crash, due
from leases import wake
from placements import callback_counts, transitions
from placements import callbacks_sql as sql
from placements.callback_counts import Stored
from placements.callback_readings import APPLIED, RESULTS, Reading, read_one
from placements.callback_request import Selector, VerifiedCallback
from placements.status import OperationState


def apply(callbacks: Sequence[VerifiedCallback]) -> set[VerifiedCallback]:
    """Store verified callbacks and what they say of open operations, once, in any order; return the busy ones.

    Busy is a callback whose lease is locked at this moment: nothing of it was stored. When only locks stood in the way
    of the whole transaction it is run again.
    """
    locked, stored = due.in_transaction(lambda: _apply(callbacks))
    crash.point("callback.committed")
    callback_counts.committed(stored)
    return {callback for callback in callbacks if callback.lease_uuid not in locked}


def is_of_one_row(error: Exception) -> bool:
    """Whether one callback of a batch can be what broke it, rather than the database being away."""
    return isinstance(error, DataError | IntegrityError | ValueError | TypeError)


def _apply(callbacks: Sequence[VerifiedCallback]) -> tuple[set[UUID], Stored]:
    """Return the leases that could be locked, and what became of their callbacks."""
    with wake.news_about({callback.lease_uuid for callback in callbacks}, skip_locked=True) as news:
        free = [one for one in callbacks if one.lease_uuid in news.locked]
        unread = _without_repeats(free)
        readings = _read(unread)
        fresh = sql.insert([one.row for one in readings])
        said = list({one.row.key: one for one in reversed(readings) if one.row.key in fresh}.values())
        _move(said)
        told = {one.row.callback.lease_uuid for one in said if one.told or not one.row.verdict}
        news.wake(told, touched=True)
        # What means nothing to us still names a lease: one that nobody has read yet is read.
        news.wake({one.row.callback.lease_uuid: 0 for one in said if one.row.callback.lease_uuid not in told})
        crash.point("callback.before_commit")
    left_out = set(free).difference(unread) if len(unread) < len(free) else ()
    return news.locked, Stored(readings, said, list(left_out))


def _without_repeats(callbacks: Sequence[VerifiedCallback]) -> list[VerifiedCallback]:
    """Leave out what was committed before, unless a restart or update of its lease still waits for its end.

    Two changes that a backend ends within one second are reported in the same words with the same signature.
    """
    repeated = {callback.lease_uuid for callback in callbacks if callback.repeated}
    awaited = sql.with_unfinished_command(repeated) if repeated else set()
    return [callback for callback in callbacks if not callback.repeated or callback.lease_uuid in awaited]


def _read(callbacks: Sequence[VerifiedCallback]) -> list[Reading]:
    """Say for each callback, in their order, how it goes into the inbox, and whose result it is, if any's."""
    by_selector: dict[Selector, list[VerifiedCallback]] = {selector: [] for selector in Selector}
    for callback in callbacks:
        by_selector[callback.selector].append(callback)
    tokenless = {callback.lease_uuid for callback in by_selector[Selector.TOKENLESS]}
    operations = sql.operations(
        {callback.selector_id for callback in by_selector[Selector.OPERATION]}, open_of=tokenless
    )
    by_id = {operation.id: operation for operation in operations}
    open_of = {operation.lease_uuid: operation.id for operation in operations if not operation.is_settled}
    owners = sql.owners(tokenless | {callback.lease_uuid for callback in by_selector[Selector.LIFECYCLE]})
    readings = []
    for callback in callbacks:
        id_ = open_of.get(callback.lease_uuid) if callback.selector is Selector.TOKENLESS else callback.selector_id
        reading = read_one(callback, by_id.get(id_) if id_ else None, owners.get(callback.lease_uuid))
        if reading.told is not None and reading.row.verdict:  # the next callback of this batch finds it decided
            by_id[reading.told.id] = structs.replace(reading.told, state=RESULTS[callback.status])
        readings.append(reading)
    return readings


def _move(said: Iterable[Reading]) -> None:
    """Write the results on their operations. A word about one that counts as never sent proves that it was sent."""
    moves: dict[OperationState, dict[UUID, str]] = {}
    unsent: dict[UUID, int | None] = {}
    for row, operation, *_ in said:
        if operation is None or row.verdict != APPLIED:
            continue
        moves.setdefault(RESULTS[row.callback.status], {})[operation.id] = row.callback.error
        if operation.state is OperationState.RESERVED:
            unsent[operation.id] = None
    transitions.move(unsent, OperationState.IN_DOUBT)
    for state, errors in moves.items():
        transitions.move_with_errors(errors, state)
