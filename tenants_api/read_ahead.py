"""Asking ahead for a small read: both limits in one trip, and the lease beside them, while nothing is decided yet.

No answer comes from here. Every check stays where it stands and finds what it would have asked for (see `ahead`). What
may go first is only what needs no leave: the token is verified, which asks nobody, and the row of the lease is read;
the tenant's bucket is charged only after a good token, and only if the client's address was let in.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final
from uuid import UUID

from django.conf import settings

from fred.address_limit import Along
from fred.decoding import DecodeError, decode_uuid
from fred.handler import Room
from tenants_api import ahead, lease_reads, throttles
from tenants_api.ahead import Ahead
from tenants_api.tokens import InvalidToken, access_token, bearer

_BEFORE: Final = ["", "v1", "leases"]
_BODIES: Final = frozenset({b"content-length", b"transfer-encoding"})


def begin(room: Room, scope: Mapping[str, Any]) -> Along | None:
    """Ask for what a `GET` or `HEAD` of a lease's route will need; None where the tenant's bucket has no part in it.

    Not for requests with a body, which would wait for it with what was read before, nor while there is no room for
    another one. One that finds the room full a moment later has taken its token for nothing.
    """
    *before, segment, _route = scope["path"].split("/")
    if before != _BEFORE or b"%" in scope["raw_path"] or scope["method"] not in {"GET", "HEAD"}:
        return None
    authorization = _authorization(scope["headers"])
    if authorization is None or room.is_full or not throttles.is_on():
        return None
    try:
        verdict = access_token(bearer(authorization), prefix=settings.FRED.bech32_prefix, now=time.time())
    except InvalidToken as refused:
        ahead.keep(Ahead(authorization, refused))
        return None
    found = Ahead(authorization, verdict)
    ahead.keep(found)
    if verdict.lease_uuid == segment and (lease := _uuid(segment)) is not None:
        found.bucket = Along(throttles.buckets(), verdict.tenant)
        found.lease, found.row = lease, lease_reads.rows.begin(lease)
        found.row.add_done_callback(_heed)
    return found.bucket


def _authorization(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The header's value; None without one, and where a body is announced."""
    authorization = None
    for name, value in headers:
        if name == b"authorization":
            authorization = value.decode("latin-1")
        elif name in _BODIES:
            return None
    return authorization


def _uuid(text: str) -> UUID | None:
    try:
        return decode_uuid(text)
    except DecodeError:
        return None


def _heed(row: asyncio.Future[Any]) -> None:
    """Who was refused meanwhile does not ask how the reading went."""
    if not row.cancelled():
        row.exception()
