"""What was asked for ahead of a request's checks (see `read_ahead`): each takes its own part, once, in its turn."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from fred.address_limit import Along
from fred.buckets import Draw
from tenants_api.tokens import InvalidToken, TenantToken


@dataclass(slots=True)
class Ahead:
    """The verdict on an Authorization header; of a good one also its tenant's token of the bucket, and its lease."""

    authorization: str
    verdict: TenantToken | InvalidToken
    bucket: Along | None = None
    lease: UUID | None = None
    row: asyncio.Future[Any] | None = None


_current: ContextVar[Ahead | None] = ContextVar("tenants_api.ahead", default=None)


def keep(found: Ahead) -> None:
    """Of the request of this task."""
    _current.set(found)


def token(authorization: str | None) -> TenantToken | None:
    """The access token that this header was found to hold, None if it was not looked at. Raises InvalidToken."""
    found = _current.get()
    if found is None or found.authorization != authorization:
        return None
    if isinstance(found.verdict, InvalidToken):
        # A new one: raised again, it would hold this frame, which holds it, and with both all of the request.
        raise InvalidToken(found.verdict.stage, found.verdict.reason)
    return found.verdict


def draw(tenant: str) -> Draw | None:
    """The draw from this tenant's bucket, None if none was made or it was taken."""
    found = _current.get()
    if found is None or found.bucket is None or found.bucket.key != tenant:
        return None
    bucket, found.bucket = found.bucket, None
    return bucket.draw


def row(lease: UUID) -> asyncio.Future[Any] | None:
    """The row of this lease, None if it was not asked for or is taken."""
    found = _current.get()
    if found is None or found.lease != lease:
        return None
    begun, found.row = found.row, None
    return begun
