"""The two URLs that an operation gives its backend. Pure."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID

PATH = "/callbacks/provision"


class CallbackUrls(NamedTuple):
    """Where a backend reports the operation's result, and everything after that. Both carry the operation's id."""

    operation: str
    lifecycle: str


def callback_urls(base: str, operation: UUID) -> CallbackUrls:
    """Build both from ``callback_base_url``: its path is prefixed, its query bytes are kept before the selector.

    The ids are capabilities: whoever knows the URL may speak for the operation, so it is never logged.
    """
    parts = urlsplit(base)

    def url(selector: str) -> str:
        query = f"{parts.query}&{selector}={operation}" if parts.query else f"{selector}={operation}"
        return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/") + PATH, query, ""))

    return CallbackUrls(url("operation_id"), url("lifecycle_id"))
