"""What a backend is to the control plane: facts, errors, and the Protocol every kind of backend implements.

Nothing here knows HTTP, Django or a database. Identifiers are UUID objects, times are aware and in UTC.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from math import isfinite
from typing import Any, ClassVar, Protocol
from uuid import UUID

import msgspec

from fred.errors import FredError

MAX_QUANTITY = 1024
DEFAULT_SERVICE = "app"
MAX_CALLBACK_ERROR_BYTES = 256


class Dialect(StrEnum):
    """The two generations of the wire contract."""

    V0_13 = "v0_13"
    CURRENT = "current"


class ProvisionStatus(StrEnum):
    """State of a provision as its backend tells it. A word we don't know is `UNKNOWN`."""

    PROVISIONING = "provisioning"
    READY = "ready"
    FAILING = "failing"
    FAILED = "failed"
    RESTARTING = "restarting"
    UPDATING = "updating"
    DEPROVISIONING = "deprovisioning"
    RETAINED = "retained"
    UNKNOWN = "unknown"

    @classmethod
    def parse(cls, word: str) -> "ProvisionStatus":
        """The status of this name; any other word means unknown."""
        return _STATUSES.get(word, cls.UNKNOWN)


_STATUSES = {status.value: status for status in ProvisionStatus}


class Reason(StrEnum):
    """Machine categories of a failure. The set is open on the wire: readers carry unknown words as they are."""

    CONTAINER_EXITED = "ContainerExited"
    HEALTH_CHECK_FAILED = "HealthCheckFailed"
    CONTAINER_START_FAILED = "ContainerStartFailed"
    IMAGE_PULL_FAILED = "ImagePullFailed"
    INTERNAL = "Internal"
    RESTART_FAILED = "RestartFailed"
    UPDATE_FAILED = "UpdateFailed"
    RESTORE_FAILED = "RestoreFailed"
    VOLUME_CLEANUP_EXHAUSTED = "VolumeCleanupExhausted"
    CLEANUP_FAILED = "CleanupFailed"
    BACKEND_STORAGE_LOST = "BackendStorageLost"
    UNKNOWN = "Unknown"


class BackendError(FredError):
    """A backend's refusal or fault. The class says what it means; the text is curated and may reach a tenant."""

    code: ClassVar[str] = ""
    validation_code = ""
    http_status: ClassVar[int] = 500
    text: ClassVar[str] = "internal server error"

    def __init__(self, text: str = "") -> None:
        super().__init__(text or self.text)


class NotProvisioned(BackendError):
    """This backend holds nothing for the lease."""

    http_status = 404
    text = "not provisioned"


class AlreadyProvisioned(BackendError):
    """The lease has a provision that is not `failed`."""

    http_status = 409
    text = "lease already provisioned"


class ValidationRefused(BackendError):
    """The request can never succeed as it stands; `validation_code` narrows it down when the backend knows more."""

    http_status = 400
    text = "validation error"

    def __init__(self, text: str = "", *, validation_code: str = "") -> None:
        super().__init__(text)
        self.validation_code = validation_code


class InsufficientResources(BackendError):
    """No room, found out before any effect. Another backend, or this one later, may take the lease."""

    code = "insufficient_resources"
    http_status = 503
    text = "insufficient resources"


class InvalidState(BackendError):
    """The lease is in a state that does not allow this."""

    http_status = 409
    text = "invalid state for operation"


class BackendUnavailable(BackendError):
    """A backend gave no usable answer. Says nothing about what it holds."""

    http_status = 503
    text = "backend unavailable"


UNKNOWN_SKU = "unknown_sku"
INVALID_MANIFEST = "invalid_manifest"
IMAGE_NOT_ALLOWED = "image_not_allowed"

CHAIN_REJECTIONS: Mapping[str, str] = {
    UNKNOWN_SKU: "invalid SKU",
    INVALID_MANIFEST: "invalid manifest",
    IMAGE_NOT_ALLOWED: "image not allowed",
}
"""Sub-category of a validation refusal → the reason put on chain. Everything else is `VALIDATION_REJECTION`."""
VALIDATION_REJECTION = "validation error"


@dataclass(frozen=True, slots=True)
class Absent:
    """The backend answered: it holds nothing for this lease."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The backend gave no usable answer. Never read as absence."""

    reason: str


@dataclass(frozen=True, slots=True)
class Busy(Unknown):
    """The backend has no room for this read now. Later it may; nothing is wrong with it."""


@dataclass(frozen=True, slots=True)
class LeaseItem:
    """One line of a lease, as the chain has it; `sku` is compared as text, exactly."""

    sku: str
    quantity: int
    service_name: str = ""
    custom_domain: str = ""


@dataclass(frozen=True, slots=True)
class ProvisionSpec:
    """Everything a backend is told to make a lease's workload.

    `payload` is the tenant's manifest as uploaded, empty when there is none. The result of the operation goes to
    `callback_url`; a `v0_13` backend uses the last one it got for everything.
    """

    lease_uuid: UUID
    tenant: str
    provider_uuid: UUID | None
    items: tuple[LeaseItem, ...]
    callback_url: str
    payload: bytes = b""
    payload_hash: str = ""
    lifecycle_callback_url: str = ""


@dataclass(frozen=True, slots=True)
class TerminalBudget:
    """How many failures in a row a backend bears with before it gives a lease up; `verdict` is its own word."""

    verdict: str
    consecutive_failures: int


class ProvisionInfo(msgspec.Struct, frozen=True):
    """One provision as a backend reports it. `tenant` may be another tenant's address: never show it.

    `said` is the backend's own word for a status that we don't know, `created_text` its own `created_at`.
    """

    lease_uuid: UUID
    status: ProvisionStatus
    created_at: datetime | None = None
    provider_uuid: UUID | None = None
    fail_count: int = 0
    reason: str = ""
    message: str = ""
    retained_until: datetime | None = None
    tenant: str = ""
    quantity: int = 0
    items: tuple[LeaseItem, ...] = ()
    image: str = ""
    sku: str = ""
    service_images: Mapping[str, str] = msgspec.field(default_factory=dict)
    partition: str = ""
    terminal_budget: TerminalBudget | None = None
    said: str = ""
    created_text: str = ""


@dataclass(frozen=True, slots=True)
class ProvisionList:
    """All live provisions of a backend. What it does not list proves something only when `complete`."""

    items: tuple[ProvisionInfo, ...]
    complete: bool


@dataclass(frozen=True, slots=True)
class RetainedLease:
    """A closed lease whose data a backend keeps."""

    lease_uuid: UUID
    provider_uuid: UUID | None = None
    tenant: str = ""


@dataclass(frozen=True, slots=True)
class RetentionList:
    """All retained leases of a backend; see `ProvisionList` for `complete`."""

    items: tuple[RetainedLease, ...]
    complete: bool


@dataclass(frozen=True, slots=True)
class Port:
    """Where a container port is reached. `host_port` is text on the wire."""

    host_ip: str
    host_port: str


@dataclass(frozen=True, slots=True)
class Instance:
    """One running instance of a service."""

    instance_index: int
    container_id: str = ""
    image: str = ""
    status: str = ""
    fqdn: str = ""
    ports: Mapping[str, Port] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServiceInfo:
    """A service of a lease and its instances."""

    fqdn: str = ""
    instances: tuple[Instance, ...] = ()


@dataclass(frozen=True, slots=True)
class LeaseInfo:
    """How a tenant reaches a running lease."""

    host: str = ""
    fqdn: str = ""
    protocol: str = ""
    ports: Mapping[str, Port] = field(default_factory=dict)
    instances: tuple[Instance, ...] = ()
    services: Mapping[str, ServiceInfo] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LoadStats:
    """A backend's load. `allocated` is what admission has reserved, not what is used."""

    total_cpu_cores: float = 0.0
    allocated_cpu_cores: float = 0.0
    total_memory_mb: float = 0.0
    allocated_memory_mb: float = 0.0
    available_memory_mb: float = 0.0
    total_disk_mb: float = 0.0
    allocated_disk_mb: float = 0.0
    available_disk_mb: float = 0.0
    available_cpu_cores: float = 0.0
    active_containers: int = 0
    disk_withheld: bool = False

    @property
    def cpu_ratio(self) -> float | None:
        """Allocated through total CPU, over 1 when overcommitted; None when the numbers are no usable signal."""
        total, allocated = self.total_cpu_cores, self.allocated_cpu_cores
        if not (isfinite(total) and isfinite(allocated)) or total <= 0 or allocated < 0:
            return None
        return allocated / total


class CallbackStatus(StrEnum):
    """What a callback reports."""

    SUCCESS = "success"
    FAILED = "failed"
    DEPROVISIONED = "deprovisioned"


@dataclass(frozen=True, slots=True)
class Callback:
    """What a backend tells about a lease. `error` belongs to `failed`, `retained` to `deprovisioned`."""

    lease_uuid: UUID
    status: CallbackStatus
    error: str = ""
    retained: bool = False


class Reporter(Protocol):
    """Where a driver hands over what it has to report: the agent, which delivers it."""

    async def report(self, callback: Callback, *, url: str, state: Callable[[Any], object] | None = None) -> None:
        """Deliver this until it is taken, after everything reported for the same lease before.

        Returns when it is durable. `state` writes, with the agent's store, what the callback reports in the same
        transaction; an agent without a store leaves it out.
        """


class Backend(Protocol):
    """What every backend kind promises to the agent that serves it.

    Each call may come again, also at the same time, for the same lease. Refusals are raised as `BackendError`.
    """

    async def start(self, reporter: Reporter) -> None:
        """Recover what was under way, then be ready for calls."""

    async def stop(self) -> None:
        """Let go of everything; what runs for leases stays."""

    async def provision(self, spec: ProvisionSpec) -> None:
        """Admit it durably and return; its one result is reported later, unless a deprovision overtakes it."""

    async def deprovision(self, lease_uuid: UUID) -> None:
        """Remove what there is for the lease; unknown leases are fine."""

    async def info(self, lease_uuid: UUID) -> LeaseInfo:
        """How the lease is reached. Raises `NotProvisioned` unless it is ready."""

    async def provision_info(self, lease_uuid: UUID) -> ProvisionInfo:
        """The lease's provision, retained data or stored failure, in this order. Raises `NotProvisioned`."""

    async def lookup(self, leases: Sequence[UUID]) -> Sequence[ProvisionInfo]:
        """The live provisions of these leases; those it does not have are left out."""

    async def provisions(self, *, after: UUID | None = None, limit: int | None = None) -> ProvisionList:
        """Live provisions in lease order, the first `limit` after this lease. Raises rather than leave one out."""

    async def retentions(self, *, after: UUID | None = None, limit: int | None = None) -> RetentionList:
        """Retained leases, likewise."""

    async def logs(self, lease_uuid: UUID, *, tail: int) -> Mapping[str, str]:
        """The last lines of each instance, by `<service>/<index>`. Raises `NotProvisioned`."""

    async def stats(self) -> LoadStats:
        """Present load; zeros when this kind does not track it."""

    async def health(self) -> None:
        """Return when it can take work; raise `BackendUnavailable` with the reason otherwise."""


def cut_reason(text: str, *, limit: int = MAX_CALLBACK_ERROR_BYTES) -> str:
    """Fit a text into so many UTF-8 bytes: a longer one is cut between characters and ends with three dots."""
    raw = text.encode()
    return text if len(raw) <= limit else raw[: limit - 3].decode(errors="ignore") + "..."
