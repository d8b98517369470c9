"""What is wrong with the settings, said once and whole."""

from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import BaseModel

PREFIX = "failed to load config: config validation failed: "


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that must be changed before anything starts.

    `message` is the text operators' automation searches for; `where` names the key in the spellings it can be
    written in; `fix` says what to write. None of them holds a secret's value.
    """

    message: str
    where: str = ""
    fix: str = ""
    prefix: str = PREFIX

    def __str__(self) -> str:
        """One line: the message, then where it is set and how to put it right."""
        hints = "; ".join(part for part in (self.where, self.fix) if part)
        return f"{self.prefix}{self.message}" + (f" ({hints})" if hints else "")


class ConfigError(Exception):
    """The settings cannot be used. Each line of the text is one problem.

    `readable` is the tree with what could be read, defaults elsewhere: for checks that go on, never for use.
    `warnings` are what would have been warned of; they often explain a problem.
    """

    def __init__(
        self, problems: Iterable[Problem], *, readable: BaseModel | None = None, warnings: Iterable[str] = ()
    ) -> None:
        self.problems = tuple(problems)
        self.readable = readable
        self.warnings = tuple(warnings)
        super().__init__("\n".join(str(problem) for problem in self.problems))
