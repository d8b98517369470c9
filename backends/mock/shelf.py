"""Everything the mock holds, by lease: live provisions in lease order, retained data, reasons of old failures."""

import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from backends.mock import records
from backends.mock.capacity import Need, Room
from backends.mock.records import Diagnosis, Held, Kept
from backends.store import Store

MAX_DIAGNOSES = 10_000
"""So many failures of leases that are gone are remembered, the newest."""


@dataclass
class Shelf:
    """The maps, and the room that is reserved for what is in them. Writing to the store is the caller's."""

    room: Room
    held: dict[UUID, Held] = field(default_factory=dict)
    kept: dict[UUID, Kept] = field(default_factory=dict)
    diagnoses: dict[UUID, Diagnosis] = field(default_factory=dict)
    order: list[UUID] = field(default_factory=list)
    needs: dict[UUID, Need] = field(default_factory=dict)

    def load(self, store: Store) -> None:
        """Take in what an earlier process wrote."""
        for (document,) in store.rows("SELECT document FROM retention"):
            kept = records.load_kept(document)
            self.kept[kept.lease_uuid] = kept
        for (document,) in store.rows("SELECT document FROM diagnosis"):
            diagnosis = records.load_diagnosis(document)
            self.diagnoses[diagnosis.lease_uuid] = diagnosis
        for (document,) in store.rows("SELECT document FROM provision"):
            held = records.load_held(document)
            try:
                need = self.room.need(held.items)
            except Exception:  # noqa: BLE001 (a SKU that has left the table still runs here)
                need = Need(instances=held.quantity)
            self.hold(held, need)

    def hold(self, held: Held, need: Need) -> None:
        """Put it in, in place of what the lease had, and reserve its room."""
        lease = held.lease_uuid
        if lease in self.held:
            self.drop(lease)
        self.held[lease] = held
        self.needs[lease] = need
        self.room.take(need)
        if not self.order or lease > self.order[-1]:
            self.order.append(lease)
        else:
            bisect.insort(self.order, lease)

    def drop(self, lease_uuid: UUID) -> Need:
        """Take it out and give its room back; returns what it had reserved."""
        if self.held.pop(lease_uuid, None) is None:
            return Need()
        need = self.needs.pop(lease_uuid)
        self.room.give_back(need)
        del self.order[bisect.bisect_left(self.order, lease_uuid)]
        return need

    def page(self, *, after: UUID | None, limit: int | None) -> Sequence[Held]:
        """Live provisions in order, the first `limit` after this lease."""
        start = bisect.bisect_right(self.order, after) if after is not None else 0
        chosen = self.order[start:] if limit is None else self.order[start : start + limit]
        return [self.held[lease] for lease in chosen]

    def kept_page(self, *, after: UUID | None, limit: int | None) -> Sequence[Kept]:
        """Retained leases, likewise."""
        chosen = sorted(lease for lease in self.kept if after is None or lease > after)[:limit]
        return [self.kept[lease] for lease in chosen]

    def expired(self, now: datetime) -> list[UUID]:
        """Retained leases whose time is over; those that are being restored wait for its end. They are taken out."""
        gone = [lease for lease, kept in self.kept.items() if kept.until <= now and kept.target is None]
        for lease in gone:
            del self.kept[lease]
        return gone

    def diagnose(self, diagnosis: Diagnosis) -> list[UUID]:
        """Remember this failure; returns those that are forgotten for it."""
        self.diagnoses.pop(diagnosis.lease_uuid, None)
        self.diagnoses[diagnosis.lease_uuid] = diagnosis
        over: Iterable[UUID] = list(self.diagnoses)[: max(0, len(self.diagnoses) - MAX_DIAGNOSES)]
        return [lease for lease in over if self.diagnoses.pop(lease, None) is not None]
