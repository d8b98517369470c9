"""The error body of the API below Django: `{"error": text, "code": status}`, and what stands around it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import orjson

from fred import request_ids

Headers = list[tuple[bytes, bytes]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

JSON: Final = (b"content-type", b"application/json")
CLOSE: Final = (b"connection", b"close")
SECURITY_HEADERS: Final[Headers] = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"x-xss-protection", b"1; mode=block"),
    (b"cache-control", b"no-store"),
]
_RETRY_AFTER: Final = (b"retry-after", b"1")


def envelope(status: int, text: str) -> bytes:
    """The body, with a line feed."""
    return orjson.dumps({"error": text, "code": status}, option=orjson.OPT_APPEND_NEWLINE)


def headers_of(status: int, body: bytes, extra: Sequence[tuple[bytes, bytes]] = ()) -> Headers:
    """Headers of an error with this body; a 503 of ours says when to come back, unless `extra` does."""
    headers: Headers = [JSON, (b"content-length", str(len(body)).encode()), *extra]
    if status == 503 and not any(name == b"retry-after" for name, _ in extra):
        headers.append(_RETRY_AFTER)
    return headers


async def answer(send: Send, status: int, text: str, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
    """Send an error over ASGI."""
    body = envelope(status, text)
    await send({"type": "http.response.start", "status": status, "headers": headers_of(status, body, headers)})
    await send({"type": "http.response.body", "body": body})


def raw_response(status: int, default_headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The whole answer to what is no request, as bytes; its text is the name of the status. It ends the connection."""
    phrase = HTTPStatus(status).phrase
    body = envelope(status, phrase.lower())
    ids = [
        (b"x-request-id", request_ids.request_id(()).encode()),
        (b"traceparent", request_ids.traceparent(()).encode()),
    ]
    headers = [*default_headers, *headers_of(status, body), *SECURITY_HEADERS, *ids, CLOSE]
    lines = [b"%b: %b\r\n" % header for header in headers]
    return b"HTTP/1.1 %d %b\r\n%b\r\n%b" % (status, phrase.encode(), b"".join(lines), body)
