"""A provider's story: a simulated chain, scripted backends, real looks, sender and lanes, step by step."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from django.conf import settings
from django.db import connection
from django.db.models.functions import Now

from backends.models import Backend
from fred.due import Due
from leases import lanes
from leases.chain.devchain.running import RunningDevchain
from leases.chain.events import EventType, LeaseEvent
from leases.models import ChainAction, ChainTx, Lease, StatusEvent
from leases.status import LeaseState
from placements import callbacks
from placements.callback_request import Selector, VerifiedCallback
from placements.models import Operation, Teardown
from placements.sender import Sender
from reconciliation.look import Looker
from reconciliation.sources import Sources
from reconciliation.sweep import sweep
from reconciliation.watch_store import store_events
from tests.scripted_backend import ScriptedBackend
from tests.waiting import wait_until

ROWS = pytest.mark.django_db(
    transaction=True, available_apps=["fred", "leases", "backends", "placements", "reconciliation", "tenants_api"]
)
"""Committed rows, of our apps only: emptying these is all there is to do after a test."""
OPEN_TX = ["signed", "broadcast"]


@dataclass
class Story:
    """What a test says happens. Nothing happens by itself: looks, pushes and lanes run when they are told to."""

    chain: RunningDevchain
    backends: Mapping[str, ScriptedBackend]
    looker: Looker
    sender: Sender

    # --- the chain ---

    def create(self, *, news: bool = True, **how: Any) -> UUID:
        """A tenant makes a lease; by default its event is heard."""
        uuid = UUID(self.chain.create_lease(**how))
        if news:
            self.hear(uuid)
        return uuid

    def hear(self, uuid: UUID, kind: EventType = EventType.CREATED) -> None:
        """The watcher hears an event of the newest block."""
        store_events(
            [
                LeaseEvent(
                    kind, uuid, UUID(self.chain.provider_uuid), self.lease_on_chain(uuid).tenant, self.chain.height
                )
            ]
        )

    def close(self, uuid: UUID) -> None:
        """The tenant closes the lease, and it is heard."""
        self.chain.close_lease(str(uuid))
        self.hear(uuid, EventType.CLOSED)

    def lease_on_chain(self, uuid: UUID) -> Any:
        """The lease as the chain has it."""
        return self.chain.lease(str(uuid))

    def state(self, uuid: UUID) -> LeaseState:
        """Its state on chain."""
        return LeaseState(self.chain.state_of(str(uuid)))

    def included(self, message: str, uuid: UUID) -> int:
        """How often a message of this kind about the lease, signed by us, took effect."""
        return sum(
            kind.endswith(message) and str(uuid) in found.lease_uuids
            for result in self.chain.txs()
            if not result.tx.trusted and result.code == 0
            for kind, found in result.tx.messages
        )

    # --- the house ---

    def look(self) -> None:
        """Look at all leases that are due."""
        self.looker.at_due_leases()

    def push(self) -> None:
        """Send what is due, and wait for the answers."""
        self.sender.pull()
        wait_until(lambda: not is_due(Operation) and not is_due(Teardown) and self.sender.is_idle)

    def sign(self) -> None:
        """Send what waits for the chain, until no transaction is open."""

        def is_over() -> bool:
            lanes.run()
            return not ChainTx.objects.filter(state__in=OPEN_TX).exists()

        wait_until(is_over)

    def settle(self) -> None:
        """Look, push and sign until nothing is due."""

        def is_over() -> bool:
            self.look()
            self.push()
            self.sign()
            return not any(is_due(model) for model in (Lease, Operation, Teardown, ChainAction))

        wait_until(is_over)

    def sweep(self) -> None:
        """Read all inventories; b1 and b2 list what ``lists`` says."""
        sweep(self.looker.sources)

    def lists(self, backend: str, *rows: Mapping[str, Any]) -> None:
        """From now on this backend lists these provisions, all ours, and keeps no data."""
        made = [{"created_at": "2026-01-01T00:00:00Z", **row, "lease_uuid": str(row["lease_uuid"])} for row in rows]
        self.backends[backend].always["provisions"] = 200, json.dumps({"provisions": made}).encode()
        self.backends[backend].always["retentions"] = 200, b'{"retentions":[]}'

    def serve(self, backend: str, *, allocated: float | None = None) -> None:
        """This backend serves the chain's SKU too, of 8 cores has given so many away, or gives no figures."""
        Backend.objects.filter(name=backend).update(skus=[self.chain.sku_uuid])
        if allocated is not None:
            self.loads(backend, total_cpu_cores=8, allocated_cpu_cores=allocated)

    def loads(self, backend: str, **figures: Any) -> None:
        """From now on this backend gives these figures."""
        self.backends[backend].always["stats"] = 200, json.dumps(figures).encode()

    def forget_silence(self) -> None:
        """The time passes in which a source that did not answer is left alone; every lease is looked at again."""
        self.looker.sources = Sources()
        Lease.objects.update(due_at=Now())

    def report(self, status: str, uuid: UUID, *, operation: Operation | None = None, **changes: Any) -> None:
        """The backend of the lease's newest operation, or of this one, reports."""
        about = operation or self.operation(uuid)
        deliver(status, uuid, about, **changes)

    def made(self, uuid: UUID | None = None, **how: Any) -> UUID:
        """A lease whose provision was accepted by b1."""
        uuid = uuid or self.create(**how)
        self.look()
        self.push()
        assert self.operation(uuid).state == "accepted"
        return uuid

    def activated(self, **how: Any) -> UUID:
        """A lease that b1 made and that is acknowledged."""
        uuid = self.made(**how)
        self.report("success", uuid)
        self.settle()
        assert self.state(uuid) is LeaseState.ACTIVE
        return uuid

    # --- what became of it ---

    def row(self, uuid: UUID) -> Lease:
        """The lease's row."""
        return Lease.objects.get(pk=uuid)

    def operation(self, uuid: UUID) -> Operation:
        """Its newest operation."""
        return Operation.objects.filter(lease_id=uuid).latest("created_at")

    def events(self, uuid: UUID) -> list[tuple[str, str]]:
        """What subscribers were told, in order."""
        return list(StatusEvent.objects.filter(lease_id=uuid).order_by("id").values_list("status", "error"))

    def wishes(self, uuid: UUID) -> dict[str, str]:
        """Verbs and states of what was wanted on chain."""
        return dict(ChainAction.objects.filter(lease_id=uuid).values_list("verb", "state"))


def deliver(status: str, lease: UUID, operation: Operation | None, *, label: str = "b1", **changes: Any) -> None:
    """A verified callback arrives, again until its lease is free."""
    fields: dict[str, Any] = {
        "lease_uuid": lease,
        "selector": Selector.OPERATION if operation else Selector.TOKENLESS,
        "selector_id": operation.pk if operation else None,
        "status": status,
        "error": "",
        "retained": False,
        "storage_id": None,
        "backend_label": label,
        "maintenance_id": None,
        "maintenance_admitted_at": None,
        "body_sha256": hashlib.sha256(f"{lease} {status} {changes}".encode()).digest(),
        **changes,
    }
    wait_until(lambda: not callbacks.apply([VerifiedCallback(**fields)]))


def is_due(model: type[Due]) -> bool:
    """Whether a row of this kind wants something now."""
    return model._default_manager.filter(due_at__lte=Now()).exists()


def make_due(model: type[Due], **which: Any) -> None:
    """Let the time until these rows are due pass."""
    assert model._default_manager.filter(due_at__isnull=False, **which).update(due_at=Now())


def age(operation: Operation, seconds: float) -> None:
    """Let so many seconds pass since the operation was first pushed, and its lease be looked at."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE placements_operation
               SET first_dispatched_at = now() - make_interval(secs => %s),
                   last_dispatched_at = now() - make_interval(secs => %s)
             WHERE id = %s
            """,
            [seconds, seconds, operation.pk],
        )
    make_due(Lease, pk=operation.lease_id)


def trust(*, since: str = "1 hour", head_age: str = "0 s") -> None:
    """Make this database one that saw everything of its chain for so long."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO leases_chaincursor (chain_id, last_height, head_height, head_seen_at, trusted_from_height,
                   trusted_from_at, trusted_block_at, alive_at, system_identifier, timeline_id)
            VALUES (%s, 100, 100, now() - %s::interval, 1, now() - %s::interval, now() - %s::interval, now(), '', 0)
            """,
            [settings.FRED.chain_id, head_age, since, since],
        )


def counted(metric: Any, **labels: str) -> float:
    """The value of a counter."""
    value: float = (metric.labels(**labels) if labels else metric)._value.get()
    return value


def end_all(chain: RunningDevchain) -> None:
    """Nothing that one story left on the chain is listed in the next."""
    leases = chain.call(lambda: list(chain.node.chain.state.leases.values()))
    if pending := [one.uuid for one in leases if one.state == LeaseState.PENDING]:
        chain.expire_leases(pending)
    if active := [one.uuid for one in leases if one.state == LeaseState.ACTIVE]:
        chain.close_leases(active)
