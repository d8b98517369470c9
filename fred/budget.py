"""How long a request may still take, and whether anything of it has left the house: what decides its answer.

A request whose time is over is answered 503 only if nothing of it was, or will be, sent to a backend. Its view goes on
in its thread; so a view that changes something says `keep_in` first, and `let_out` right before the write or the call
that makes it happen. After the end nothing is let out any more.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class TimeIsUp(Exception):
    """The request was answered that nothing had been done: so nothing may be done any more."""


class Budget:
    """The time of one request. Thread safe."""

    def __init__(self, seconds: float, *, changes: bool) -> None:
        """`changes`: whether the request may change something; then it counts as sent until its view says otherwise."""
        self.until = time.monotonic() + seconds
        self._lock = threading.Lock()
        self._is_out = changes
        self._is_over = False

    def keep_in(self) -> None:
        """From here on nothing is sent before `let_out`."""
        with self._lock:
            self._is_out = False

    def let_out(self) -> None:
        """Something is about to be sent. Raises TimeIsUp when the caller was told that nothing was."""
        with self._lock:
            if self._is_over:
                raise TimeIsUp
            self._is_out = True

    def end(self) -> bool:
        """The time is over; returns whether nothing was let out, and then nothing will be."""
        with self._lock:
            self._is_over = not self._is_out
            return self._is_over


_current: ContextVar[Budget | None] = ContextVar("fred.budget", default=None)
_part_until: ContextVar[float] = ContextVar("fred.budget.part", default=float("inf"))


@contextmanager
def spending(budget: Budget) -> Iterator[None]:
    """Make this the budget of what runs inside, in this thread."""
    token = _current.set(budget)
    try:
        yield
    finally:
        _current.reset(token)


def keep_in() -> None:
    """Of the request of this thread, if there is one: nothing is sent before `let_out`."""
    budget = _current.get()
    if budget is not None:
        budget.keep_in()


def let_out() -> None:
    """Of the same: something is about to be sent. Raises TimeIsUp."""
    budget = _current.get()
    if budget is not None:
        budget.let_out()


def within(seconds: float) -> float:
    """So many seconds, or what the request of this thread has left if that is less; never negative."""
    budget = _current.get()
    return seconds if budget is None else max(0.0, min(seconds, budget.until - time.monotonic()))


@contextmanager
def at_most(seconds: float | None) -> Iterator[None]:
    """What runs inside, in this thread, has so many seconds together (see `of_part`); None: what it had before.

    A part of a request is limited by itself, not by what its request has left: who asks another house with no time
    left would take it for silent.
    """
    until = float("inf") if seconds is None else time.monotonic() + seconds
    token = _part_until.set(min(until, _part_until.get()))
    try:
        yield
    finally:
        _part_until.reset(token)


def of_part(seconds: float) -> float:
    """So many seconds, or what the part that runs in this thread has left if that is less; never negative."""
    return max(0.0, min(seconds, _part_until.get() - time.monotonic()))
