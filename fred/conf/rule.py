"""What a rule over settings is, and the kinds of rules that many keys share."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from fred.conf.values import split_host_port

Tree = TypeVar("Tree", bound=BaseModel)
MAX_INT64 = 2**63 - 1
MIN_SECRET = 32  # bytes


@dataclass(frozen=True, slots=True)
class Rule(Generic[Tree]):
    """A rule over these keys: `broken` gives a message for each way the tree breaks it; `fix` says what to write.

    A rule is left out when one of its keys could not be read; that is reported instead.
    """

    keys: tuple[str, ...]
    broken: Callable[[Tree], Iterable[str]]
    fix: str = ""


def when(condition: bool, message: str) -> Iterator[str]:
    """The message, when the condition holds."""
    if condition:
        yield message


def required(key: str, fix: str) -> Rule[Any]:
    """The key must not be empty."""
    return Rule((key,), lambda c: when(not getattr(c, key), f"{key} is required"), fix)


def positive(key: str, *, name: str = "") -> Rule[Any]:
    """The number or duration must be above zero."""

    def broken(config: Any) -> Iterator[str]:
        value = getattr(config, key)
        zero = timedelta(0) if isinstance(value, timedelta) else 0
        return when(value <= zero, f"{name or key} must be positive")

    return Rule((key,), broken, "write a value above zero")


def not_negative(key: str, text: str = "cannot be negative") -> Rule[Any]:
    """The number or duration must be zero or more."""

    def broken(config: Any) -> Iterator[str]:
        value = getattr(config, key)
        zero = timedelta(0) if isinstance(value, timedelta) else 0
        return when(value < zero, f"{key} {text}")

    return Rule((key,), broken, "write zero or more")


def between(key: str, low: int, high: int) -> Rule[Any]:
    """The number must lie in this range."""

    def broken(config: Any) -> Iterator[str]:
        value = getattr(config, key)
        return when(not low <= value <= high, f"{key} must be between {low} and {high}, got {value}")

    return Rule((key,), broken, f"write {low} to {high}")


def no_more_gas_than_int64(key: str) -> Rule[Any]:
    """The gas must fit the chain's signed 64 bits."""

    def broken(config: Any) -> Iterator[str]:
        value = getattr(config, key)
        return when(value > MAX_INT64, f"{key} {value} exceeds maximum ({MAX_INT64})")

    return Rule((key,), broken, "write less")


def host_port(key: str) -> Rule[Any]:
    """The text must be host:port."""

    def broken(config: Any) -> Iterator[str]:
        try:
            split_host_port(getattr(config, key))
        except ValueError as error:
            yield f"{key} must be in host:port format: {error}"

    return Rule((key,), broken, "write host:port, an IPv6 host in brackets")
