"""Which of the two dialects a backend speaks: one signed read tells, by the header that only one of them has."""

import re
from collections.abc import Callable
from typing import Final

from backends.contract import Dialect
from backends.requests import BackendTarget, page_request
from fred.http import Request, Response, fetch

HEADER: Final = "X-Fred-Backend-Storage-ID"
PROBE_S: Final = 3.0
_V4: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def probe(
    target: BackendTarget, *, timeout: float = PROBE_S, fetch: Callable[[Request], Response] = fetch
) -> Dialect | None:
    """Ask a backend for one page of its list and say which dialect answered; None when that proves neither.

    A 200 with exactly one canonical storage identity is the current dialect; a 200 without the header is the older one.
    Anything else, such as an error, silence, or a header that is empty, repeated or malformed, proves nothing. Takes
    `timeout` seconds at the longest.
    """
    request = page_request(target, "/provisions", size=1, timeout=min(timeout, target.timeout))
    response = fetch(request)
    if response.error is not None or response.status != 200:
        return None
    identities = response.header(HEADER)
    if not identities:
        return Dialect.V0_13
    return Dialect.CURRENT if len(identities) == 1 and _V4.fullmatch(identities[0]) else None
