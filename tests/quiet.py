"""Between two tests nothing is captured: what threads of servers log then would land between the runner's dots."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, TextIO, cast

from fred import logs

if TYPE_CHECKING:
    import pytest

REAL = frozenset({1, 2})
"""Descriptors of the process's own output; what is captured has others, or none."""


class Nowhere(io.TextIOBase):
    """Takes all text and keeps none."""

    def write(self, text: str) -> int:
        return len(text)


def between_tests(config: pytest.Config) -> None:
    """Let the log write only where it is captured: in a test, its set-up and its end. With `-s` all of it is shown."""
    if config.option.capture == "no":
        return
    current, nowhere = logs._Output.current, cast("TextIO", Nowhere())

    def captured(output: logs._Output) -> TextIO:
        stream = current(output)
        return nowhere if is_real(stream) else stream

    logs._Output.current = captured  # type: ignore[method-assign]


def is_real(stream: TextIO) -> bool:
    """Whether this is the process's own output."""
    try:
        return stream.fileno() in REAL
    except (io.UnsupportedOperation, ValueError):
        return False
