"""States of a maintenance command (a restart or update that a tenant asked for) and the edges between them. Pure."""

from __future__ import annotations

from enum import StrEnum


class CommandKind(StrEnum):
    """What is asked of the backend."""

    RESTART = "restart"
    UPDATE = "update"

    @property
    def progress(self) -> str:
        """What a lease is called while its backend does it: on the wire, to tenants and to subscribers."""
        return "restarting" if self is CommandKind.RESTART else "updating"


PROGRESS = frozenset(kind.progress for kind in CommandKind)
"""What a lease is called while its backend does any of them."""


class CommandState(StrEnum):
    """How far a command has come. It is *open*, and no other is admitted, until the tenant's answer is decided."""

    RESERVED = "reserved"  # recorded, nothing was sent
    IN_DOUBT = "in_doubt"  # written before the POST: it may have arrived
    ACCEPTED = "accepted"  # the backend took it; how it went is not known yet
    SUCCEEDED = "succeeded"  # and it went well, or nothing spoke against that in time
    FAILED = "failed"  # it ran and failed, or nobody knows of it in time
    REFUSED = "refused"  # the backend declined before any effect
    ENDED = "ended"  # the lease ended first


S = CommandState

EDGES: dict[CommandState, frozenset[CommandState]] = {
    S.RESERVED: frozenset({S.IN_DOUBT, S.FAILED, S.ENDED}),
    S.IN_DOUBT: frozenset({S.RESERVED, S.ACCEPTED, S.SUCCEEDED, S.FAILED, S.REFUSED, S.ENDED}),
    S.ACCEPTED: frozenset({S.SUCCEEDED, S.FAILED}),
}

OPEN = frozenset({S.RESERVED, S.IN_DOUBT})
FINAL = frozenset({S.SUCCEEDED, S.FAILED, S.REFUSED, S.ENDED})

AMBIGUOUS = "ambiguous"
"""``refusal`` of an open command whose call brought no proof of anything."""
MALFORMED = "malformed"
"""``refusal`` of a command that was declined with a body that nobody can read."""
UNHEARD = "outcome_unknown"
"""``refusal`` of a failed command of which the backend showed nothing in time."""
UNDELIVERED = "not_delivered"
"""``refusal`` of a failed command that could not be sent in time."""
LEASE_ENDED = "lease_ended"
"""``refusal`` of a command that the end of its lease overtook."""


def sources(to: CommandState) -> list[CommandState]:
    """The states from which ``to`` may be entered."""
    return [state for state, targets in EDGES.items() if to in targets]
