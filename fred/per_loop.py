"""What belongs to an event loop: a process has one as a rule, and several where servers run on threads."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import Generic, TypeVar

_T = TypeVar("_T")


class PerLoop(Generic[_T]):
    """One for each loop, made at its first use."""

    def __init__(self, make: Callable[[], _T], *, drop: Callable[[_T], None] = lambda _: None) -> None:
        """`make` is called on the loop; `drop` gets that of a loop which ended without taking it."""
        self._make = make
        self._drop = drop
        self._of: dict[asyncio.AbstractEventLoop, _T] = {}

    def here(self) -> _T:
        """That of the running loop."""
        loop = asyncio.get_running_loop()
        try:
            return self._of[loop]
        except KeyError:
            self._forget_the_ended()
            # In a context of its own: what it does and logs belongs to no request, not even to the first.
            made = self._of[loop] = contextvars.Context().run(self._make)
            return made

    def taken(self) -> _T | None:
        """The same, if there is one; the loop has none any more."""
        return self._of.pop(asyncio.get_running_loop(), None)

    def _forget_the_ended(self) -> None:
        for loop in list(self._of):
            if loop.is_closed() and (left := self._of.pop(loop, None)) is not None:
                self._drop(left)
