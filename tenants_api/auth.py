"""Who calls: the token of a request, and tokens that are good only once."""

import time
from datetime import UTC, datetime
from typing import Final

import structlog
from django.conf import settings
from django.db import Error, connection

from fred import metrics, on_loop
from tenants_api import ahead, loop_reads
from tenants_api.errors import ApiError, unauthorized, unavailable
from tenants_api.tokens import InvalidToken, TenantToken, access_token, bearer, payload_token

log = structlog.get_logger(__name__)

KINDS: Final = {"access": access_token, "payload": payload_token}


def authenticate(authorization: str | None, *, kind: str, now: float | None = None) -> TenantToken:
    """Verify the token of this kind (`access` or `payload`) in an Authorization header, at a unix time, by default now.

    Raises the 401 that every failure looks like; its reason goes to the log, the token does not.
    """
    try:
        if kind == "access" and (known := ahead.token(authorization)) is not None:
            return known
        text = bearer(authorization)
        return KINDS[kind](text, prefix=settings.FRED.bech32_prefix, now=time.time() if now is None else now)
    except InvalidToken as refused:
        log.info("token.refused", stage=refused.stage, reason=refused.reason)
        if kind == "payload":
            metrics.PAYLOAD_UPLOADS.labels(outcome="invalid_auth").inc()
        raise unauthorized() from None


def spend(token: TenantToken, *, now: float | None = None) -> None:
    """Use a token up, whatever becomes of the request; committed on return.

    The key of the row decides between processes: the first gets through, all others are told 401. When that can't be
    decided the request ends with 503.
    """
    if token.spent_until <= (time.time() if now is None else now):
        raise _replayed()
    until = datetime.fromtimestamp(token.spent_until, UTC)
    try:
        is_first = (loop_reads.spend if on_loop.is_here() else _spend)(token.replay_key, until)
    except Error as error:
        log.error("token.not_spent", error=type(error).__name__)  # noqa: TRY400 - the text may hold the key
        raise unavailable() from None
    if not is_first:
        raise _replayed()


def _spend(key: str, until: datetime) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO tenants_api_usedtoken (key, expires_at) VALUES (%s, %s) ON CONFLICT (key) DO NOTHING",
            [key, until],
        )
        return bool(cursor.rowcount == 1)


def _replayed() -> ApiError:
    metrics.TOKEN_REPLAYS.inc()
    return unauthorized()
