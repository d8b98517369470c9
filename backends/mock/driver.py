"""A backend without workloads: it keeps the contract, invents connection details, and fails when told to.

All state is in memory; with a store each change is durable before it is promised, and a restarted mock goes on where it
stopped. Waiting for a provision to get ready is one timer, not a task.
"""

import asyncio
import bisect
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

import structlog

from backends.contract import (
    AlreadyProvisioned,
    Callback,
    CallbackStatus,
    LeaseInfo,
    LoadStats,
    NotProvisioned,
    ProvisionInfo,
    ProvisionList,
    ProvisionSpec,
    ProvisionStatus,
    Reporter,
    RetainedLease,
    RetentionList,
    normalise_items,
)
from backends.mock import records, script
from backends.mock.connection import details
from backends.mock.records import Held, Kept
from backends.store import Store

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class MockSettings:
    """How the mock behaves. `delay` is the time from admission to the result; `retention` 0 keeps nothing."""

    name: str = "mock-backend"
    host: str = ""
    delay: timedelta = timedelta(0)
    fail_ratio: float = 0.0
    seed: int = 0
    retention: timedelta = timedelta(0)
    total_cpu_cores: float = 0.0
    cpu_per_instance: float = 1.0


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass
class MockBackend:
    """The driver; see `contract.Backend`. Used from one event loop."""

    settings: MockSettings = field(default_factory=MockSettings)
    store: Store | None = None
    now: Callable[[], datetime] = _now

    def __post_init__(self) -> None:
        """An empty backend; `start` fills it from the store."""
        self._held: dict[UUID, Held] = {}
        self._order: list[UUID] = []
        self._kept: dict[UUID, Kept] = {}
        self._instances = 0
        self._timers: dict[UUID, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._reporter: Reporter | None = None

    async def start(self, reporter: Reporter) -> None:
        """Read the store; what was being provisioned gets its delay anew."""
        self._reporter = reporter
        if self.store is None:
            return
        for (document,) in self.store.rows("SELECT document FROM retention"):
            kept = records.load_kept(document)
            self._kept[kept.lease_uuid] = kept
        for (document,) in self.store.rows("SELECT document FROM provision"):
            held = records.load_held(document)
            self._hold(held)
            if held.status is ProvisionStatus.PROVISIONING:
                self._set_timer(held)

    async def stop(self) -> None:
        """Stop the timers; results not yet reported come after the next start, if there is a store."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def provision(self, spec: ProvisionSpec) -> None:
        """Admit it and start its timer. A failed provision is replaced and hands on its number of failures."""
        items = normalise_items(spec.items)
        before = self._held.get(spec.lease_uuid)
        if before is not None and before.status is not ProvisionStatus.FAILED:
            raise AlreadyProvisioned(f"lease already provisioned: {spec.lease_uuid}")
        held = Held(
            lease_uuid=spec.lease_uuid,
            tenant=spec.tenant,
            provider_uuid=spec.provider_uuid,
            items=items,
            images=script.images(spec.payload, {item.service_name for item in items}),
            callback_url=spec.callback_url,
            created_at=self.now(),
            fate=script.fate(
                spec.lease_uuid,
                payload=spec.payload,
                fail_ratio=self.settings.fail_ratio,
                seed=self.settings.seed,
            ),
            fail_count=before.fail_count if before is not None else 0,
        )
        self._drop(spec.lease_uuid)
        self._hold(held)
        if self.store is not None:
            try:
                await self.store.commit(records.save_held(held))
            except sqlite3.Error:
                if self._held.get(held.lease_uuid) is held:
                    self._drop(held.lease_uuid)
                raise
        if self._held.get(held.lease_uuid) is held:  # a deprovision may have come while it was written
            self._set_timer(held)

    async def deprovision(self, lease_uuid: UUID) -> None:
        """Remove it at once and report that. An unknown lease, also a retained one, is left as it is."""
        held = self._held.get(lease_uuid)
        if held is None:
            return
        self._drop(lease_uuid)
        kept = None
        if self.settings.retention > timedelta(0):
            until = self.now() + self.settings.retention
            kept = Kept(lease_uuid, held.tenant, held.provider_uuid, held.items, self.now(), until)
            self._kept[lease_uuid] = kept
        callback = Callback(lease_uuid, CallbackStatus.DEPROVISIONED, retained=kept is not None)
        try:
            await self._report(callback, url=held.callback_url, state=records.move_to_kept(lease_uuid, kept))
        except sqlite3.Error:
            # It is still in the file, so it must not look gone: the caller gets an error and asks again.
            self._kept.pop(lease_uuid, None)
            if lease_uuid not in self._held:
                self._hold(held)
            raise

    async def info(self, lease_uuid: UUID) -> LeaseInfo:
        """Connection details, only while it is ready."""
        held = self._held.get(lease_uuid)
        if held is None or held.status is not ProvisionStatus.READY:
            raise NotProvisioned
        return details(
            lease_uuid,
            backend=self.settings.name,
            tenant=held.tenant,
            items=held.items,
            images=held.images,
            host=self.settings.host,
        )

    async def provision_info(self, lease_uuid: UUID) -> ProvisionInfo:
        """The live record, else the retained one."""
        held = self._held.get(lease_uuid)
        if held is not None:
            return held.info()
        self._reap()
        kept = self._kept.get(lease_uuid)
        if kept is None:
            raise NotProvisioned
        return kept.info()

    async def lookup(self, leases: Sequence[UUID]) -> Sequence[ProvisionInfo]:
        """Those of these leases that are live."""
        return [self._held[lease].info() for lease in leases if lease in self._held]

    async def provisions(self, *, after: UUID | None = None, limit: int | None = None) -> ProvisionList:
        """Everything live, in order."""
        start = bisect.bisect_right(self._order, after) if after is not None else 0
        chosen = self._order[start:] if limit is None else self._order[start : start + limit]
        return ProvisionList(tuple(self._held[lease].info() for lease in chosen), complete=True)

    async def retentions(self, *, after: UUID | None = None, limit: int | None = None) -> RetentionList:
        """Everything kept, in order."""
        self._reap()
        chosen = sorted(lease for lease in self._kept if after is None or lease > after)[:limit]
        rows = (self._kept[lease] for lease in chosen)
        return RetentionList(
            tuple(RetainedLease(kept.lease_uuid, kept.provider_uuid, kept.tenant) for kept in rows), complete=True
        )

    async def logs(self, lease_uuid: UUID, *, tail: int) -> Mapping[str, str]:
        """One invented line for each instance of a live lease."""
        held = self._held.get(lease_uuid)
        if held is None:
            raise NotProvisioned
        return dict.fromkeys(held.instance_names(), "mock log output\n" if tail else "")

    async def stats(self) -> LoadStats:
        """The load of `total_cpu_cores`; zeros, no usable signal, while that is not set."""
        total = self.settings.total_cpu_cores
        if total <= 0:
            return LoadStats(active_containers=self._instances)
        allocated = self._instances * self.settings.cpu_per_instance
        return LoadStats(
            total_cpu_cores=total,
            allocated_cpu_cores=allocated,
            available_cpu_cores=total - allocated,
            active_containers=self._instances,
        )

    async def health(self) -> None:
        """Always fine."""

    def _hold(self, held: Held) -> None:
        self._held[held.lease_uuid] = held
        self._instances += held.quantity
        if not self._order or held.lease_uuid > self._order[-1]:
            self._order.append(held.lease_uuid)
        else:
            bisect.insort(self._order, held.lease_uuid)

    def _drop(self, lease_uuid: UUID) -> None:
        held = self._held.pop(lease_uuid, None)
        timer = self._timers.pop(lease_uuid, None)
        if timer is not None:
            timer.cancel()
        if held is not None:
            self._instances -= held.quantity
            del self._order[bisect.bisect_left(self._order, lease_uuid)]

    def _set_timer(self, held: Held) -> None:
        delay = self.settings.delay.total_seconds()
        self._timers[held.lease_uuid] = asyncio.get_running_loop().call_later(delay, self._end, held)

    def _end(self, held: Held) -> None:
        self._timers.pop(held.lease_uuid, None)
        task = asyncio.get_running_loop().create_task(self._conclude(held))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _conclude(self, held: Held) -> None:
        if self._held.get(held.lease_uuid) is not held:
            return  # a deprovision overtook it: its result is not reported
        if held.fate is script.SUCCESS or not held.fate.reason:
            held.status = ProvisionStatus.READY
            callback = Callback(held.lease_uuid, CallbackStatus.SUCCESS)
        else:
            held.status = ProvisionStatus.FAILED
            held.fail_count += 1
            callback = Callback(held.lease_uuid, CallbackStatus.FAILED, error=held.fate.message)
        try:
            await self._report(callback, url=held.callback_url, state=records.save_held(held, only_update=True))
        except Exception:
            log.exception("mock.result_lost", lease_uuid=str(held.lease_uuid))

    async def _report(self, callback: Callback, *, url: str, state: Callable[[sqlite3.Connection], object]) -> None:
        if self._reporter is not None:
            await self._reporter.report(callback, url=url, state=state)

    def _reap(self) -> None:
        moment = self.now()
        gone = [lease for lease, kept in self._kept.items() if kept.until <= moment]
        for lease in gone:
            del self._kept[lease]
        if gone and self.store is not None:
            self.store.write(records.delete_kept(gone))
