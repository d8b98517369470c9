"""The mock's time: that of the machine, plus what a test has advanced it by."""

import asyncio
import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta


class Timer:
    """Something that is to happen at a moment of the mock's clock."""

    __slots__ = ("_clock", "_number", "call", "due", "handle")

    def __init__(self, clock: "Clock", number: int, due: float, call: Callable[[], object]) -> None:
        self._clock, self._number, self.due, self.call = clock, number, due, call
        self.handle: asyncio.Handle | None = None

    def fire(self) -> None:
        """It is time."""
        self.cancel()
        self.call()

    def cancel(self) -> None:
        """It is not to happen any more."""
        if self.handle is not None:
            self.handle.cancel()
        self._clock.timers.pop(self._number, None)


class Clock:
    """Moments and timers; used from one event loop. A wait of 0 seconds happens in the loop's next turn."""

    def __init__(self) -> None:
        self._advanced = timedelta(0)
        self._numbers = itertools.count()
        self.timers: dict[int, Timer] = {}

    def now(self) -> datetime:
        """The moment, aware and in UTC."""
        return datetime.now(UTC) + self._advanced

    def call_later(self, seconds: float, call: Callable[[], object]) -> Timer:
        """Call this in so many seconds of this clock."""
        loop = asyncio.get_running_loop()
        timer = Timer(self, next(self._numbers), loop.time() + self._advanced.total_seconds() + seconds, call)
        self.timers[timer._number] = timer  # noqa: SLF001 (the timer is this module's)
        timer.handle = loop.call_soon(timer.fire) if seconds <= 0 else loop.call_later(seconds, timer.fire)
        return timer

    def advance(self, by: timedelta) -> None:
        """Let time pass at once: what became due happens in the loop's next turns, earliest first."""
        loop = asyncio.get_running_loop()
        self._advanced += by
        moment = loop.time() + self._advanced.total_seconds()
        for timer in sorted(self.timers.values(), key=lambda one: one.due):
            if timer.handle is not None:
                timer.handle.cancel()
            wait = timer.due - moment
            timer.handle = loop.call_soon(timer.fire) if wait <= 0 else loop.call_later(wait, timer.fire)

    def cancel_all(self) -> None:
        """Nothing is to happen any more."""
        for timer in list(self.timers.values()):
            timer.cancel()
