"""What tenants upload for their leases: kept once, with the hash of exactly these bytes."""

import hashlib
from collections.abc import Callable
from functools import partial
from hmac import compare_digest
from uuid import UUID

import structlog
from django.db import Error, connection

from fred import due
from fred.errors import PermanentError, TransientError
from leases import wake

log = structlog.get_logger(__name__)


class HashMismatch(PermanentError):
    """These are not the bytes that the lease announced."""


class NotStored(TransientError):
    """The payload could not be made durable."""


def store(lease_uuid: UUID, body: bytes, *, expected: bytes, within: Callable[[], None] = lambda: None) -> bool:
    """Keep a payload and have its lease looked at, in one transaction; False when one is there already.

    A lock that somebody holds for too long is waited for up to three times.

    ``expected`` is the lease's hash on chain; ``within`` is called in the transaction of a first payload. Raises
    HashMismatch, and NotStored when nothing was committed.
    """
    digest = hashlib.sha256(body).digest()
    if not compare_digest(digest, expected):
        raise HashMismatch
    try:
        return due.in_transaction(partial(_insert, lease_uuid, body, digest=digest, within=within))
    except Error as error:
        log.error("payload.not_stored", lease_uuid=str(lease_uuid), error=type(error).__name__)  # noqa: TRY400
        raise NotStored from error


def _insert(lease_uuid: UUID, body: bytes, *, digest: bytes, within: Callable[[], None]) -> bool:
    with wake.news_about({lease_uuid}) as news, connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO leases_payload (lease_uuid, state, body, sha256, corrupt)
            VALUES (%s, 'current', %s, %s, FALSE)
                ON CONFLICT (lease_uuid) WHERE state = 'current' DO NOTHING
            """,
            [lease_uuid, body, digest],
        )
        is_first = bool(cursor.rowcount)
        if is_first:
            news.wake([lease_uuid])
            within()
    return is_first
