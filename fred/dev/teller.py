"""Telling a person what happens: steps while starting, notes when something ends, plain lines without a terminal."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from rich.console import Console
from rich.status import Status


@dataclass(slots=True)
class Teller:
    """Prints to one console; a spinner shows the present step when that is a terminal."""

    console: Console
    _started: float = field(default_factory=time.monotonic)
    _status: Status | None = None
    _step: str = ""

    @property
    def is_live(self) -> bool:
        """Whether somebody watches on a terminal."""
        return self.console.is_terminal

    def step(self, text: str) -> None:
        """The next step begins; the same step again says nothing."""
        if text == self._step:
            return
        self._step = text
        if not self.is_live:
            self.say(text)
            return
        if self._status is None:
            self._status = self.console.status(text)
            self._status.start()
        else:
            self._status.update(text)

    def say(self, text: str) -> None:
        """One line with the seconds since the start."""
        self.console.print(f"{time.monotonic() - self._started:6.1f} s  {text}", markup=False, highlight=False)

    def note(self, text: str) -> None:
        """Something ended that should not have."""
        self.console.print(
            f"{time.monotonic() - self._started:6.1f} s  ! {text}", style="yellow", markup=False, highlight=False
        )

    def show(self, text: str) -> None:
        """Text to read and to paste: never wrapped, never coloured."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def done(self) -> None:
        """Take the spinner away."""
        if self._status is not None:
            self._status.stop()
            self._status = None
        self._step = ""
