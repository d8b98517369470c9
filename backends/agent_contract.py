"""What a backend promises to its agent beyond making and removing: maintenance, restore, history, custom domains.

Like `backends.contract` it knows neither HTTP nor a database.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol
from uuid import UUID

from backends.contract import AlreadyProvisioned, Backend, BackendError, LeaseItem


class ReleaseStatus(StrEnum):
    """Where one version of a lease's workload stands."""

    DEPLOYING = "deploying"
    ACTIVE = "active"
    SUPERSEDED = "superseded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Release:
    """One version: `manifest` is what was uploaded, `image` the image or `stack` for several services."""

    version: int
    image: str
    status: ReleaseStatus
    created_at: datetime
    manifest: bytes = b""
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class RestoreSpec:
    """Put the data kept of `source` under the new lease `lease_uuid`; items have the shape that was kept."""

    lease_uuid: UUID
    source: UUID
    tenant: str
    provider_uuid: UUID | None
    items: tuple[LeaseItem, ...]
    callback_url: str


class NotRetained(BackendError):
    """No data is kept of that lease for that tenant; also every backend that keeps none."""

    http_status = 422
    text = "no retained data for lease"


class DemoteExceedsTier(BackendError):
    """The kept data do not fit the smaller disk that was asked for."""

    code = "demote_exceeds_tier"
    http_status = 422
    text = "retained data exceeds the requested smaller tier"


class TargetProvisioned(AlreadyProvisioned):
    """A restore into a lease that has a provision; named by a code, for a bare 409 means another thing there."""

    code = "already_provisioned"


class ServedBackend(Backend, Protocol):
    """Everything an agent serves. Each call may come again for the same lease; refusals are `BackendError`s."""

    async def restart(self, lease_uuid: UUID, *, callback_url: str) -> None:
        """Begin to make the workload anew, same manifest and data; the result goes to the URL.

        Raises `NotProvisioned`, `InvalidState` unless it is ready or failed.
        """

    async def update(self, lease_uuid: UUID, *, payload: bytes, callback_url: str) -> None:
        """Begin to replace the manifest; one that fails is rolled back. Raises as `restart`, or `ValidationRefused`."""

    async def restore(self, spec: RestoreSpec) -> None:
        """Begin to put kept data under a new lease. Raises `NotRetained`, `TargetProvisioned`, `InvalidState`."""

    async def releases(self, lease_uuid: UUID) -> Sequence[Release]:
        """All versions of a live lease, oldest first. Raises `NotProvisioned`."""

    async def reconcile_custom_domain(self, lease_uuid: UUID, *, items: Sequence[LeaseItem]) -> None:
        """Begin to apply the domains of these items, matched by service; no change, no lease: nothing at all."""
