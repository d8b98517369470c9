"""Reading the error body of a backend: `{"error": text, "validation_code"?: word, "code"?: word}`.

A body that is not exactly that proves nothing and goes no further than our own log.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from backends.contract import Dialect

MAX_BYTES = 4096
MALFORMED_TEXT = "backend returned an unrecognized error response"
"""The only text a caller sees of a malformed error body."""

_FIELDS = ("error", "validation_code", "code")


@dataclass(frozen=True, slots=True)
class Envelope:
    """A valid error body. `error` is curated by the backend and may reach a tenant."""

    error: str
    validation_code: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True)
class Empty:
    """No body at all: the status stands for itself where the contract gives it a bare meaning."""


@dataclass(frozen=True, slots=True)
class Malformed:
    """Anything else. `why` is for our log."""

    why: str


def clean(text: str) -> str:
    """Make foreign text storable: PostgreSQL takes no NUL, UTF-8 no lone surrogates."""
    if text.isascii() and "\0" not in text:
        return text
    return text.encode(errors="replace").decode().replace("\0", "")


def _unique(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def _no_constant(word: str) -> object:
    raise ValueError(f"{word} is not JSON")


def _lenient(body: bytes) -> object:
    text = body[:MAX_BYTES].decode(errors="replace")
    found = json.loads(text, parse_constant=_no_constant)
    if not isinstance(found, dict):
        return found
    # The older servers' own library matches names in any case, the last one wins, and null leaves a field empty.
    return {name.lower(): value for name, value in found.items() if name.lower() in _FIELDS and value is not None}


def _exact(body: bytes) -> object:
    if len(body) > MAX_BYTES:
        raise ValueError("too long")
    found = json.loads(body.decode(), object_pairs_hook=_unique, parse_constant=_no_constant)
    if isinstance(found, dict) and not found.keys() <= set(_FIELDS):
        raise ValueError("unknown field")
    return found


def read(body: bytes, *, dialect: Dialect) -> Envelope | Empty | Malformed:
    """Read an error body. `v0_13` backends are read as leniently as their own control plane reads them."""
    lenient = dialect is Dialect.V0_13
    if not body or (lenient and not body.strip()):
        return Empty()
    not_one = "body is not the JSON error envelope" if lenient else "body is not one bounded, exact JSON error envelope"
    try:
        found = _lenient(body) if lenient else _exact(body)
    except (ValueError, RecursionError):
        return Malformed(not_one)
    if found is None:
        found = {}
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        return Malformed(not_one)
    if not found.get("error"):
        return Malformed('envelope is missing the required "error" field')
    return Envelope(**{name: clean(value) for name, value in found.items()})
