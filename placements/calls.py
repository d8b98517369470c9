"""What a push says to its backend, and what the answer means: one class for each kind of call. Pure.

A repeat says the same as the first time. Answers that prove nothing by themselves are settled by a point read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from backends.change_outcomes import Conflict, RouteMissing, classify_restore, resolve_restore
from backends.change_requests import restore_request
from backends.client import (
    Accepted,
    AlreadyProvisioned,
    Ambiguous,
    BackendTarget,
    CapacityClaimed,
    Deferred,
    Done,
    NotSent,
    Refused,
    classify_deprovision,
    classify_provision,
    deprovision_request,
    provision_request,
    resolve_provision,
)
from backends.contract import Absent, Dialect, LeaseItem, ProvisionInfo, ProvisionSpec, Unknown
from backends.requests import TEARDOWN_SECONDS_V0_13
from fred.http import Request, Response

Met = Accepted | Refused | NotSent | Ambiguous | Done | Deferred
"""What an answer means."""
Unproven = AlreadyProvisioned | CapacityClaimed | RouteMissing | Conflict
"""What must be settled by a point read of the lease, made after the answer."""
Read = ProvisionInfo | Absent | Unknown


class Call(Protocol):
    """One call that changes something at a backend."""

    @property
    def operation(self) -> str:
        """What metrics and logs call it."""

    def limit(self, target: BackendTarget) -> float:
        """Its time limit in seconds."""

    def request(self, target: BackendTarget, lease_uuid: UUID, *, tag: object) -> Request:
        """The signed request."""

    def meaning(self, response: Response, *, dialect: Dialect, repeated: bool) -> Met | Unproven:
        """What an answer, or the lack of one, means. ``repeated``: it may have been sent before."""

    def resolve(self, unproven: Unproven, *, read: Read) -> Met:
        """What an answer that proved nothing means, given what the backend holds of the lease after it."""


@dataclass(frozen=True, slots=True)
class Provision:
    """Make a lease's workload."""

    spec: ProvisionSpec
    operation: str = "provision"

    def limit(self, target: BackendTarget) -> float:
        """The backend's own."""
        return target.timeout

    def request(self, target: BackendTarget, _lease_uuid: UUID, *, tag: object) -> Request:
        """`POST /provision`."""
        return provision_request(target, self.spec, tag=tag)

    def meaning(self, response: Response, *, dialect: Dialect, repeated: bool) -> Met | Unproven:
        """See `classify_provision`."""
        del repeated  # the answer to a repeat is read like the first
        return classify_provision(response, dialect=dialect)

    def resolve(self, unproven: Unproven, *, read: Read) -> Met:
        """See `resolve_provision`."""
        if isinstance(unproven, RouteMissing | Conflict):
            raise TypeError(unproven)
        return resolve_provision(unproven, read=read)


@dataclass(frozen=True, slots=True)
class Restore:
    """Put what is kept of an ended lease under a new one."""

    source: UUID
    tenant: str
    provider_uuid: UUID
    items: tuple[LeaseItem, ...]
    callback_url: str
    operation: str = "restore"

    def limit(self, target: BackendTarget) -> float:
        """The backend's own."""
        return target.timeout

    def request(self, target: BackendTarget, lease_uuid: UUID, *, tag: object) -> Request:
        """`POST /restore`."""
        return restore_request(
            target,
            lease_uuid,
            source=self.source,
            tenant=self.tenant,
            provider_uuid=self.provider_uuid,
            items=self.items,
            callback_url=self.callback_url,
            tag=tag,
        )

    def meaning(self, response: Response, *, dialect: Dialect, repeated: bool) -> Met | Unproven:
        """See `classify_restore`."""
        return classify_restore(response, dialect=dialect, repeated=repeated)

    def resolve(self, unproven: Unproven, *, read: Read) -> Met:
        """See `resolve_restore`."""
        return resolve_restore(unproven, read=read)


@dataclass(frozen=True, slots=True)
class Deprovision:
    """Remove what a backend holds of a lease."""

    operation: str = "deprovision"

    def limit(self, target: BackendTarget) -> float:
        """An older backend stops its containers while the caller waits, and starts anew when the caller goes."""
        older = target.dialect is Dialect.V0_13
        return max(target.timeout, TEARDOWN_SECONDS_V0_13) if older else target.timeout

    def request(self, target: BackendTarget, lease_uuid: UUID, *, tag: object) -> Request:
        """`POST /deprovision`."""
        return deprovision_request(target, lease_uuid, tag=tag)

    def meaning(self, response: Response, *, dialect: Dialect, repeated: bool) -> Met | Unproven:
        """See `classify_deprovision`."""
        del repeated
        return classify_deprovision(response, dialect=dialect)

    def resolve(self, unproven: Unproven, *, read: Read) -> Met:  # noqa: ARG002 - every answer means something
        """Raises TypeError: no answer needs it."""
        raise TypeError(unproven)
