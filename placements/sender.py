"""The one sender of a process: what pushes provisions and teardowns to the backends.

Two threads. The *clerk* has a database connection: it claims due rows, prolongs their claims and records outcomes in
batches. The *loop* has the sockets: it sends, at most 32 at once for each backend, and starts a call only while the
claim is surely ours. Neither waits for the other. Killed in the middle, nothing is lost: a claim ends after five
seconds and the row is in doubt.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

from placements.push_clerk import Clerk
from placements.pushes import Claimed
from placements.slots import Slots

DRAIN_S = 5.0
_PAUSE_S = 0.01
_JOIN_S = 1.0


class Sender:
    """Pushes what it is handed and, if `pulls`, what is due. Threads start at its first use. Thread safe."""

    def __init__(self, *, pulls: bool = True) -> None:
        self._slots = Slots()
        self._clerk = Clerk(self._slots, pulls=pulls)
        self._lock = threading.Lock()
        self._started = False
        self._draining = False

    def free(self, backend: str) -> int:
        """How many operations for this backend a maker may claim for this sender; 0 while it drains."""
        return 0 if self._draining else self._slots.free(backend)

    def take(self, claimed: Iterable[Claimed]) -> None:
        """Push these, which their maker inserted in doubt and claimed in a transaction that is committed."""
        self._start()
        self._clerk.hand_over(claimed)

    def pull(self) -> None:
        """Rows may be due: claim as many as there are free slots, and go on as slots become free. Returns at once."""
        self._start()
        self._clerk.poke()

    def drain(self, *, deadline: float = DRAIN_S) -> None:
        """Start nothing more, give unstarted rows back, wait `deadline` seconds for running calls, record all, stop.

        What still runs then is in doubt. The sender can't be used again.
        """
        with self._lock:
            first, self._draining = not self._draining, True
        if not (first and self._started):
            return
        until = time.monotonic() + deadline
        self._clerk.stop_pulling()
        self._clerk.loop.refuse_new()
        pause = threading.Event()
        while not self._clerk.is_idle and time.monotonic() < until:
            pause.wait(_PAUSE_S)
        self._clerk.end(timeout=_JOIN_S)
        self._clerk.loop.end(timeout=_JOIN_S)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is on its way or waits to be written down."""
        return not self._started or self._clerk.is_idle

    def _start(self) -> None:
        with self._lock:
            if not self._started and not self._draining:
                self._started = True
                self._clerk.loop.start()
                self._clerk.start()
