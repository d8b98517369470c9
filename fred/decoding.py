"""JSON, base64 and UUIDs as the peers' Go decoders read them: as lenient as those, and as strict."""

import binascii
import json
import re
from collections.abc import Mapping
from typing import Any, Final, NoReturn
from uuid import UUID

_BASE64: Final = re.compile(r"[A-Za-z0-9+/]*={0,2}")
"""Of a whole number of quads."""
_LINE_ENDS: Final = {0x0A: None, 0x0D: None}
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")
_BLANKS: Final = " \t\n\r"
_INT64: Final = range(-(2**63), 2**63)
_ZERO: Final[Mapping[type, Any]] = {str: "", int: 0, bool: False, bytes: b""}


class DecodeError(ValueError):
    """The input is not what the wire format allows."""


class _Pairs(tuple[tuple[str, Any], ...]):
    """A JSON object with every member it had, duplicates too."""

    __slots__ = ()


class _Number(str):
    """A JSON number as it was written."""

    __slots__ = ()


def _refuse(constant: str) -> NoReturn:
    raise DecodeError(f"{constant} is no JSON value")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_Pairs, parse_int=_Number, parse_float=_Number, parse_constant=_refuse
)


def decode_base64(text: str) -> bytes:
    """Decode the standard alphabet with padding; line ends inside are skipped, spare low bits ignored.

    Raises DecodeError for anything else (URL-safe letters, missing padding, blanks).
    """
    if "\n" in text or "\r" in text:  # to look costs next to nothing
        text = text.translate(_LINE_ENDS)
    if len(text) % 4 or not _BASE64.fullmatch(text):
        raise DecodeError("not standard base64")
    return binascii.a2b_base64(text)


def decode_uuid(text: str) -> UUID:
    """Read a UUID in one of four spellings: hyphenated, after `urn:uuid:`, between any two characters, or bare hex.

    Any letter case, any version. Raises DecodeError for anything else.
    """
    match len(text):
        case 45 if text[:9].lower() == "urn:uuid:":
            text = text[9:]
        case 38:
            text = text[1:-1]
        case 32:
            text = f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
    if not _UUID.fullmatch(text):
        raise DecodeError("not a UUID")
    return UUID(text)


def _load(data: bytes, *, more: bool) -> Any:
    """One JSON value, which fills the whole input unless `more` may follow; bytes that are no UTF-8 become U+FFFD."""
    text = data.decode("utf-8", "replace")
    try:
        return _DECODER.raw_decode(text.lstrip(_BLANKS))[0] if more else _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise DecodeError(str(error)) from None


def _text(value: str) -> str:
    """Replace surrogates without a partner: they can't be written as UTF-8."""
    if value.isascii():
        return value
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _byte_list(value: list[Any]) -> bytes:
    if not all(isinstance(item, _Number) and item.isdigit() and int(item) < 256 for item in value):
        raise DecodeError("not a list of bytes")
    return bytes(int(item) for item in value)


def _convert(value: Any, kind: type) -> Any:
    """Turn one JSON value that is not null into a str, int, bool or bytes field."""
    if kind is int and isinstance(value, _Number) and len(value) < 21:
        try:
            number = int(value)
        except ValueError:
            number = 2**63
        if number in _INT64:
            return number
    elif kind is bool and isinstance(value, bool):
        return value
    elif isinstance(value, str) and not isinstance(value, _Number):
        if kind is str:
            return _text(value)
        if kind is bytes:
            return decode_base64(value)
    elif kind is bytes and isinstance(value, list):
        return _byte_list(value)
    raise DecodeError(f"a value of the wrong type for {kind.__name__}")


def decode_object(
    data: bytes, fields: Mapping[str, type], *, strict: bool = False, more: bool = False
) -> dict[str, Any]:
    """Read the named fields (kinds: str, int, bool, bytes) of the one JSON object in data.

    Unknown members are skipped, names match in any letter case, the last of several wins, `null` for a field or
    for the whole value gives zero values (a later `null` empties bytes only), and every field is in the result.
    Integers must be plain and fit 64 bits.
    Raises DecodeError for everything else, also when a member that is overwritten later has the wrong type; with
    ``strict`` also for a field given twice or in another letter case, and for `null` as the whole value. With ``more``
    whatever stands after the object is not looked at.
    """
    loaded = _load(data, more=more)
    found = {name: _ZERO[kind] for name, kind in fields.items()}
    if loaded is None and not strict:
        return found
    if not isinstance(loaded, _Pairs):
        raise DecodeError("not a JSON object")
    seen: set[str] = set()
    for key, value in loaded:
        name = key if key in fields else key.casefold()
        if name not in fields or len(name) != len(key):
            continue
        if strict and (name != key or name in seen):
            raise DecodeError(f"{name} is given twice or in another letter case")
        seen.add(name)
        if value is not None:
            found[name] = _convert(value, fields[name])
        elif fields[name] is bytes:
            found[name] = b""
    return found
