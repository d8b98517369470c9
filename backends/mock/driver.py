"""A backend without workloads: it keeps the contract, invents connection details, and fails when told to.

All state is in memory; with a store each change is durable before it is promised, and a restarted mock goes on where it
stopped. Waiting for a provision to get ready is one timer, not a task.
"""

import asyncio
import copy
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

import structlog

from backends import agent_eager
from backends.agent_contract import Release, RestoreSpec
from backends.contract import (
    AlreadyProvisioned,
    Callback,
    CallbackStatus,
    LeaseInfo,
    LeaseItem,
    LoadStats,
    NotProvisioned,
    ProvisionInfo,
    ProvisionList,
    ProvisionSpec,
    ProvisionStatus,
    Reporter,
    RetainedLease,
    RetentionList,
)
from backends.items import normalise_items
from backends.mock import endings, maintenance, records, script
from backends.mock.capacity import Need, Room, Tier
from backends.mock.clock import Clock, Timer
from backends.mock.connection import details, plain_details
from backends.mock.records import Diagnosis, Held, Kept, Task, Work
from backends.mock.script import Fate
from backends.mock.shelf import Shelf
from backends.store import Store

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class MockSettings:
    """How the mock behaves. `delay` is the time from admission to the result; `retention` 0 keeps nothing.

    `plain` gives a lease the connection data and log keys of the older mock: host, protocol, metadata, one log `0`.
    """

    name: str = "mock-backend"
    host: str = ""
    delay: timedelta = timedelta(0)
    fail_ratio: float = 0.0
    seed: int = 0
    retention: timedelta = timedelta(0)
    total_cpu_cores: float = 0.0
    total_memory_mb: float = 0.0
    total_disk_mb: float = 0.0
    cpu_per_instance: float = 1.0
    tiers: Mapping[str, Tier] = field(default_factory=dict)
    plain: bool = False


@dataclass(frozen=True, slots=True)
class Whim:
    """A result other than the natural one. `after` is added to the wait, in seconds."""

    fate: Fate | None = None
    never: bool = False
    twice: bool = False
    after: float = 0.0


class Whims(Protocol):
    """Who overrules results, for tests of the one that waits for them."""

    def result(self, lease_uuid: UUID, *, task: str) -> Whim | None:
        """What happens to this piece of work instead, asked once when it begins."""


@dataclass
class MockBackend:
    """The driver; see `agent_contract.ServedBackend`. Used from one event loop."""

    settings: MockSettings = field(default_factory=MockSettings)
    store: Store | None = None
    clock: Clock = field(default_factory=Clock)
    whims: Whims | None = None
    courier: Callable[[Reporter], Reporter] | None = None

    def __post_init__(self) -> None:
        """An empty backend; `start` fills it from the store."""
        wanted = self.settings
        self.room = Room(
            tiers=wanted.tiers,
            cpu=wanted.total_cpu_cores,
            memory_mb=wanted.total_memory_mb,
            disk_mb=wanted.total_disk_mb,
            default_tier=Tier(cpu=wanted.cpu_per_instance),
        )
        self.shelf = Shelf(self.room)
        self._timers: dict[UUID, Timer] = {}
        self._tasks: set[asyncio.Task[object]] = set()
        self._reporter: Reporter | None = None

    async def start(self, reporter: Reporter) -> None:
        """Read the store; what was under way gets its delay anew."""
        self._reporter = self.courier(reporter) if self.courier is not None else reporter
        if self.store is None:
            return
        self.shelf.load(self.store)
        for held in self.shelf.held.values():
            if held.task is not Task.NONE or held.status is ProvisionStatus.PROVISIONING:
                self.begin(held)

    async def stop(self) -> None:
        """Stop the timers; results not yet reported come after the next start, if there is a store."""
        self.clock.cancel_all()
        self._timers.clear()
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def provision(self, spec: ProvisionSpec) -> None:
        """Admit it and start its timer. A failed provision is replaced and hands on failures and versions."""
        items = normalise_items(spec.items)
        before = self.shelf.held.get(spec.lease_uuid)
        if before is not None and before.status is not ProvisionStatus.FAILED:
            raise AlreadyProvisioned(f"lease already provisioned: {spec.lease_uuid}")
        need = self.room.need(items)
        manifest = script.parse(spec.payload) if spec.payload else script.NO_MANIFEST
        freed = self.shelf.needs.get(spec.lease_uuid) if before is not None else None
        self.room.admit(need, instead_of=freed)
        now = self.clock.now()
        held = Held(
            lease_uuid=spec.lease_uuid,
            tenant=spec.tenant,
            provider_uuid=spec.provider_uuid,
            items=items,
            images=manifest.images([item.service_name for item in items]),
            callback_url=spec.callback_url,
            created_at=now,
            fate=manifest.fate if manifest.fate.reason else self._chance(spec.lease_uuid),
            payload=spec.payload,
            task=Task.PROVISION,
        )
        if before is not None:
            held.fail_count, held.releases, held.generation = before.fail_count, before.releases, before.generation + 1
        held.begin_release(spec.payload, images=held.images, at=now)
        await self.admit(held, need)

    async def admit(self, held: Held, need: Need, *, also: Work | None = None) -> None:
        """Hold a new provision, durably if there is a store, then begin its work. `also` is written with it."""
        lease = held.lease_uuid
        self.stop_timer(lease)
        self.shelf.hold(held, need)
        forgotten = self.shelf.diagnoses.pop(lease, None)
        if self.store is not None:
            clean = records.delete_diagnoses([lease]) if forgotten is not None else None
            try:
                await self.store.commit(records.together(records.save_held(held), clean, also))
            except sqlite3.Error:
                if self.shelf.held.get(lease) is held:
                    self.shelf.drop(lease)
                raise
        if self.shelf.held.get(lease) is held:  # a deprovision may have come while it was written
            self.begin(held)

    async def deprovision(self, lease_uuid: UUID) -> None:
        """Remove it at once and report that. An unknown lease, also a retained one, is left as it is."""
        held = self.shelf.held.get(lease_uuid)
        if held is None:
            return
        self.stop_timer(lease_uuid)
        need = self.shelf.drop(lease_uuid)
        left = endings.leave(self, held)
        callback = Callback(lease_uuid, CallbackStatus.DEPROVISIONED, retained=left.is_kept)
        try:
            await self.report(callback, url=held.callback_url, state=left.work)
        except sqlite3.Error:
            # It is still in the file, so it must not look gone: the caller gets an error and asks again.
            left.undo()
            if lease_uuid not in self.shelf.held:
                self.shelf.hold(held, need)
            raise

    async def restart(self, lease_uuid: UUID, *, callback_url: str) -> None:
        """Make the containers anew."""
        await maintenance.restart(self, lease_uuid, callback_url=callback_url)

    async def update(self, lease_uuid: UUID, *, payload: bytes, callback_url: str) -> None:
        """Replace the manifest, or go back to the one before."""
        await maintenance.update(self, lease_uuid, payload=payload, callback_url=callback_url)

    async def restore(self, spec: RestoreSpec) -> None:
        """Put kept data under a new lease."""
        await maintenance.restore(self, spec)

    async def reconcile_custom_domain(self, lease_uuid: UUID, *, items: Sequence[LeaseItem]) -> None:
        """Redeploy with these domains if any differs."""
        await maintenance.apply_domains(self, lease_uuid, items=items)

    async def releases(self, lease_uuid: UUID) -> Sequence[Release]:
        """All versions of a live lease."""
        return [version.release() for version in self._live(lease_uuid).releases]

    async def info(self, lease_uuid: UUID) -> LeaseInfo:
        """Connection details, only while it is ready."""
        held = self.shelf.held.get(lease_uuid)
        if held is None or held.status is not ProvisionStatus.READY:
            raise NotProvisioned
        name, host = self.settings.name, self.settings.host
        if self.settings.plain:
            return plain_details(lease_uuid, backend=name, tenant=held.tenant, items=held.items, host=host)
        return details(
            lease_uuid,
            backend=name,
            tenant=held.tenant,
            items=held.items,
            images=held.images,
            host=host,
            generation=held.generation,
        )

    async def provision_info(self, lease_uuid: UUID) -> ProvisionInfo:
        """The live row, else that of its retained data, else why it had failed."""
        self.reap()
        found = (
            self.shelf.held.get(lease_uuid) or self.shelf.kept.get(lease_uuid) or self.shelf.diagnoses.get(lease_uuid)
        )
        if found is None:
            raise NotProvisioned
        return found.info()

    async def lookup(self, leases: Sequence[UUID]) -> Sequence[ProvisionInfo]:
        """Those of these leases that are live."""
        held = self.shelf.held
        return [held[lease].info() for lease in leases if lease in held]

    async def provisions(self, *, after: UUID | None = None, limit: int | None = None) -> ProvisionList:
        """Everything live, in order."""
        rows = self.shelf.page(after=after, limit=limit)
        return ProvisionList(tuple([held.info() for held in rows]), complete=True)

    async def retentions(self, *, after: UUID | None = None, limit: int | None = None) -> RetentionList:
        """Everything kept, in order."""
        self.reap()
        rows = self.shelf.kept_page(after=after, limit=limit)
        kept = [RetainedLease(one.lease_uuid, one.provider_uuid, one.tenant) for one in rows]
        return RetentionList(tuple(kept), complete=True)

    async def logs(self, lease_uuid: UUID, *, tail: int) -> Mapping[str, str]:
        """One invented line for each instance of a live lease, or what was stored with its failure."""
        held = self.shelf.held.get(lease_uuid)
        if held is None:
            stored: Diagnosis | None = self.shelf.diagnoses.get(lease_uuid)
            if stored is None:
                raise NotProvisioned
            return stored.logs
        return endings.logs_of(held, plain=self.settings.plain) if tail else {}

    async def stats(self) -> LoadStats:
        """The load; zeros, no usable signal, while no total is set."""
        return self.room.stats()

    async def health(self) -> None:
        """Always fine."""

    async def kill(self, lease_uuid: UUID) -> None:
        """Let the lease's workload die by itself. Raises `NotProvisioned` unless it is ready."""
        held = self.shelf.held.get(lease_uuid)
        if held is None or held.status is not ProvisionStatus.READY:
            raise NotProvisioned
        text = endings.fail(self, held, Fate("ContainerExited", "container exited unexpectedly"))
        await self.report(
            Callback(lease_uuid, CallbackStatus.FAILED, error=text), url=held.callback_url, state=self.saved(held)
        )

    def flap(self, lease_uuid: UUID, *, seconds: float) -> None:
        """Let the lease's workload die every so many seconds, whenever it is ready then, as long as it is here."""

        async def die() -> None:
            if lease_uuid not in self.shelf.held:
                return
            self.clock.call_later(seconds, lambda: agent_eager.run(die()))
            if self.shelf.held[lease_uuid].status is ProvisionStatus.READY:
                await self.kill(lease_uuid)

        self.clock.call_later(seconds, lambda: agent_eager.run(die()))

    async def forget(self) -> None:
        """Lose everything, as a backend whose storage is gone."""
        leases = list(self.shelf.held)
        for lease in leases:
            self.stop_timer(lease)
            self.shelf.drop(lease)
        kept, diagnoses = list(self.shelf.kept), list(self.shelf.diagnoses)
        self.shelf.kept.clear()
        self.shelf.diagnoses.clear()
        if self.store is not None:
            works = [*map(records.delete_held, leases), records.delete_kept(kept), records.delete_diagnoses(diagnoses)]
            await self.store.commit(records.together(*works))

    def begin(self, held: Held) -> None:
        """Start the timer of what is under way."""
        whim = self.whims.result(held.lease_uuid, task=held.task.value) if self.whims is not None else None
        if whim is not None and whim.never:
            return
        if whim is None and not self.settings.delay:
            asyncio.get_running_loop().call_soon(self._end, held, None)  # nothing to wait for, nothing to take back
            return
        delay = self.settings.delay.total_seconds() + (whim.after if whim is not None else 0.0)
        self._timers[held.lease_uuid] = self.clock.call_later(delay, lambda: self._end(held, whim))

    async def change(self, held: Held, change: Callable[[Held], None]) -> None:
        """Change a provision, durably if there is a store, then begin its work; a failed write leaves it as it was."""
        before = copy.copy(held)
        change(held)
        if self.store is not None:
            try:
                await self.store.commit(records.save_held(held, only_update=True))
            except sqlite3.Error:
                for name in Held.__struct_fields__:
                    setattr(held, name, getattr(before, name))
                raise
        if self.shelf.held.get(held.lease_uuid) is held:
            self.begin(held)

    def saved(self, held: Held, *, also: Work | None = None) -> Work | None:
        """What writes this provision with its callback; nothing without a store."""
        if self.store is None:
            return None
        return records.together(records.save_held(held, only_update=True), also)

    async def report(self, callback: Callback, *, url: str, state: Work | None) -> None:
        """Hand a callback to the agent."""
        if self._reporter is not None:
            await self._reporter.report(callback, url=url, state=state)

    def reap(self) -> None:
        """Let go of retained data whose time is over."""
        if not self.shelf.kept:
            return
        gone = self.shelf.expired(self.clock.now())
        if gone and self.store is not None:
            self.store.write(records.delete_kept(gone))

    def stop_timer(self, lease_uuid: UUID) -> None:
        """What was under way for the lease does not end any more."""
        timer = self._timers.pop(lease_uuid, None)
        if timer is not None:
            timer.cancel()

    def keep(self, held: Held) -> Kept | None:
        """The retained data of a provision that goes; None when nothing is kept."""
        if self.settings.retention <= timedelta(0):
            return None
        now: datetime = self.clock.now()
        until = now + self.settings.retention
        return Kept(
            held.lease_uuid, held.tenant, held.provider_uuid, held.items, now, until,
            payload=held.payload, images=held.images, fate=held.fate,
        )  # fmt: skip

    def _chance(self, lease_uuid: UUID) -> Fate:
        return script.by_chance(lease_uuid, fail_ratio=self.settings.fail_ratio, seed=self.settings.seed)

    def _live(self, lease_uuid: UUID) -> Held:
        held = self.shelf.held.get(lease_uuid)
        if held is None:
            raise NotProvisioned
        return held

    def _end(self, held: Held, whim: Whim | None) -> None:
        self._timers.pop(held.lease_uuid, None)
        task = agent_eager.run(self._conclude(held, whim))
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _conclude(self, held: Held, whim: Whim | None) -> None:
        if self.shelf.held.get(held.lease_uuid) is not held:
            return  # a deprovision overtook it: its result is not reported
        try:
            text, also = endings.conclude(self, held, whim.fate if whim is not None else None)
            status = CallbackStatus.FAILED if text else CallbackStatus.SUCCESS
            callback = Callback(held.lease_uuid, status, error=text)
            for _ in range(2 if whim is not None and whim.twice else 1):
                await self.report(callback, url=held.callback_url, state=self.saved(held, also=also))
        except Exception:
            log.exception("mock.result_lost", lease_uuid=str(held.lease_uuid))
