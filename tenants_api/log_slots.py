"""How many answers with logs this process holds at once: they are big, and every byte of one is in memory.

Some run, a few more wait, first come first served; whoever finds all places taken is told so at once. No tenant has
more than two running while another tenant waits.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Final, Self

MOST_RUNNING: Final = 4
MOST_WAITING: Final = 4
"""Each running or waiting one has a thread of the web process; its other routes keep the rest."""
MOST_BYTES: Final = 64 * 1024 * 1024
MOST_OF_A_TENANT: Final = 2


class Full(Exception):
    """All places are taken, also those to wait in."""


class TooLate(Exception):
    """The time to wait ended without a place."""


@dataclass(eq=False, slots=True)
class Slot:
    """The place of one answer; `size` is what it may hold in bytes. Free after the block, unless it is kept."""

    slots: LogSlots
    tenant: str
    size: int
    is_kept: bool = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.is_kept:
            self.release()

    def keep(self) -> Callable[[], None]:
        """Stay after the block; the function gives the place back."""
        self.is_kept = True
        return self.release

    def shrink(self, size: int) -> None:
        """The answer is known now, and smaller than it might have been."""
        self.slots.shrink(self, size)

    def release(self) -> None:
        """Give the place back; once is enough."""
        self.slots.release(self)


class LogSlots:
    """The places of this process. Thread safe."""

    def __init__(self) -> None:
        """All places are free."""
        self._changed = threading.Condition()
        self._running: set[Slot] = set()
        self._waiting: deque[Slot] = deque()

    def take(self, tenant: str, *, size: int, seconds: float) -> Slot:
        """A place for an answer of at most `size` bytes, after `seconds` at the latest. Raises Full, TooLate."""
        deadline = monotonic() + seconds
        slot = Slot(self, tenant, min(size, MOST_BYTES))
        with self._changed:
            self._waiting.append(slot)
            self._let_in()
            if len(self._waiting) > MOST_WAITING:
                self._waiting.remove(slot)
                raise Full
            while slot not in self._running:
                if not self._changed.wait(deadline - monotonic()) and slot not in self._running:
                    self._waiting.remove(slot)
                    self._let_in()
                    raise TooLate
        return slot

    def shrink(self, slot: Slot, size: int) -> None:
        """See `Slot.shrink`."""
        with self._changed:
            slot.size = min(slot.size, size)
            self._let_in()

    def release(self, slot: Slot) -> None:
        """See `Slot.release`."""
        with self._changed:
            self._running.discard(slot)
            self._let_in()

    def _let_in(self) -> None:
        """Give free places to those who wait, in order; nobody passes one that only waits for room."""
        for slot in list(self._waiting):
            if len(self._running) >= MOST_RUNNING:
                break
            if slot.size + sum(one.size for one in self._running) > MOST_BYTES:
                break
            theirs = sum(one.tenant == slot.tenant for one in self._running)
            if theirs >= MOST_OF_A_TENANT and any(one.tenant != slot.tenant for one in self._waiting):
                continue
            self._waiting.remove(slot)
            self._running.add(slot)
        self._changed.notify_all()
