"""The least that may take callbacks: an ASGI application that verifies the HMAC and answers 200. No database.

Served by the same server with the same options as the real one. With `FRED_BENCH_PIPE` (a named pipe that somebody
reads) it writes the 16 bytes of the lease's uuid there for each callback.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, MutableMapping
from functools import cache
from typing import Any
from uuid import UUID

import msgspec

from fred import signing

_HEADER = signing.HEADER.lower().encode()
_SECRET = os.environ.get("FRED_BENCH_SECRET", "").encode()
_PIPE = os.environ.get("FRED_BENCH_PIPE", "")
_JSON = (b"content-type", b"application/json")


class _Body(msgspec.Struct):
    lease_uuid: UUID


_decode = msgspec.json.Decoder(_Body).decode


@cache
def _pipe() -> int:
    return os.open(_PIPE, os.O_WRONLY)


async def app(
    scope: MutableMapping[str, Any],
    receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
    send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
) -> None:
    """Answer 200 to a callback with a good signature, 401 to anything else."""
    if scope["type"] != "http":
        return
    message = await receive()
    body: bytes = message.get("body", b"")
    while message.get("more_body"):
        message = await receive()
        body += message.get("body", b"")
    header = next((value for key, value in scope["headers"] if key == _HEADER), b"")
    target = scope["raw_path"] + b"?" + scope["query_string"] if scope["query_string"] else scope["raw_path"]
    verdict = signing.verify(
        header.decode("latin-1"), keys=[_SECRET], now=time.time(), method="POST", target=target, body=body
    )
    if verdict.ok and _PIPE:
        os.write(_pipe(), _decode(body).lease_uuid.bytes)
    status = 200 if verdict.ok else 401
    await send({"type": "http.response.start", "status": status, "headers": [_JSON, (b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})
