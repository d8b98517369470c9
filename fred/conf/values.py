"""The syntax of single values: Go durations, Go booleans, integers, floats, lists, coins.

Every parser takes what the environment (text) or YAML (text or a scalar) gives and raises ValueError with a
message that says what is accepted. Pure.
"""

import ipaddress
import json
import math
import re
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, NamedTuple

from pydantic import BeforeValidator

_NANOSECONDS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # micro sign
    "μs": 1_000,  # Greek mu
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60 * 1_000_000_000,
    "h": 3600 * 1_000_000_000,
}
_DURATION_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_COIN = re.compile(r"(\d+)([a-zA-Z][a-zA-Z0-9/:._-]{2,127})")
_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})
_INTEGER = re.compile(r"[+-]?\d+")
_FLOAT = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_NOT_FINITE = frozenset({"nan", "inf", "infinity"})
_MAX_NANOSECONDS = 2**63 - 1


class Coin(NamedTuple):
    """An amount in the smallest unit of its denom."""

    amount: int
    denom: str

    def __str__(self) -> str:
        """As the chain writes it: `10000000umfx`."""
        return f"{self.amount}{self.denom}"


def parse_duration(value: object) -> timedelta:
    """A Go duration: decimals with units ns, us, ms, s, m, h, an optional sign; zero may stand alone.

    A bare number other than zero is refused, because nobody can know its unit.
    """
    if isinstance(value, timedelta):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        if value == 0:
            return timedelta(0)
        raise ValueError(f"{value} has no unit; write for example {value}s, {value}m or 500ms")
    text = value if isinstance(value, str) else ""
    sign, rest = (-1, text[1:]) if text[:1] == "-" else (1, text.removeprefix("+"))
    if rest == "0":
        return timedelta(0)
    nanoseconds = Decimal(0)
    position = 0
    for part in _DURATION_PART.finditer(rest):
        if part.start() != position:
            break
        nanoseconds += Decimal(part[1]) * _NANOSECONDS[part[2]]
        position = part.end()
    if not rest or position != len(rest):
        raise ValueError(f"{value!r} is not a duration; write for example 500ms, 90s, 1h30m (units ns us ms s m h)")
    if nanoseconds > _MAX_NANOSECONDS:
        raise ValueError(f"{value!r} is longer than a duration can be (about 292 years)")
    if 0 < nanoseconds < 1_000:
        raise ValueError(f"{value!r} is below one microsecond")
    return timedelta(microseconds=sign * int(nanoseconds / 1_000))


def format_duration(value: timedelta) -> str:
    """The duration as Go prints it: `1h0m0s`, `1.5s`, `500ms`, `0s`."""
    microseconds = value // timedelta(microseconds=1)
    sign, rest = ("-", -microseconds) if microseconds < 0 else ("", microseconds)
    if rest == 0:
        return "0s"
    if rest < 1_000:
        return f"{sign}{rest}µs"
    if rest < 1_000_000:
        return f"{sign}{_trim(Decimal(rest) / 1_000)}ms"
    minutes, micro = divmod(rest, 60_000_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{_trim(Decimal(micro) / 1_000_000)}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    if hours:
        text = f"{hours}h{text}"
    return sign + text


def _trim(number: Decimal) -> str:
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def split_list(text: str) -> tuple[str, ...]:
    """The parts of a list with commas, without the spaces around them; an empty part stays, to be complained of."""
    return tuple(part.strip() for part in text.split(","))


def parse_bool(value: object) -> bool:
    """A Go boolean; anything else is refused, never taken for false."""
    if isinstance(value, bool):
        return value
    text = str(value) if isinstance(value, str | int) else ""
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError(f"{value!r} is not a boolean; use true or false")


def parse_int(value: object) -> int:
    """A decimal integer, as number or text."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        return int(value)
    raise ValueError(f"{value!r} is not an integer")


def parse_float(value: object) -> float:
    """A decimal number with an optional exponent; never NaN, never infinite."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    is_text = isinstance(value, str) and (_FLOAT.fullmatch(value) or value.lower().lstrip("+-") in _NOT_FINITE)
    if not (is_number or is_text):
        raise ValueError(f"{value!r} is not a number")
    number = float(value)  # type: ignore[arg-type]  # one of the two
    if math.isnan(number):
        raise ValueError("must not be NaN")
    if math.isinf(number):
        raise ValueError("must be finite")
    return number


def parse_text(value: object) -> str:
    """Text. YAML numbers and booleans are refused: quote them."""
    if isinstance(value, str):
        return value
    raise ValueError(f"{value!r} is not text; put it in quotes")


def parse_list(value: object) -> tuple[str, ...]:
    """A YAML list of text, a JSON array, or text separated by commas (trimmed, empty items dropped)."""
    if isinstance(value, str):
        stripped = value.strip()
        if not stripped.startswith("["):
            return tuple(item for item in (part.strip() for part in stripped.split(",")) if item)
        try:
            value = json.loads(stripped)
        except json.JSONDecodeError as error:
            raise ValueError(f"not a JSON array: {error}") from error
    if not isinstance(value, list | tuple):
        raise ValueError(f"{value!r} is not a list")  # noqa: TRY004 - pydantic collects ValueError only
    if not all(isinstance(item, str) for item in value):
        raise ValueError("every item must be text; put numbers in quotes")
    return tuple(item for item in (part.strip() for part in value) if item)


def parse_coin(value: object) -> Coin:
    """An integer and a denom without space, such as `10000000umfx`."""
    if isinstance(value, Coin):
        return value
    found = _COIN.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"{value!r} is not a coin; write an integer followed by its denom, for example 10000000umfx")
    return Coin(int(found[1]), found[2])


def parse_networks(value: object) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    """CIDR blocks or bare addresses; one bad item refuses the list."""
    items: Sequence[object] = value if isinstance(value, tuple) else parse_list(value)
    networks = []
    for item in items:
        try:
            networks.append(ipaddress.ip_network(str(item), strict=False))
        except ValueError:
            raise ValueError(f"{item!r} is neither a CIDR block nor an IP address") from None
    return tuple(networks)


def split_host_port(value: str) -> tuple[str, int]:
    """Host (may be empty) and port of `host:port` or `[v6]:port`."""
    host, colon, port = value.rpartition(":")
    if not colon:
        raise ValueError(f"{value!r} has no port; write host:port")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{value!r} has too many colons; write an IPv6 address in brackets")
    if not (port.isascii() and port.isdigit() and 0 <= int(port) <= 65535):
        raise ValueError(f"{value!r} has no valid port (0 to 65535)")
    return host, int(port)


def parse_host_port(value: object) -> str:
    """`host:port` as text, checked."""
    text = parse_text(value)
    split_host_port(text)
    return text


Duration = Annotated[timedelta, BeforeValidator(parse_duration)]
Bool = Annotated[bool, BeforeValidator(parse_bool)]
Int = Annotated[int, BeforeValidator(parse_int)]
Float = Annotated[float, BeforeValidator(parse_float)]
Text = Annotated[str, BeforeValidator(parse_text)]
TextList = Annotated[tuple[str, ...], BeforeValidator(parse_list)]
CoinValue = Annotated[Coin, BeforeValidator(parse_coin)]
Networks = Annotated[
    tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...],
    BeforeValidator(parse_networks),
]
HostPort = Annotated[str, BeforeValidator(parse_host_port)]
