"""What a verified callback says, given the operation it names and the owner of its lease. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from placements.callback_request import Selector, VerifiedCallback
from placements.callbacks_sql import InboxRow, Owner, ReportedOperation
from placements.status import PENDING_OUTCOME, OperationState

RESULTS: Final[Mapping[str, OperationState]] = {
    "success": OperationState.SUCCEEDED,
    "failed": OperationState.FAILED,
}
"""What a status says of an open operation. `deprovisioned` (it was torn down while it was made) is left to a look."""
APPLIED: Final = "applied"


class Reading(NamedTuple):
    """How a callback goes into the inbox; ``told`` is the operation without outcome that it speaks of, if any.

    ``named`` is the operation it names, whatever became of that, and ``owner`` who its lease is placed at.
    """

    row: InboxRow
    told: ReportedOperation | None
    named: ReportedOperation | None
    owner: Owner | None


def read_one(callback: VerifiedCallback, operation: ReportedOperation | None, owner: Owner | None) -> Reading:
    """Say what one callback is, given its operation (or, without id, its lease's open one).

    What is said of an operation without outcome is that operation's result if it has the verdict `applied`. Anything
    else is an observation for the look, or, with a verdict, of no effect: an unknown, replaced or settled id, or the
    word of a backend that does not hold it.
    """
    verdict, selector = "", callback.selector
    place = operation.backend if operation else owner.backend if owner else None
    if selector is Selector.OPERATION and (operation is None or operation.lease_uuid != callback.lease_uuid):
        verdict = "unknown_operation"
    elif callback.senders and place and place not in callback.senders:
        verdict = "other_backend"
    elif operation is not None and operation.state in PENDING_OUTCOME:
        # Without an id it is about the open operation all the same, and says so from here on.
        row = InboxRow(callback, selector, operation.id, APPLIED if callback.status in RESULTS else "")
        return Reading(row, operation, operation, owner)
    elif selector is Selector.LIFECYCLE:
        verdict = "" if owner is not None and owner.lifecycle_id == callback.selector_id else "stale"
    elif selector is Selector.OPERATION and operation is not None:
        is_news = operation.state is OperationState.SUCCEEDED and (operation.is_current or not operation.is_settled)
        verdict = "" if is_news else "settled"
    keeps_slot = operation is not None and not operation.is_settled and verdict in {"", "settled"}
    if selector is Selector.OPERATION and not keeps_slot:
        # Either the sender has one URL for everything and this is about what the operation made, or it must not take
        # the place of the operation's true result.
        selector = Selector.LIFECYCLE
    return Reading(InboxRow(callback, selector, callback.selector_id, verdict), None, operation, owner)
