"""What a check is, and the list of all of them in the order of the contract."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backends.check.bench import Bench


class Failed(Exception):
    """The backend did something else than the contract says; the text tells what."""


class Skipped(Exception):
    """The check could not be made; the text tells what it needs."""


class Verdict(StrEnum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


Check = Callable[["Bench"], None]


@dataclass(frozen=True, slots=True)
class Case:
    """One line of the checklist. A destructive one makes and removes leases; `seconds` is how long it may take."""

    id: str
    title: str
    check: Check
    destructive: bool
    seconds: float


CASES: dict[str, Case] = {}


def case(number: str, title: str, *, destructive: bool = False, seconds: float = 60.0) -> Callable[[Check], Check]:
    """Enter a check in the list."""

    def enter(check: Check) -> Check:
        CASES[number] = Case(number, title, check, destructive, seconds)
        return check

    return enter


def current_only(number: str, title: str) -> None:
    """Enter a line that the older dialect knows nothing of."""

    def check(_bench: Bench) -> None:
        raise Skipped("only in the current dialect")

    CASES[number] = Case(number, title, check, destructive=False, seconds=1.0)


def expect(claim: object, what: str) -> None:
    """Raise `Failed` unless the claim holds."""
    if not claim:
        raise Failed(what)


def ordered() -> list[Case]:
    """All of them, by number."""
    return sorted(CASES.values(), key=lambda one: int(one.id[1:]))
