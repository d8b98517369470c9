"""Pages of lists, as the chain cuts them.

On profiles A and B the next page starts at the row whose key the last answer named; when that row has left the list
meanwhile, the page is empty and ends the listing without an error. On C (`strict`) it starts at the first row from
that key on, a page has at most 1,000 rows, and offsets and counts end at 20,000 rows.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import NamedTuple

from leases.chain.devchain.errors import QueryRefused
from leases.chain.proto.pagination_pb2 import PageRequest, PageResponse

DEFAULT_LIMIT = 100
STRICT_LIMIT = 1_000
SCAN_LIMIT = 20_000


class Page(NamedTuple):
    """The keys of one page and what the answer says about the rest."""

    keys: list[str]
    response: PageResponse


def cut(keys: Sequence[str], request: PageRequest, *, strict: bool = False) -> Page:
    """One page of ascending keys; raises `QueryRefused` when key and offset are both given."""
    if request.key and request.offset:
        raise QueryRefused("INVALID_ARGUMENT", "invalid request, either offset or key is expected, got both")
    limit = request.limit or DEFAULT_LIMIT
    if strict:
        limit = min(limit, STRICT_LIMIT)
        if max(request.offset + limit, len(keys) if request.count_total else 0) > SCAN_LIMIT and not request.key:
            raise QueryRefused("RESOURCE_EXHAUSTED", f"the query looks at more than {SCAN_LIMIT} rows")
    counted = request.count_total and not request.key and (request.limit or not strict)
    total = len(keys) if counted else 0
    if request.reverse:
        keys = keys[::-1]
    start = request.offset
    if request.key:
        found = _position(keys, request.key.decode("utf-8", "replace"), reverse=request.reverse, strict=strict)
        if found is None:
            return Page([], PageResponse())
        start = found
    end = start + limit
    response = PageResponse(total=total)
    if end < len(keys):
        response.next_key = keys[end].encode()
    return Page(list(keys[start:end]), response)


def _position(keys: Sequence[str], key: str, *, reverse: bool, strict: bool) -> int | None:
    if strict:
        if reverse:
            return next((index for index, row in enumerate(keys) if row <= key), len(keys))
        return bisect.bisect_left(keys, key)
    if reverse:
        return keys.index(key) if key in keys else None
    index = bisect.bisect_left(keys, key)
    return index if index < len(keys) and keys[index] == key else None
