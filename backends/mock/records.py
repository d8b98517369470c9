"""What the mock holds for a lease, and how that is written to the agent's store."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from uuid import UUID

import msgspec

from backends.agent_contract import Release, ReleaseStatus
from backends.contract import LeaseItem, ProvisionInfo, ProvisionStatus, Reason
from backends.mock.script import SUCCESS, Fate

Work = Callable[[sqlite3.Connection], object]


class Task(StrEnum):
    """What is being done to a lease."""

    NONE = ""
    PROVISION = "provision"
    RESTORE = "restore"
    RESTART = "restart"
    UPDATE = "update"


class Version(msgspec.Struct, gc=False):
    """One version of a lease's workload; see `agent_contract.Release`."""

    version: int
    image: str
    status: ReleaseStatus
    created_at: datetime
    manifest: bytes = b""
    reason: str = ""
    message: str = ""

    def release(self) -> Release:
        """As the contract has it."""
        return Release(self.version, self.image, self.status, self.created_at, self.manifest, self.reason, self.message)


class Held(msgspec.Struct):
    """One live provision. `fate` is how its manifest ends; `generation` grows when its containers are made anew.

    While an update runs, `candidate` and `candidate_fate` are the manifest that is tried. `domains` are those that a
    redeploy under way applies.
    """

    lease_uuid: UUID
    tenant: str
    provider_uuid: UUID | None
    items: tuple[LeaseItem, ...]
    callback_url: str
    created_at: datetime
    images: dict[str, str] = msgspec.field(default_factory=dict)
    fate: Fate = SUCCESS
    fail_count: int = 0
    status: ProvisionStatus = ProvisionStatus.PROVISIONING
    reason: str = ""
    message: str = ""
    payload: bytes = b""
    releases: tuple[Version, ...] = ()
    generation: int = 0
    task: Task = Task.NONE
    was_ready: bool = False
    restored_from: UUID | None = None
    candidate: bytes = b""
    candidate_images: dict[str, str] | None = None
    candidate_fate: Fate = SUCCESS
    domains: tuple[LeaseItem, ...] = ()

    @property
    def quantity(self) -> int:
        """Instances over all items."""
        return sum([item.quantity for item in self.items])

    def instance_names(self) -> Iterator[str]:
        """`<service>/<index>` of each instance, services in order."""
        for name in sorted({item.service_name for item in self.items}):
            for index in range(sum(item.quantity for item in self.items if item.service_name == name)):
                yield f"{name}/{index}"

    @property
    def has_logs(self) -> bool:
        """Whether a container of it has ever run."""
        return self.reason != Reason.IMAGE_PULL_FAILED or self.was_ready

    def info(self) -> ProvisionInfo:
        """The row as it is listed."""
        return ProvisionInfo(
            lease_uuid=self.lease_uuid,
            status=self.status,
            created_at=self.created_at,
            provider_uuid=self.provider_uuid,
            fail_count=self.fail_count,
            reason=self.reason,
            message=self.message,
            quantity=self.quantity,
            items=self.items,
            sku=self.items[0].sku,
            service_images=self.images,
        )

    def begin_release(self, payload: bytes, *, images: Mapping[str, str], at: datetime) -> None:
        """Append the version that is about to be tried; several services are called a `stack`."""
        image = "stack" if len(images) > 1 else next(iter(images.values()), "")
        version = self.releases[-1].version + 1 if self.releases else 1
        self.releases += (Version(version, image, ReleaseStatus.DEPLOYING, at, payload),)

    def end_release(self, *, reason: str = "", message: str = "") -> None:
        """The version that was tried runs, in place of the one before; with a reason it failed."""
        if not self.releases:
            return
        last = self.releases[-1]
        if reason:
            last.status, last.reason, last.message = ReleaseStatus.FAILED, reason, message
            return
        if len(self.releases) > 1:
            for before in self.releases[:-1]:
                if before.status == ReleaseStatus.ACTIVE:
                    before.status = ReleaseStatus.SUPERSEDED
        last.status = ReleaseStatus.ACTIVE

    @property
    def has_run(self) -> bool:
        """Whether there is a version to go back to."""
        return any(release.status == ReleaseStatus.ACTIVE for release in self.releases)


@dataclass(frozen=True, slots=True)
class Kept:
    """Data of a closed lease, kept until `until`, with the manifest it ran. `target` is the lease that claims it."""

    lease_uuid: UUID
    tenant: str
    provider_uuid: UUID | None
    items: tuple[LeaseItem, ...]
    since: datetime
    until: datetime
    payload: bytes = b""
    images: dict[str, str] = field(default_factory=dict)
    fate: Fate = SUCCESS
    target: UUID | None = None

    def info(self) -> ProvisionInfo:
        """The row of a point read."""
        return ProvisionInfo(
            lease_uuid=self.lease_uuid,
            status=ProvisionStatus.RETAINED,
            created_at=self.since,
            provider_uuid=self.provider_uuid,
            retained_until=self.until,
            tenant=self.tenant,
            items=self.items,
        )


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why a lease that is gone had failed."""

    lease_uuid: UUID
    provider_uuid: UUID | None
    at: datetime
    fail_count: int
    reason: str
    message: str
    logs: dict[str, str]

    def info(self) -> ProvisionInfo:
        """The row of a point read."""
        return ProvisionInfo(
            lease_uuid=self.lease_uuid,
            status=ProvisionStatus.FAILED,
            created_at=self.at,
            provider_uuid=self.provider_uuid,
            fail_count=self.fail_count,
            reason=self.reason,
            message=self.message,
        )


def load_held(document: bytes) -> Held:
    """A provision as `save_held` wrote it."""
    return msgspec.json.decode(document, type=Held)


def load_kept(document: bytes) -> Kept:
    """A retained lease as `save_kept` wrote it."""
    return msgspec.json.decode(document, type=Kept)


def load_diagnosis(document: bytes) -> Diagnosis:
    """A failure as `save_diagnosis` wrote it."""
    return msgspec.json.decode(document, type=Diagnosis)


def save_held(held: Held, *, only_update: bool = False) -> Work:
    """Write this provision as it is now; with `only_update` only where its row still is."""
    values = (msgspec.json.encode(held), str(held.lease_uuid))

    def work(connection: sqlite3.Connection) -> None:
        changed = connection.execute("UPDATE provision SET document = ? WHERE lease_uuid = ?", values).rowcount
        if not changed and not only_update:
            connection.execute("INSERT INTO provision (document, lease_uuid) VALUES (?, ?)", values)

    return work


def delete_held(lease_uuid: UUID) -> Work:
    """Forget this provision."""
    key = str(lease_uuid)
    return lambda connection: connection.execute("DELETE FROM provision WHERE lease_uuid = ?", (key,))


def save_kept(kept: Kept) -> Work:
    """Write this retained lease as it is now."""
    values = (str(kept.lease_uuid), msgspec.json.encode(kept))
    return lambda connection: connection.execute("INSERT OR REPLACE INTO retention VALUES (?, ?)", values)


def delete_kept(leases: Sequence[UUID]) -> Work:
    """Forget these retained leases."""
    keys = [(str(lease),) for lease in leases]
    return lambda connection: connection.executemany("DELETE FROM retention WHERE lease_uuid = ?", keys)


def save_diagnosis(diagnosis: Diagnosis) -> Work:
    """Write why this lease had failed."""
    values = (str(diagnosis.lease_uuid), msgspec.json.encode(diagnosis))
    return lambda connection: connection.execute("INSERT OR REPLACE INTO diagnosis VALUES (?, ?)", values)


def delete_diagnoses(leases: Sequence[UUID]) -> Work:
    """Forget these failures."""
    keys = [(str(lease),) for lease in leases]
    return lambda connection: connection.executemany("DELETE FROM diagnosis WHERE lease_uuid = ?", keys)


def together(*works: Work | None) -> Work:
    """All of these in one transaction."""
    wanted = [work for work in works if work is not None]

    def work(connection: sqlite3.Connection) -> None:
        for one in wanted:
            one(connection)

    return work
