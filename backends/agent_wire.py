"""The requests an agent reads, and the answers only an agent writes. Unknown fields are ignored; null is absent."""

from base64 import b64encode
from typing import Any

import msgspec

from backends.agent_contract import Release
from backends.wire import Item, time_text


class LeaseRequest(msgspec.Struct, gc=False):
    """The body of `POST /deprovision`."""

    lease_uuid: str = ""


class RestartRequest(msgspec.Struct, gc=False):
    """The body of `POST /restart`."""

    lease_uuid: str = ""
    callback_url: str | None = None


class UpdateRequest(msgspec.Struct, gc=False):
    """The body of `POST /update`."""

    lease_uuid: str = ""
    callback_url: str | None = None
    payload: bytes | None = None
    payload_hash: str | None = None


class RestoreRequest(msgspec.Struct):
    """The body of `POST /restore`."""

    lease_uuid: str = ""
    from_lease_uuid: str | None = None
    tenant: str | None = None
    provider_uuid: str | None = None
    items: list[Item] | None = None
    callback_url: str | None = None


class DomainsRequest(msgspec.Struct):
    """The body of `POST /reconcile_custom_domain`."""

    lease_uuid: str = ""
    items: list[Item] | None = None


def release_json(release: Release) -> dict[str, Any]:
    """One version for the wire; a failed one always has a reason."""
    said: dict[str, Any] = {
        "version": release.version,
        "image": release.image,
        "status": release.status.value,
        "created_at": time_text(release.created_at),
        "manifest": b64encode(release.manifest).decode() if release.manifest else None,
    }
    if release.status.value == "failed":
        said["reason"] = release.reason or "Unknown"
    if release.message:
        said["message"] = release.message
    return said
