"""Limits on time for those who nearly always end in time: one timer of the event loop for all of them together.

`asyncio.timeout` makes and drops a timer each time, which costs more than many a request's view.
"""

from __future__ import annotations

import asyncio
import contextvars
from time import monotonic
from types import TracebackType
from typing import Final

from fred.per_loop import PerLoop

LATE_S: Final = 0.05
"""A loop that comes to a limit so much too late was held up itself: what came meanwhile is still unread."""
GRACE_S: Final = 0.05
"""How much longer it then reads before it calls the silence that of others."""

_NEVER: Final = float("inf")


class TimeLimit:
    """`with TimeLimit(seconds):` is `async with asyncio.timeout(seconds):`; good for one use, inside a task.

    Where the loop itself stood still, what came meanwhile is read first; once, so that there is an end.
    """

    __slots__ = ("_all", "_cancelling", "_is_over", "_seconds", "_task", "had_grace", "until")

    def __init__(self, seconds: float) -> None:
        """A limit that has passed already ends what runs inside at its first wait."""
        self._seconds = seconds
        self._is_over = False
        self.had_grace = False

    def __enter__(self) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("only a task can be stopped")
        self._task = task
        self._cancelling = task.cancelling()
        self._all = _limits.here()
        self.until = monotonic() + max(0.0, self._seconds)
        self._all.add(self)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._all.discard(self)
        # Who was cancelled by others as well is told of that, not of the time.
        if self._is_over and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def end(self) -> None:
        """Its time is over."""
        self._is_over = True
        self._task.cancel()


class _Limits:
    """Those that are open on one loop, and a timer for the first of them."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._open: set[TimeLimit] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._due = _NEVER
        self._context = contextvars.copy_context()  # not that of whoever sets the timer

    def add(self, limit: TimeLimit) -> None:
        self._open.add(limit)
        if limit.until < self._due:
            self._look_at(limit.until)

    def discard(self, limit: TimeLimit) -> None:
        self._open.discard(limit)

    def _look_at(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due = due
        if due == _NEVER:
            self._timer = None
        else:
            self._timer = self.loop.call_later(due - monotonic(), self._look, context=self._context)

    def _look(self) -> None:
        now = monotonic()  # the time of some loops is that of the turn's beginning
        for limit in [one for one in self._open if one.until <= now]:
            if now - limit.until > LATE_S and not limit.had_grace:
                limit.had_grace, limit.until = True, now + GRACE_S
                continue
            self._open.discard(limit)
            limit.end()
        self._look_at(min((one.until for one in self._open), default=_NEVER))


_limits: Final = PerLoop(_Limits)
