"""The id of a request and the trace that it belongs to (W3C Trace Context): taken over where well-formed, else new."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import structlog

HEADER: Final = "X-Request-ID"
REQUEST_ID: Final = "fred.request_id"
"""Scope key of the request's id, a text."""
TRACEPARENT: Final = "fred.traceparent"
"""Scope key of its `traceparent`, a text."""

_ALLOWED: Final = re.compile(rb"[A-Za-z0-9._-]{1,128}")
_TRACE: Final = re.compile(rb"(?!ff)([0-9a-f]{2})(-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2})(-.*)?")
_V00: Final = b"00"


_current: ContextVar[tuple[tuple[str, str], ...]] = ContextVar("fred.request_ids", default=())


def adopt(scope: Mapping[str, Any]) -> None:
    """Make the ids of this scope those of all that is logged and sent from here on, in this task or thread."""
    found = scope.get(REQUEST_ID)
    if found is None:
        _current.set(())
        return
    structlog.contextvars.bind_contextvars(request_id=found)
    _current.set(((HEADER, found), ("traceparent", scope[TRACEPARENT])))


def outbound() -> tuple[tuple[str, str], ...]:
    """Headers that pass the ids of the request of this task or thread on; none outside of one."""
    return _current.get()


@contextmanager
def on_behalf_of(request_id: str) -> Iterator[None]:
    """What is sent inside carries the id of this request (empty: of none), whose thread is another one."""
    token = _current.set(((HEADER, request_id),) if request_id else ())
    try:
        yield
    finally:
        _current.reset(token)


def request_id(inbound: Iterable[bytes]) -> str:
    """The one value of these `X-Request-ID` headers if it may be kept, else a new UUIDv7."""
    found = tuple(inbound)
    if len(found) == 1 and _ALLOWED.fullmatch(found[0]):
        return found[0].decode("ascii")
    return uuid7()


def traceparent(inbound: Iterable[bytes]) -> str:
    """The one value of these `traceparent` headers if it is valid, in the form of version 00; else a new trace.

    A new one says that nobody recorded it.
    """
    found = tuple(inbound)
    parts = _TRACE.fullmatch(found[0].strip()) if len(found) == 1 else None
    if parts is None or (parts[1] == _V00 and parts[3] is not None):
        noise = f"{random.getrandbits(190):048x}"
        return f"00-{noise[:31]}1-{noise[32:47]}1-00"
    return (_V00 + parts[2]).decode("ascii")


def uuid7() -> str:
    """The text of a UUID of version 7 (RFC 9562): 48 bits of milliseconds, the rest random."""
    stamp = f"{time.time_ns() // 1_000_000:012x}"
    noise = f"{random.getrandbits(74):019x}"
    return f"{stamp[:8]}-{stamp[8:]}-7{noise[1:4]}-{'89ab'[int(noise[0], 16) & 3]}{noise[4:7]}-{noise[7:]}"
