"""Names of restarts and updates: the tenant's command key, or an id that is made of its token."""

import hashlib
import re
from typing import Final
from uuid import UUID

from django.conf import settings
from django.http import HttpRequest

from placements.command_status import CommandKind
from tenants_api import idempotency
from tenants_api.errors import ApiError
from tenants_api.tokens import TenantToken

_CANONICAL: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_DOMAIN: Final = b"fred/maintenance-legacy-idempotency-key/v1"
_NUMBERS: Final = {CommandKind.RESTART: b"1", CommandKind.UPDATE: b"2"}


def command_key(request: HttpRequest) -> UUID | None:
    """The request's command key: exactly one Idempotency-Key that is a canonical UUIDv4; None for any other header."""
    keys = idempotency.keys_of(request)
    return UUID(keys[0]) if len(keys) == 1 and _CANONICAL.fullmatch(keys[0]) else None


def check_header(request: HttpRequest) -> None:
    """Raise the 400 of a header that no tenant may send, before anything is used up.

    An empty one or several are always wrong. Where keys are required, so is anything but a canonical UUIDv4, and no
    header at all when nobody is listed who may leave it out.
    """
    keys = idempotency.keys_of(request)
    config = settings.FRED
    if not keys:
        if config.maintenance_require_idempotency_key and not config.maintenance_legacy_idempotency_tenants:
            raise missing()
    elif len(keys) > 1 or not keys[0]:
        raise missing()
    elif config.maintenance_require_idempotency_key and command_key(request) is None:
        raise ApiError(400, "Idempotency-Key must be a canonical UUIDv4", error_code="idempotency_key_invalid")


def missing() -> ApiError:
    """There is no key, or more than one."""
    return ApiError(400, "Idempotency-Key header must occur exactly once", error_code="idempotency_key_invalid")


def derived_id(token: TenantToken, kind: CommandKind) -> UUID:
    """The name of a command without a key: the same for the same token, lease and kind, and for nothing else.

    A UUIDv4 in form: the first 16 bytes of a SHA-256 over five fields, each after its length in 8 bytes, big endian.
    """
    fields = (
        _DOMAIN,
        str(settings.FRED.provider_uuid).encode(),
        token.lease_uuid.encode(),
        _NUMBERS[kind],
        token.replay_key.encode(),
    )
    digest = hashlib.sha256(b"".join(len(field).to_bytes(8) + field for field in fields)).digest()
    return UUID(bytes=digest[:16], version=4)
