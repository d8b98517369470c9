"""States of an operation and the edges between them. Pure."""

from __future__ import annotations

from enum import StrEnum


class OperationState(StrEnum):
    """How far a provision has come. ``settled_at`` says separately that its lease drew the consequence."""

    RESERVED = "reserved"  # a backend is chosen, nothing was sent
    IN_DOUBT = "in_doubt"  # written before the POST: it may have arrived
    ACCEPTED = "accepted"  # the backend said 202
    SUCCEEDED = "succeeded"  # its callback, or a read of the backend, said so
    FAILED = "failed"
    REFUSED = "refused"  # an exact coded refusal
    ENDED = "ended"  # the lease ended first, or nothing was ever sent


S = OperationState

EDGES: dict[OperationState, frozenset[OperationState]] = {
    S.RESERVED: frozenset({S.IN_DOUBT, S.ENDED}),
    S.IN_DOUBT: frozenset({S.RESERVED, S.ACCEPTED, S.SUCCEEDED, S.FAILED, S.REFUSED, S.ENDED}),
    S.ACCEPTED: frozenset({S.SUCCEEDED, S.FAILED, S.ENDED}),
    S.SUCCEEDED: frozenset({S.ENDED}),  # the lease ended before its acknowledgement was included
}

NOT_SENT = "not_sent"
"""``refusal`` of an operation or a command whose backend could not be reached at all."""

FINAL = frozenset({S.SUCCEEDED, S.FAILED, S.REFUSED, S.ENDED})
PENDING_OUTCOME = frozenset({S.RESERVED, S.IN_DOUBT, S.ACCEPTED})


def sources(to: OperationState) -> list[OperationState]:
    """The states from which ``to`` may be entered."""
    return [state for state, targets in EDGES.items() if to in targets]
