"""The circuit breakers in front of pushes; for the clerk's thread."""

from __future__ import annotations

from dataclasses import dataclass

from backends.client import NotSent, Pulse
from fred import breaker
from placements.pushes import Push

OPEN = NotSent("circuit breaker is open", pulse=Pulse.NEUTRAL)

_PROBE_SOON_ENDS_S = 2.0


@dataclass(frozen=True, slots=True)
class BreakerOpen:
    """Nothing may be sent to this backend for about so many seconds."""

    retry_after: float
    result: NotSent = OPEN


def enter(push: Push) -> BreakerOpen | None:
    """Let this push pass the breaker of its backend (None), or say why not."""
    gate = breaker.of(push.backend)
    push.ticket = gate.enter(limit=push.limit)
    if push.ticket is not None:
        return None
    view = gate.view()
    if view.state is breaker.State.HALF_OPEN:
        return BreakerOpen(min(view.wait, _PROBE_SOON_ENDS_S))  # one call is out, and says soon what is
    return BreakerOpen(breaker.half_opens_in(push.backend))


def leave(push: Push) -> None:
    """Tell the breaker what the calls of this push met; a push that sent nothing only gives its turn back."""
    if push.ticket is None:
        return
    gate, ticket = breaker.of(push.backend), push.ticket
    push.ticket = None
    for pulse in push.pulses or [Pulse.NEUTRAL]:
        gate.record(ticket, pulse=pulse)
