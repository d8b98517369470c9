"""Building the signed requests that change what a lease has at its backend: restart, update, restore, its domains."""

from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256
from uuid import UUID

import orjson

from backends import wire
from backends.contract import Dialect, LeaseItem
from backends.requests import MUTATION_BODY_BYTES, BackendTarget, request
from fred.http import MEBIBYTE, Request

RELEASES_BODY_BYTES_V0_13 = 8 * MEBIBYTE
RELEASES_BODY_BYTES = 48 * MEBIBYTE


def restart_request(backend: BackendTarget, lease_uuid: UUID, *, callback_url: str, tag: object = None) -> Request:
    """`POST /restart`. Send it once: an older backend runs it again each time."""
    return _post(backend, "/restart", {"lease_uuid": str(lease_uuid), "callback_url": callback_url}, tag=tag)


def update_request(
    backend: BackendTarget, lease_uuid: UUID, payload: bytes, *, callback_url: str, tag: object = None
) -> Request:
    """`POST /update` with the new manifest; an older backend also gets the digest it knows. Send it once."""
    body = {
        "lease_uuid": str(lease_uuid),
        "callback_url": callback_url,
        "payload": b64encode(payload).decode(),
    }
    if backend.dialect is Dialect.V0_13:
        body["payload_hash"] = sha256(payload).hexdigest()
    return _post(backend, "/update", body, tag=tag)


def restore_request(
    backend: BackendTarget,
    lease_uuid: UUID,
    *,
    source: UUID,
    tenant: str,
    provider_uuid: UUID,
    items: Iterable[LeaseItem],
    callback_url: str,
    tag: object = None,
) -> Request:
    """`POST /restore`: put what is kept of `source` under this new lease."""
    body = {
        "lease_uuid": str(lease_uuid),
        "from_lease_uuid": str(source),
        "tenant": tenant,
        "provider_uuid": str(provider_uuid),
        "items": [wire.item_json(item) for item in items],
        "callback_url": callback_url,
    }
    return _post(backend, "/restore", body, tag=tag)


def domains_request(
    backend: BackendTarget, lease_uuid: UUID, items: Iterable[LeaseItem], *, tag: object = None
) -> Request:
    """`POST /reconcile_custom_domain`: the domains that the chain wants for the lease's items."""
    body = {"lease_uuid": str(lease_uuid), "items": [wire.item_json(item) for item in items]}
    return _post(backend, "/reconcile_custom_domain", body, tag=tag)


def releases_request(
    backend: BackendTarget, lease_uuid: UUID, *, timeout: float | None = None, tag: object = None
) -> Request:
    """`GET /releases/<lease>`."""
    cap = RELEASES_BODY_BYTES_V0_13 if backend.dialect is Dialect.V0_13 else RELEASES_BODY_BYTES
    return request(backend, f"/releases/{lease_uuid}", timeout=timeout, max_body=cap, tag=tag)


def _post(backend: BackendTarget, path: str, body: object, *, tag: object) -> Request:
    return request(backend, path, body=orjson.dumps(body), max_body=MUTATION_BODY_BYTES, tag=tag, want_headers=False)
