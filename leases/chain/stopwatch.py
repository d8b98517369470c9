"""Measuring a call that goes out in parts."""

from __future__ import annotations

import time


class Stopwatch:
    """Adds up the time spent inside `with` blocks."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._started = 0.0

    def __enter__(self) -> None:
        self._started = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.monotonic() - self._started
