"""Named points where a test kills the process, to see that nothing is lost.

`FRED_CRASH_AT=lane.stored` ends the process with SIGKILL when it reaches that point, `lane.stored:3` when it reaches it
for the third time; several are separated by commas. Without the variable a point costs one look into an empty dict.
"""

from __future__ import annotations

import os
import signal
import threading


class Points:
    """The points of one process that are armed, and how often each must still be reached."""

    def __init__(self, armed: str) -> None:
        self._left: dict[str, int] = {}
        self._lock = threading.Lock()
        for entry in filter(None, (part.strip() for part in armed.split(","))):
            name, _, times = entry.partition(":")
            self._left[name] = int(times or 1)

    def reach(self, name: str, /) -> bool:
        """Count one visit of this point; True when the process has to die here."""
        if name not in self._left:
            return False
        with self._lock:
            self._left[name] -= 1
            return self._left[name] == 0


_points = Points(os.environ.get("FRED_CRASH_AT", ""))


def point(name: str, /) -> None:
    """Die here by SIGKILL if this point is armed: no handler, no clean-up, nothing flushed."""
    if _points.reach(name):
        os.kill(os.getpid(), signal.SIGKILL)
