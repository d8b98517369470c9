"""Query parameters as the peers' Go server reads them: what is malformed is as if it were not there."""

import re
from typing import Final
from urllib.parse import unquote_to_bytes

from django.http import HttpRequest

from tenants_api.errors import ApiError

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,40}")
_INT64: Final = range(-(2**63), 2**63)
_ESCAPES: Final = re.compile(r"(?:[^%]|%[0-9A-Fa-f]{2})*", re.DOTALL)


def values(query: str, name: str) -> list[str]:
    """Every value of this parameter, in order. A pair with a semicolon or a bad escape is skipped."""
    found = []
    for pair in query.split("&"):
        if ";" in pair or not pair:
            continue
        key, _, value = pair.partition("=")
        if _ESCAPES.fullmatch(key) and _ESCAPES.fullmatch(value) and _decoded(key) == name:
            found.append(_decoded(value))
    return found


def of(request: HttpRequest, name: str) -> list[str]:
    """The values of a parameter of this request."""
    return values(str(request.META.get("QUERY_STRING", "")), name)


def integer(request: HttpRequest, name: str) -> int | None:
    """The first value of a parameter as a decimal integer with an optional sign; None when absent or empty.

    Raises ValueError for anything else, and for what does not fit 64 bits.
    """
    text = next(iter(of(request, name)), "")
    if not text:
        return None
    if not _INTEGER.fullmatch(text) or (number := int(text)) not in _INT64:
        raise ValueError(name)
    return number


def refuse(text: str) -> ApiError:
    """The 400 of a parameter that can't be used."""
    return ApiError(400, text, error_code="invalid_parameter")


def _decoded(text: str) -> str:
    return unquote_to_bytes(text.replace("+", " ")).decode("utf-8", "replace")
