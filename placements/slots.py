"""How many pushes this process has in hand for each backend."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable

SLOTS = 32
"""Pushes in hand for one backend at most: claimed, or on the wire."""

TEARDOWN_SLOTS = 16
"""How many of them may be teardowns, which can take a minute and a half each."""


class Slots:
    """Counts, safe for all threads. A slot is taken with the claim and free again as soon as the answer is there."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: Counter[str] = Counter()
        self._teardowns: Counter[str] = Counter()

    def free(self, backend: str) -> int:
        """Slots that nobody uses at this moment; never negative."""
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

    def room(self, backends: Iterable[str], *, teardowns: bool = False) -> dict[str, int]:
        """For each of these backends the free slots, or as many of them as teardowns may use; never negative."""
        with self._lock:
            free = {name: SLOTS - self._held[name] for name in backends}
            if teardowns:
                free = {name: min(number, TEARDOWN_SLOTS - self._teardowns[name]) for name, number in free.items()}
        return {name: max(0, number) for name, number in free.items()}
