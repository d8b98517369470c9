"""Who waits in this process for the outcome of a row that it handed to the sender.

A request writes its row claimed, commits, hands it over and waits: the clerk tells it as soon as the outcome is written
down, without a look into the database. A request that can wait no longer withdraws: what has not left by then never
leaves from here, and the request knows which of the two it was.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from placements.outcomes import Answer

LAST_WORD_S = 1.0
"""How long a request that withdrew an unsent row waits for that to be written down."""


@dataclass(frozen=True, slots=True)
class Met:
    """What the push met, written down: `answer.result` and, where it is known, `answer.retry_after`."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class Silent:
    """Nothing is written down in time. Without ``sent`` nothing left, nothing will, and the row is given back."""

    sent: bool


class Waiter:
    """One request that waits for one row. For the thread of that request."""

    def __init__(self, key: Any) -> None:
        self.key = key
        self.outcome: Met | Silent | None = None
        self.happened = threading.Event()

    def wait(self, until: float) -> Met | Silent | None:
        """The outcome; None when there is none at this time of ``time.monotonic()``."""
        self.happened.wait(max(0.0, until - time.monotonic()))
        return self.outcome

    def leave(self) -> Silent | Met:
        """Wait no longer: withdraw the row if it has not left yet. For the request that handed it over."""
        if not _registry.withdraw(self.key):
            return self.outcome or Silent(sent=True)
        return self.wait(time.monotonic() + LAST_WORD_S) or Silent(sent=True)  # unwritten: somebody may push it yet


class _Registry:
    """Waiters by row. All methods are safe for all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiters: dict[Any, list[Waiter]] = {}
        self._sent: set[Any] = set()
        self._withdrawn: set[Any] = set()

    def add(self, waiter: Waiter) -> None:
        with self._lock:
            self._waiters.setdefault(waiter.key, []).append(waiter)

    def remove(self, waiter: Waiter) -> None:
        with self._lock:
            others = self._waiters.get(waiter.key, [])
            others.remove(waiter)
            if not others:
                del self._waiters[waiter.key]
                self._sent.discard(waiter.key)

    def withdraw(self, key: Any) -> bool:
        with self._lock:
            if key in self._sent or any(one.happened.is_set() for one in self._waiters.get(key, ())):
                return False
            self._withdrawn.add(key)
            return True

    def may_leave(self, key: Any) -> bool:
        if not (self._waiters or self._withdrawn):  # a worker, where nobody ever waits
            return True
        with self._lock:
            if key in self._withdrawn:
                return False
            if key in self._waiters:
                self._sent.add(key)
            return True

    def tell(self, key: Any, outcome: Met | Silent) -> None:
        with self._lock:
            self._withdrawn.discard(key)
            for waiter in self._waiters.get(key, ()):
                waiter.outcome = outcome
                waiter.happened.set()

    def withdrawn(self) -> frozenset[Any]:
        if not self._withdrawn:
            return frozenset()
        with self._lock:
            return frozenset(self._withdrawn)

    def has(self, key: Any) -> bool:
        return key in self._waiters

    @property
    def is_empty(self) -> bool:
        return not (self._waiters or self._withdrawn)


_registry = _Registry()


@contextmanager
def expected(key: Any) -> Iterator[Waiter]:
    """Wait for the row with this key from here on; several may. Look at the row after this, not before."""
    waiter = Waiter(key)
    _registry.add(waiter)
    try:
        yield waiter
    finally:
        _registry.remove(waiter)


def is_expected(key: Any) -> bool:
    """Whether somebody waits for this row at this moment."""
    return _registry.has(key)


def may_leave(key: Any) -> bool:
    """Whether a row's call may be started; from a yes on, its request knows that it was sent. For the loop."""
    return _registry.may_leave(key)


def withdrawn() -> frozenset[Any]:
    """Rows whose requests wait no longer, and that have not left. For the loop."""
    return _registry.withdrawn()


def tell(answers: Iterable[Answer]) -> None:
    """These outcomes are written down. For the clerk."""
    if _registry.is_empty:
        return
    for answer in answers:
        unsent = Silent(sent=False) if answer.was_dropped else None
        _registry.tell(answer.push.id, unsent or Met(answer))


def tell_lost(keys: Iterable[Any]) -> None:
    """These rows are not ours any more, or their outcome can't be written: somebody may push them. For the clerk."""
    if _registry.is_empty:
        return
    for key in keys:
        _registry.tell(key, Silent(sent=True))
