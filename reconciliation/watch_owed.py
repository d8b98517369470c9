"""What the event stream owes: frames for the blocks that hold events of ours.

Blocks are read anyway, so nothing is lost with a frame. But a stream that stays connected, answers pings and tells
nothing has to be found out.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from leases.chain import noticed
from leases.chain.events import EventType, LeaseEvent

MISSING_SECONDS = 3.0
"""A frame may come so long after its block was read."""
DEAF_SECONDS = 60.0
"""A connection that told nothing of what it had to tell for so long is given up."""
SUBSCRIBED = frozenset({EventType.CREATED, EventType.CLOSED, EventType.EXPIRED, EventType.CANCELLED})
_REMEMBERED = 1000


class Owed:
    """Heights of which a frame has to come. Told by the thread that reads blocks and by the loop."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._above: int | None = None
        self._owed: dict[int, float] = {}
        self._told: dict[int, None] = {}
        self._missing_since: float | None = None

    def connected(self, *, above: int) -> None:
        """From blocks above this height on frames have to come."""
        with self._lock:
            self._above = above
            self._owed.clear()
            self._missing_since = None

    def lost(self) -> None:
        """No connection: nothing is owed."""
        with self._lock:
            self._above, self._missing_since = None, None
            self._owed.clear()

    def told_by_block(self, events: Iterable[LeaseEvent]) -> None:
        """These events stand in blocks; a frame of each block has to come, or came."""
        with self._lock:
            now = self._clock()
            for event in events:
                is_owed = self._above is not None and event.height > self._above and event.type in SUBSCRIBED
                if is_owed and event.height not in self._told:
                    self._owed.setdefault(event.height, now)

    def told_by_frame(self, height: int) -> None:
        """A frame of this block came."""
        with self._lock:
            self._owed.pop(height, None)
            self._told[height] = None
            while len(self._told) > _REMEMBERED:
                del self._told[next(iter(self._told))]
            self._missing_since = None

    def is_deaf(self) -> bool:
        """Count frames that did not come; True, once, when for a minute none came of all that had to."""
        with self._lock:
            now = self._clock()
            missing = [height for height, since in self._owed.items() if now - since >= MISSING_SECONDS]
            for height in missing:
                noticed.fault("frame_missing", f"block {height}")
                since = self._owed.pop(height)
                if self._missing_since is None:
                    self._missing_since = since
            if self._missing_since is None or now - self._missing_since < DEAF_SECONDS:
                return False
            self._missing_since = None
            return True
