"""Pages of lists, as the chain of profiles A and B cuts them.

The next page starts at the row whose key the last answer named. When that row has left the list meanwhile, the page
is empty and ends the listing without an error.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import NamedTuple

from leases.chain.devchain.errors import QueryRefused
from leases.chain.proto.pagination_pb2 import PageRequest, PageResponse

DEFAULT_LIMIT = 100


class Page(NamedTuple):
    """The keys of one page and what the answer says about the rest."""

    keys: list[str]
    response: PageResponse


def cut(keys: Sequence[str], request: PageRequest) -> Page:
    """One page of ascending keys; raises `QueryRefused` when key and offset are both given."""
    if request.key and request.offset:
        raise QueryRefused("INVALID_ARGUMENT", "invalid request, either offset or key is expected, got both")
    limit = request.limit or DEFAULT_LIMIT
    total = len(keys) if request.count_total and not request.key else 0
    if request.reverse:
        keys = keys[::-1]
    start = request.offset
    if request.key:
        found = _position(keys, request.key.decode("utf-8", "replace"), reverse=request.reverse)
        if found is None:
            return Page([], PageResponse())
        start = found
    end = start + limit
    response = PageResponse(total=total)
    if end < len(keys):
        response.next_key = keys[end].encode()
    return Page(list(keys[start:end]), response)


def _position(keys: Sequence[str], key: str, *, reverse: bool) -> int | None:
    if reverse:
        return keys.index(key) if key in keys else None
    index = bisect.bisect_left(keys, key)
    return index if index < len(keys) and keys[index] == key else None
