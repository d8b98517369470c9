"""Status events as clients get them: frames of a WebSocket, messages of server-sent events, and cursors. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

import orjson

from leases.event_reads import Kept, StatusFact

OPENING: Final = b"retry: 3000\n\n"
"""Begins a stream of server-sent events: come back 3 s after it ends."""
COMMENT: Final = b": ping\n\n"
"""Shows that a stream lives."""

_DIGITS: Final = re.compile(r"[0-9]+")
_HIGHEST: Final = 2**63 - 1
_STATUS_OF_PHASE: Final[Mapping[str, str]] = {
    "active": "ready",
    "maintaining": "restarting",
    "degraded": "failed",
    "rejecting": "failed",
    "tearing_down": "deprovisioning",
    "ended": "failed",
    "retained": "retained",
}
"""What a lease of which no event is kept is called; in every other phase it is being provisioned."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a client wants to go on: `since` an id, or from now on. Frames have ids only for those who `resume`."""

    since: int | None
    resumes: bool


LIVE: Final = Cursor(None, resumes=False)
NOW: Final = Cursor(None, resumes=True)


def cursor_of(text: str | None) -> Cursor:
    """Read a cursor; None is none at all. Raises ValueError for what is no decimal number, nor empty, nor `now`."""
    if text is None:
        return LIVE
    if text in {"", "now"}:
        return NOW
    if not _DIGITS.fullmatch(text):
        raise ValueError(text)
    digits = text.lstrip("0") or "0"
    return Cursor(min(int(digits[:20]), _HIGHEST), resumes=True)


@lru_cache(maxsize=256)
def frame(event: StatusFact, *, with_id: bool, gap: bool = False) -> str:
    """One event as JSON and a line feed; with its id for those who resume, marked where earlier ones are not kept."""
    body: dict[str, Any] = {"lease_uuid": str(event.lease_uuid), "status": event.status}
    if event.error:
        body["error"] = event.error
    body["timestamp"] = rfc3339(event.at)
    if with_id:
        body["id"] = str(event.id)
    if gap:
        body["gap"] = True
    return orjson.dumps(body).decode() + "\n"


def message(event: StatusFact, *, gap: bool = False) -> bytes:
    """One event as a server-sent event."""
    return f"id: {event.id}\nevent: status\ndata: {frame(event, with_id=True, gap=gap)}\n".encode()


def current(lease_uuid: Any, kept: Kept) -> StatusFact:
    """How a lease stands, for whoever may have missed events: its newest event, or what its phase says, with id 0."""
    if kept.newest is not None:
        return kept.newest
    return StatusFact(0, lease_uuid, _STATUS_OF_PHASE.get(kept.phase, "provisioning"), "", kept.now)


def rfc3339(at: datetime) -> str:
    """UTC, with the fraction of the second less its trailing zeros."""
    moment = at.astimezone(UTC)
    text = moment.strftime("%Y-%m-%dT%H:%M:%S")
    return text + (f".{moment.microsecond:06d}".rstrip("0") if moment.microsecond else "") + "Z"
