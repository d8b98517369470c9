"""Where WebSockets are opened, whether a request opens one (RFC 6455, 4.2.1), and what is wrong where not. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

VERSION: Final = b"13"
_KEY_BYTES: Final = 16
_EVENTS_PREFIX, _EVENTS_SUFFIX = b"/v1/leases/", b"/events"


@dataclass(frozen=True, slots=True)
class UpgradeFault:
    """Why a request is no opening handshake, as its answer: status, text, and one header that says what is wanted."""

    status: int
    text: str
    header: tuple[bytes, bytes]


_BAD: Final = UpgradeFault(400, "Bad Request", (b"sec-websocket-version", VERSION))
_REQUIRED: Final = UpgradeFault(426, "Upgrade Required", (b"upgrade", b"websocket"))


def upgrade_fault(headers: Iterable[tuple[bytes, bytes]]) -> UpgradeFault | None:
    """The first fault of these headers (names in lower case), None when a GET with them opens a WebSocket."""
    named: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        named.setdefault(name, []).append(value)
    if b"upgrade" not in _tokens(named.get(b"connection", ())):
        return _BAD
    if b"websocket" not in _tokens(named.get(b"upgrade", ())):
        return _REQUIRED
    if named.get(b"sec-websocket-version") != [VERSION] or not _is_key(named.get(b"sec-websocket-key", ())):
        return _BAD
    return None


def events_segment(raw_path: bytes) -> bytes:
    """The segment that names the lease in an undecoded path of events, whatever it holds; empty for other paths."""
    lease = raw_path[len(_EVENTS_PREFIX) : -len(_EVENTS_SUFFIX)]
    is_one = raw_path.startswith(_EVENTS_PREFIX) and raw_path.endswith(_EVENTS_SUFFIX) and b"/" not in lease
    return lease if is_one else b""


def is_events_target(target: bytes) -> bool:
    """Whether a request target is the one route where a WebSocket may be opened."""
    return bool(events_segment(target.partition(b"?")[0]))


def websocket_key(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The key of an opening handshake without faults."""
    return next(value.strip() for name, value in headers if name == b"sec-websocket-key")


def _tokens(values: Iterable[bytes]) -> set[bytes]:
    return {token.strip().lower() for value in values for token in value.split(b",")}


def _is_key(values: Iterable[bytes]) -> bool:
    found = list(values)
    if len(found) != 1:
        return False
    try:
        return len(base64.b64decode(found[0].strip(), validate=True)) == _KEY_BYTES
    except binascii.Error:
        return False
