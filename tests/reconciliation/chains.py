"""Chains for looks: one in memory, with the answers that a test wants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from uuid import UUID, uuid4

from django.conf import settings

from leases.chain.client import Absent, ChainLease, Coin, ExactLease, LeaseItem, LeasePage, Unknown
from leases.chain.errors import ChainUnavailable
from leases.status import LeaseState

SKU = UUID("01890a5d-ac96-774b-bcce-b302099a8001")
TENANT = "manifest1lqurt6ul2zm6x7yu670yty8w3uhg5hs5m6wd8d"


def lease(state: LeaseState = LeaseState.PENDING, *, uuid: UUID | None = None, **changes: object) -> ChainLease:
    """A lease of ours with one item."""
    made = ChainLease(
        uuid=uuid or uuid4(),
        tenant=TENANT,
        provider_uuid=settings.FRED.provider_uuid,
        state=state,
        items=(LeaseItem(SKU, 2, Coin("umfx", 1)),),
        created_at=datetime.now(UTC),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


@dataclass
class MemoryChain:
    """Leases by uuid at a height; ``silent`` makes every call fail, ``failing`` those for these leases."""

    height: int = 100
    leases_by_uuid: dict[UUID, ChainLease] = field(default_factory=dict)
    silent: bool = False
    failing: set[UUID] = field(default_factory=set)
    exact_reads: list[UUID] = field(default_factory=list)
    listings: int = 0

    def add(self, *leases: ChainLease) -> None:
        for one in leases:
            self.leases_by_uuid[one.uuid] = one

    def move(self, uuid: UUID, state: LeaseState) -> None:
        self.height += 1
        self.leases_by_uuid[uuid] = replace(self.leases_by_uuid[uuid], state=state)

    def leases(self, lease_uuids: Sequence[UUID]) -> dict[UUID, ExactLease | Absent | Unknown]:
        found: dict[UUID, ExactLease | Absent | Unknown] = {}
        for uuid in lease_uuids:
            self.exact_reads.append(uuid)
            if self.silent or uuid in self.failing:
                found[uuid] = Unknown("no answer")
            elif uuid in self.leases_by_uuid:
                found[uuid] = ExactLease(self.leases_by_uuid[uuid], self.height)
            else:
                found[uuid] = Absent(self.height)
        return found

    def list_leases(self, provider_uuid: UUID, state: LeaseState | None = None) -> Iterator[LeasePage]:
        self.listings += 1
        if self.silent:
            raise ChainUnavailable("no answer")
        yield LeasePage(
            tuple(one for one in self.leases_by_uuid.values() if state is None or one.state is state), self.height
        )
