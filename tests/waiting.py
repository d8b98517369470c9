"""Waiting for a condition instead of for a time; and standing still, where that is what is tested."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

POLL_SECONDS = 0.01


def wait_until(predicate: Callable[[], T], *, timeout: float = 60.0, message: str = "") -> T:
    """Return the predicate's first true value; fail the test when `timeout` seconds bring none."""
    pause = threading.Event()
    deadline = time.monotonic() + timeout
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {timeout} s: {message or predicate}; last value {value!r}")
        pause.wait(POLL_SECONDS)


def stand_still(seconds: float) -> None:
    """Block this thread, and the loop that runs on it, as a machine does that is too busy."""
    threading.Event().wait(seconds)
