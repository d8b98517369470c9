"""How many pushes this process has in hand for each backend."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable

SLOTS = 32
"""Calls on the wire to one backend at most."""

AHEAD_S = 0.25
"""A quick backend is worked for in batches: beside its slots so many rows are claimed as it answered in this time.

One that is slow, or new, or silent gets a row only for a free slot, so that what waits is left to whoever has one.
"""

MOST_AHEAD = 480
"""Rows claimed beyond the slots at most: about one batch."""

TEARDOWN_SLOTS = 16
"""How many of them may be teardowns, which can take a minute and a half each."""


class Slots:
    """Counts, safe for all threads. A slot is taken with the claim and free again as soon as the answer is there."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._answered: dict[str, tuple[float, int, int]] = {}
        self._held: Counter[str] = Counter()
        self._teardowns: Counter[str] = Counter()

    def free(self, backend: str) -> int:
        """How many more rows may be claimed for it at this moment; never negative."""
        return self.room((backend,))[backend]

    def take(self, backend: str, *, teardown: bool = False) -> None:
        """Use one, also one too many: what is claimed already has to go somewhere."""
        with self._lock:
            self._held[backend] += 1
            if teardown:
                self._teardowns[backend] += 1

    def give_back(self, backend: str, *, teardown: bool = False) -> None:
        """The push of this slot has its answer, or was dropped."""
        with self._lock:
            self._held[backend] -= 1
            if teardown:
                self._teardowns[backend] -= 1
            begun, before, now = self._turn(backend)
            self._answered[backend] = (begun, before, now + 1)

    def room(self, backends: Iterable[str], *, teardowns: bool = False) -> dict[str, int]:
        """For each of these backends how many rows may be claimed, or as many of them as teardowns; never negative."""
        with self._lock:
            free = {name: SLOTS + self._ahead(name) - self._held[name] for name in backends}
            if teardowns:
                free = {name: min(number, TEARDOWN_SLOTS - self._teardowns[name]) for name, number in free.items()}
        return {name: max(0, number) for name, number in free.items()}

    def _ahead(self, backend: str) -> int:
        _, before, now = self._turn(backend)
        return min(max(before, now), MOST_AHEAD)

    def _turn(self, backend: str) -> tuple[float, int, int]:
        """When the present count of answers began, the answers of the time before, and those since."""
        clock = self._clock()
        begun, before, now = self._answered.get(backend, (clock, 0, 0))
        if clock - begun >= 2 * AHEAD_S:
            return clock, 0, 0
        if clock - begun >= AHEAD_S:
            return begun + AHEAD_S, now, 0
        return begun, before, now
