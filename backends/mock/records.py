"""What the mock holds for a lease, and how that is written to the agent's store."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

import msgspec

from backends.contract import LeaseItem, ProvisionInfo, ProvisionStatus
from backends.mock.script import SUCCESS, Fate

Work = Callable[[sqlite3.Connection], object]


@dataclass(slots=True)
class Held:
    """One live provision; `fate` is how it ends or ended."""

    lease_uuid: UUID
    tenant: str
    provider_uuid: UUID | None
    items: tuple[LeaseItem, ...]
    callback_url: str
    created_at: datetime
    images: dict[str, str] = field(default_factory=dict)
    fate: Fate = SUCCESS
    fail_count: int = 0
    status: ProvisionStatus = ProvisionStatus.PROVISIONING

    @property
    def quantity(self) -> int:
        """Instances over all items."""
        return sum(item.quantity for item in self.items)

    def instance_names(self) -> Iterator[str]:
        """`<service>/<index>` of each instance, services in order."""
        for name in sorted({item.service_name for item in self.items}):
            for index in range(sum(item.quantity for item in self.items if item.service_name == name)):
                yield f"{name}/{index}"

    def info(self) -> ProvisionInfo:
        """The row as it is listed."""
        failed = self.status is ProvisionStatus.FAILED
        return ProvisionInfo(
            lease_uuid=self.lease_uuid,
            status=self.status,
            created_at=self.created_at,
            provider_uuid=self.provider_uuid,
            fail_count=self.fail_count,
            reason=self.fate.reason if failed else "",
            message=self.fate.message if failed else "",
            quantity=self.quantity,
            items=self.items,
            sku=self.items[0].sku,
            service_images=self.images,
        )


@dataclass(frozen=True, slots=True)
class Kept:
    """Data of a closed lease, kept until `until`."""

    lease_uuid: UUID
    tenant: str
    provider_uuid: UUID | None
    items: tuple[LeaseItem, ...]
    since: datetime
    until: datetime

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


def load_held(document: bytes) -> Held:
    """A provision as `save_held` wrote it."""
    return msgspec.json.decode(document, type=Held)


def load_kept(document: bytes) -> Kept:
    """A retained lease as `move_to_kept` wrote it."""
    return msgspec.json.decode(document, type=Kept)


def save_held(held: Held, *, only_update: bool = False) -> Work:
    """Write this provision as it is now; with `only_update` only where its row still is."""
    values = (msgspec.json.encode(held), str(held.lease_uuid))

    def work(connection: sqlite3.Connection) -> None:
        changed = connection.execute("UPDATE provision SET document = ? WHERE lease_uuid = ?", values).rowcount
        if not changed and not only_update:
            connection.execute("INSERT INTO provision (document, lease_uuid) VALUES (?, ?)", values)

    return work


def move_to_kept(lease_uuid: UUID, kept: Kept | None) -> Work:
    """Delete the provision; where its data is kept, write that instead."""
    key = str(lease_uuid)
    document = msgspec.json.encode(kept) if kept is not None else b""

    def work(connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM provision WHERE lease_uuid = ?", (key,))
        if document:
            statement = "INSERT OR REPLACE INTO retention (lease_uuid, document) VALUES (?, ?)"
            connection.execute(statement, (key, document))

    return work


def delete_kept(leases: Sequence[UUID]) -> Work:
    """Forget these retained leases."""
    keys = [(str(lease),) for lease in leases]
    return lambda connection: connection.executemany("DELETE FROM retention WHERE lease_uuid = ?", keys)
