"""The one writer of ``Operation.state``."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from placements import sql
from placements.status import FINAL, OperationState, sources


def move(
    operations: Mapping[UUID, int | None],
    to: OperationState,
    *,
    refusal: str = "",
    error: str = "",
    errors: Mapping[UUID, str] | None = None,
    rest: bool = False,
) -> set[UUID]:
    """Move each operation that may go there and is still at this epoch (None: any); return those that went.

    A final state also ends all pushing (``due_at`` null) and stamps ``finished_at``; ``rest`` ends the pushing for
    another state, and forgets what an earlier push met. The lease rows must be locked by the caller when the move is
    news for them. ``refusal`` and ``error`` (or one of ``errors`` for each) are stored where given.
    """
    return sql.update_state(
        operations,
        to=to,
        from_=sources(to),
        final=to in FINAL,
        refusal=refusal,
        error=error,
        errors=errors,
        rest=rest,
    )


def move_with_errors(operations: Mapping[UUID, str], to: OperationState) -> set[UUID]:
    """Like :func:`move` at any epoch, each operation with the backend's own words."""
    return sql.update_state(dict.fromkeys(operations), to=to, from_=sources(to), final=to in FINAL, errors=operations)
