"""Values of a command line: refused at once, by what is allowed and an example. `argparse` names the option before it.

Each function makes a `type=` for `add_argument`; what that raises ends the command before anything is started.
"""

import os
from argparse import ArgumentTypeError
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

from fred.conf.values import parse_duration, parse_float, parse_int


def parse_seconds(text: str) -> float:
    """Seconds of a duration such as `1s`, `100ms` or `1m30s`; a number alone counts seconds. Raises ValueError."""
    try:
        return parse_float(text)
    except ValueError:
        return parse_duration(text).total_seconds()


def whole(least: int, most: int, *, like: str) -> Callable[[str], int]:
    """A whole number from `least` to `most`."""

    def of(text: str) -> int:
        try:
            number = parse_int(text)
        except ValueError:
            number = least - 1
        if not least <= number <= most:
            raise ArgumentTypeError(f"{text!r} is not a whole number from {least} to {most}, such as {like}")
        return number

    return of


def port(*, like: int) -> Callable[[str], int]:
    """A TCP port; 0 asks for a free one."""

    def of(text: str) -> int:
        try:
            return whole(0, 65535, like="")(text)
        except ArgumentTypeError:
            raise ArgumentTypeError(
                f"{text!r} is not a port from 1 to 65535, such as {like}; 0 takes a free one"
            ) from None

    return of


def seconds(least: str, most: str, *, like: str) -> Callable[[str], float]:
    """A duration from `least` to `most`, in seconds."""
    lowest, highest = parse_seconds(least), parse_seconds(most)

    def of(text: str) -> float:
        try:
            found = parse_seconds(text)
        except ValueError:
            found = -1.0
        if not lowest <= found <= highest:
            raise ArgumentTypeError(f"{text!r} is not a time from {least} to {most}, such as {like}")
        return found

    return of


def fraction(*, like: str) -> Callable[[str], Fraction]:
    """A number that is not negative, exactly as it is written."""

    def of(text: str) -> Fraction:
        try:
            found = Fraction(text)
        except (ValueError, ZeroDivisionError):
            found = Fraction(-1)
        if found < 0:
            raise ArgumentTypeError(f"{text!r} is not a number from 0 on, such as {like}")
        return found

    return of


def seen(path: Path) -> bool:
    """Whether something is there; raises ArgumentTypeError where this user may not look."""
    try:
        path.stat()
    except PermissionError:
        raise ArgumentTypeError(f"{str(path)!r} cannot be looked at by this user") from None
    except (OSError, ValueError):  # nothing is there, or can be
        return False
    return True


def file_to_write(text: str) -> Path:
    """A file that can be made, or written over, where it is named."""
    path = Path(text)
    is_there = seen(path)
    if not text or (is_there and path.is_dir()):
        raise ArgumentTypeError(f"{text!r} is not a file; name one, such as ./report.json")
    if not path.parent.is_dir():
        raise ArgumentTypeError(f"{text!r} cannot be written: there is no folder {path.parent}")
    if not os.access(path if is_there else path.parent, os.W_OK, effective_ids=True):
        raise ArgumentTypeError(f"{text!r} cannot be written by this user")
    return path


def file_to_read(text: str) -> Path:
    """A file that is there; `-` stands for standard input."""
    path = Path(text)
    if text != "-" and not (seen(path) and path.is_file() and os.access(path, os.R_OK, effective_ids=True)):
        raise ArgumentTypeError(f"{text!r} is not a file that can be read; name one, or - for standard input")
    return path
