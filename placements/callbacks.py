"""What backends report, applied once: stored, the guarded result written on the operation, the lease woken.

No chain call and no act stands here. A report that moves no operation (a workload died, a restart is done, a teardown
finished) waits in the inbox for the look that it asks for.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

from django.conf import settings
from django.db import DataError, IntegrityError
from msgspec import structs

from fred import crash, due, metrics
from leases import wake
from placements import callbacks_sql as sql
from placements import transitions
from placements.callback_request import Selector, VerifiedCallback
from placements.callbacks_sql import InboxRow, Owner, Standing
from placements.status import PENDING_OUTCOME, OperationState

RESULTS: Final[Mapping[str, OperationState]] = {
    "success": OperationState.SUCCEEDED,
    "failed": OperationState.FAILED,
}
"""What a status says of an open operation. `deprovisioned` (it was torn down while it was made) is left to a look."""
APPLIED: Final = "applied"

_Reading = tuple[InboxRow, Standing | None]


def apply(callbacks: Sequence[VerifiedCallback]) -> set[VerifiedCallback]:
    """Store verified callbacks and what they say of open operations, once, in any order; return the busy ones.

    Busy is a callback whose lease is locked at this moment: nothing of it was stored. When only locks stood in the way
    of the whole transaction it is run again.
    """
    locked, observed = due.in_transaction(lambda: _apply(callbacks))
    crash.point("callback.committed")
    for row in observed:
        name = row.callback.backend_label or "unknown"
        known = name == "unknown" or any(name == backend.name for backend in settings.FRED.backends)
        metrics.NON_IN_FLIGHT_CALLBACKS.labels(backend=name if known else "invalid", status=row.callback.status).inc()
    return {callback for callback in callbacks if callback.lease_uuid not in locked}


def is_of_one_row(error: Exception) -> bool:
    """Whether one callback of a batch can be what broke it, rather than the database being away."""
    return isinstance(error, DataError | IntegrityError | ValueError | TypeError)


def _apply(callbacks: Sequence[VerifiedCallback]) -> tuple[set[UUID], list[InboxRow]]:
    """Return the leases that could be locked, and the reports that no operation was waiting for."""
    with wake.news_about({callback.lease_uuid for callback in callbacks}, skip_locked=True) as news:
        readings = _read(_without_repeats([one for one in callbacks if one.lease_uuid in news.locked]))
        fresh = sql.insert([row for row, _ in readings])
        said = list({row.key: (row, operation) for row, operation in reversed(readings) if row.key in fresh}.values())
        _move(said)
        told = {row.callback.lease_uuid for row, operation in said if operation or not row.verdict}
        news.wake(told, touched=True)
        # What means nothing to us still names a lease: one that nobody has read yet is read.
        news.wake({row.callback.lease_uuid: 0 for row, _ in said if row.callback.lease_uuid not in told})
        crash.point("callback.before_commit")
    return news.locked, [row for row, operation in said if operation is None and not row.verdict]


def _without_repeats(callbacks: Sequence[VerifiedCallback]) -> list[VerifiedCallback]:
    """Leave out what was committed before, unless a restart or update of its lease still waits for its end.

    Two changes that a backend ends within one second are reported in the same words with the same signature.
    """
    repeated = {callback.lease_uuid for callback in callbacks if callback.repeated}
    awaited = sql.with_unfinished_command(repeated) if repeated else set()
    return [callback for callback in callbacks if not callback.repeated or callback.lease_uuid in awaited]


def _read(callbacks: Sequence[VerifiedCallback]) -> list[_Reading]:
    """Say for each callback, in their order, how it goes into the inbox, and whose result it is, if any's."""
    by_selector: dict[Selector, list[VerifiedCallback]] = {selector: [] for selector in Selector}
    for callback in callbacks:
        by_selector[callback.selector].append(callback)
    tokenless = {callback.lease_uuid for callback in by_selector[Selector.TOKENLESS]}
    standings = sql.operations(
        {callback.selector_id for callback in by_selector[Selector.OPERATION]}, open_of=tokenless
    )
    by_id = {standing.id: standing for standing in standings}
    open_of = {standing.lease_uuid: standing.id for standing in standings if not standing.is_settled}
    owners = sql.owners(tokenless | {callback.lease_uuid for callback in by_selector[Selector.LIFECYCLE]})
    readings = []
    for callback in callbacks:
        id_ = open_of.get(callback.lease_uuid) if callback.selector is Selector.TOKENLESS else callback.selector_id
        row, operation = read_one(callback, by_id.get(id_) if id_ else None, owners.get(callback.lease_uuid))
        if operation is not None and row.verdict:  # the next callback of this batch finds it decided
            by_id[operation.id] = structs.replace(operation, state=RESULTS[callback.status])
        readings.append((row, operation))
    return readings


def read_one(callback: VerifiedCallback, standing: Standing | None, owner: Owner | None) -> _Reading:
    """Say what one callback is, given how its operation (or, without id, its lease's open one) stands.

    What is said of an operation without outcome comes back with it, and is its result if it has the verdict `applied`.
    Anything else is an observation for the look, or, with a verdict, of no effect: an unknown, replaced or settled id,
    or the word of a backend that does not hold it.
    """
    verdict, selector = "", callback.selector
    place = standing.backend if standing else owner.backend if owner else None
    if selector is Selector.OPERATION and (standing is None or standing.lease_uuid != callback.lease_uuid):
        verdict = "unknown_operation"
    elif callback.senders and place and place not in callback.senders:
        verdict = "other_backend"
    elif standing is not None and standing.state in PENDING_OUTCOME:
        # Without an id it is about the open operation all the same, and says so from here on.
        return InboxRow(callback, selector, standing.id, APPLIED if callback.status in RESULTS else ""), standing
    elif selector is Selector.LIFECYCLE:
        verdict = "" if owner is not None and owner.lifecycle_id == callback.selector_id else "stale"
    elif selector is Selector.OPERATION and standing is not None:
        is_news = standing.state is OperationState.SUCCEEDED and (standing.is_current or not standing.is_settled)
        verdict = "" if is_news else "settled"
    keeps_slot = standing is not None and not standing.is_settled and verdict in {"", "settled"}
    if selector is Selector.OPERATION and not keeps_slot:
        # Either the sender has one URL for everything and this is about what the operation made, or it must not take
        # the place of the operation's true result.
        selector = Selector.LIFECYCLE
    return InboxRow(callback, selector, callback.selector_id, verdict), None


def _move(said: Iterable[_Reading]) -> None:
    """Write the results on their operations. A word about one that counts as never sent proves that it was sent."""
    moves: dict[OperationState, dict[UUID, str]] = {}
    unsent: dict[UUID, int | None] = {}
    for row, operation in said:
        if operation is None or row.verdict != APPLIED:
            continue
        moves.setdefault(RESULTS[row.callback.status], {})[operation.id] = row.callback.error
        if operation.state is OperationState.RESERVED:
            unsent[operation.id] = None
    transitions.move(unsent, OperationState.IN_DOUBT)
    for state, errors in moves.items():
        transitions.move_with_errors(errors, state)
