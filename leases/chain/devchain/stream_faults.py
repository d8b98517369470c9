"""Faults of the event stream: what becomes of the frames of one subscription, and frames that are none."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

from leases.chain.devchain.faults import Fault, Faults

_HUGE = 10 * 1024 * 1024
GARBAGE = {
    "text": b"this is no JSON",
    "shape": b'{"jsonrpc":"2.0","id":1,"result":["events",{"data":7}]}',
    "huge": b'{"jsonrpc":"2.0","id":1,"result":{"query":"' + b"x" * _HUGE + b'"}}',
}
_KINDS = itertools.cycle(GARBAGE)


def garbage(rule: Fault) -> bytes:
    """What the rule wants to be sent; without a kind all kinds take turns. Raises ValueError for an unknown kind."""
    kind = str(rule.parameters.get("kind") or next(_KINDS))
    if kind not in GARBAGE:
        raise ValueError(f"unknown kind {kind}; known are {', '.join(GARBAGE)}")
    return GARBAGE[kind]


def named(rule: Fault, number: object) -> bool:
    """Whether a rule is about the subscription with this request id; one without `id` is about all."""
    wanted = rule.parameters.get("id")
    return wanted is None or wanted == number


@dataclass(slots=True)
class Disturber:
    """Loses, doubles, delays and swaps the frames of one subscription."""

    held: bytes | None = field(default=None)

    def pass_on(self, faults: Faults, frame: bytes) -> Iterator[tuple[bytes, float]]:
        """What to send in place of this frame, each with the seconds it comes late."""
        late = 0.0
        copies = 1
        if faults.all():
            if faults.find("ws_drop", "ws", frame) is not None:
                return
            rule = faults.find("ws_delay", "ws", frame)
            late = faults.delay_of(rule) if rule is not None else 0.0
            copies += faults.find("ws_dup", "ws", frame) is not None
            if self.held is None and faults.find("ws_reorder", "ws", frame) is not None:
                self.held = frame
                return
        for _ in range(copies):
            yield frame, late
        yield from self.let_go(late)

    def let_go(self, late: float = 0.0) -> Iterator[tuple[bytes, float]]:
        """The frame that was held back for the next one, if any."""
        if self.held is not None:
            held, self.held = self.held, None
            yield held, late
