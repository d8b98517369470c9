"""The sweep: read what the chain and the backends list, and wake the leases for which the two differ.

It acts on nothing. Lists are read to the end before any of them is used; a list that broke off is as if it had not
been asked for. What it stores are facts, and the ordinary look decides on them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar
from uuid import UUID

import structlog
from django.db import DatabaseError

from backends import targets
from backends.client import BackendClient
from backends.contract import BackendUnavailable, ProvisionInfo, RetainedLease
from fred import due, metrics
from leases import sql as lease_sql
from leases import wake
from leases.chain.client import Absent, ChainLease, ExactLease
from leases.chain.errors import ChainError
from leases.status import LeaseState
from reconciliation import sweep_sql as sql
from reconciliation.sources import Sources, provider_uuid

log = structlog.get_logger(__name__)

CHUNK = 1000
"""Rows of one short transaction."""
EXACT_READS = 200
"""Unknown leases of inventories that one sweep reads; the next goes on behind them."""
MAX_ROWS = 100_000
"""An inventory with more rows counts as not answered."""


T = TypeVar("T")


@dataclass(slots=True)
class Swept:
    """What a sweep found, for its row and for the log."""

    outcome: str = "success"
    complete: bool = True
    counts: dict[str, int] = field(default_factory=dict)
    height: int | None = None

    def count(self, what: str, number: int) -> None:
        """Add to a count."""
        if number:
            self.counts[what] = self.counts.get(what, 0) + number


@dataclass(frozen=True, slots=True)
class Inventory:
    """What one backend listed, whole, or why it is not usable."""

    provisions: tuple[ProvisionInfo, ...] = ()
    retentions: tuple[RetainedLease, ...] = ()
    provisions_said: str = "ok"
    retentions_said: str = "ok"
    outcome: str = "authoritative"
    crashed: bool = False
    """Whether a bug of ours, not the backend, kept them from being read."""

    @property
    def complete(self) -> bool:
        """Whether both lists were read to the end."""
        return self.provisions_said == self.retentions_said == "ok"

    @property
    def complaint(self) -> str:
        """What kept the first of the lists from being read that was not."""
        return self.retentions_said if self.provisions_said == "ok" else self.provisions_said


def sweep(sources: Sources | None = None, *, take_over: bool = False) -> Swept | None:
    """Run one sweep; None when another process is at it. The result is stored, too.

    ``take_over``: the caller holds the claim on the periodic task, so whoever left a sweep open has lost it: killed, or
    stalled for longer than a claim.
    """
    sources = sources or Sources()
    began = time.monotonic()
    sweep_id = sql.begin(take_over=take_over)
    if sweep_id is None:
        return None
    swept = Swept()
    try:
        swept.height = _chain(sources, swept)
        if swept.height is None:
            swept.outcome, swept.complete = "error", False
        _backends(sources, sweep_id, swept)
        _unknown(sources, swept)
        _wake("differs", sql.differing(), swept)
        _wake("unguarded", sql.unguarded(), swept)
        _errors(swept)
        _left_alone(sweep_id, swept)
        if swept.outcome == "success" and not swept.complete:
            swept.outcome = "degraded"
    except BaseException:
        swept.outcome, swept.complete = "error", False
        raise
    finally:
        sql.end(sweep_id, outcome=swept.outcome, complete=swept.complete, height=swept.height, counts=swept.counts)
        metrics.RECONCILER_RUNS.labels(swept.outcome).inc()
        metrics.RECONCILER_SECONDS.observe(time.monotonic() - began)
        log.info("sweep ended", outcome=swept.outcome, seconds=round(time.monotonic() - began, 3), **swept.counts)
    return swept


def _chain(sources: Sources, swept: Swept) -> int | None:
    """Compare both lists of live leases with what is stored; return the height they are of, None if one broke off."""
    if sources.chain_silence.holds():
        return None
    listed: set[UUID] = set()
    lowest: int | None = None
    try:
        for state in (LeaseState.PENDING, LeaseState.ACTIVE):
            for page in sources.chain.list_leases(provider_uuid(), state):
                lowest = page.height if lowest is None else min(lowest, page.height)
                listed.update(lease.uuid for lease in page.leases)
                listed.update(UUID(text) for text in page.unreadable)
                _store(page.leases, page.height, swept)
    except ChainError as error:
        log.warning("chain lists are not complete", reason=str(error))
        return None
    if lowest is not None:
        missing = [uuid for uuid in sql.stored_live(below=lowest) if uuid not in listed]
        swept.count("missing", len(missing))
        for chunk in _chunks(missing):
            due.in_transaction(partial(_wake_at, chunk, lowest))
    swept.count("listed", len(listed))
    return lowest


def _store(leases: Iterable[ChainLease], height: int, swept: Swept) -> None:
    """Store those leases of a page that differ from their rows; that wakes them."""
    for chunk in _chunks(list(leases)):
        differing = sql.differing_reads([(one.uuid, int(one.state), lease_sql.items_text(one)) for one in chunk])
        reads = [(one, height) for one in chunk if one.uuid in differing]
        if reads:
            stored = due.in_transaction(partial(_store_and_hint, reads))
            swept.count("stored", stored)


def _store_and_hint(reads: list[tuple[ChainLease, int]]) -> int:
    stored = lease_sql.store_reads(reads, exact=False)
    if any(one.woken for one in stored.values()):
        wake.hint_after_commit()
    return len(stored)


def _backends(sources: Sources, sweep_id: int, swept: Swept) -> None:
    """Read every backend's lists side by side, and store those that are whole."""
    usable = {name: client for name in targets.configured() if (client := sources.backend(name)) is not None}
    for name in targets.configured().keys() - usable.keys():
        swept.complete = False
        metrics.BACKEND_FETCHES.labels(name, "fenced").inc()
        metrics.BACKEND_INVENTORIES.labels(name, "fenced").inc()
        sql.begin_walk(sweep_id, name)
        sql.end_walk(sweep_id, name, provisions="fenced", retentions="fenced", complete=False)
    for name in usable:
        sql.begin_walk(sweep_id, name)
    if not usable:
        return
    with ThreadPoolExecutor(max_workers=len(usable)) as pool:
        for name, inventory in zip(usable, pool.map(_read, usable.values()), strict=True):
            swept.complete &= inventory.complete
            silence = sources.silence_of(name)
            if inventory.complete:
                silence.over()
                _store_inventory(sweep_id, name, inventory)
                swept.count("provisions", len(inventory.provisions))
            elif not inventory.crashed:
                silence.began(inventory.complaint)
            fetched = "ok" if inventory.complete else "panic" if inventory.crashed else "error"
            metrics.BACKEND_FETCHES.labels(name, fetched).inc()
            metrics.BACKEND_INVENTORIES.labels(name, inventory.outcome).inc()
            sql.end_walk(
                sweep_id,
                name,
                provisions=inventory.provisions_said,
                retentions=inventory.retentions_said,
                complete=inventory.complete,
            )


def _read(client: BackendClient) -> Inventory:
    """Both lists of one backend, or what was wrong with them; a bug met here costs the others nothing."""
    stage = "fetch_provisions"
    try:
        provisions = client.provisions().items
        unique = {row.lease_uuid for row in provisions}
        if len(unique) != len(provisions) or len(provisions) > MAX_ROWS:
            return Inventory(
                provisions_said="a lease twice, or too many rows", retentions_said="not asked", outcome="untrusted"
            )
        stage = "fetch_retentions"
        return Inventory(provisions, client.retentions().items)
    except BackendUnavailable as error:
        return _unread(stage, str(error)[:500])
    except Exception as error:
        metrics.LOOK_CRASHES.labels(stage).inc()
        log.exception("inventory not read", backend=client.target.name)
        return replace(_unread(stage, f"{type(error).__name__}: {error}"[:500]), crashed=True)


def _unread(stage: str, why: str) -> Inventory:
    if stage == "fetch_provisions":
        return Inventory(provisions_said=why, retentions_said="not asked", outcome="unanswered")
    return Inventory(retentions_said=why, outcome="provisions_only")


def _store_inventory(sweep_id: int, name: str, inventory: Inventory) -> None:
    spoilt = {row.lease_uuid for row in inventory.provisions} & {row.lease_uuid for row in inventory.retentions}
    provisions = [
        (row.lease_uuid, row.provider_uuid, row.tenant, str(row.status), row.fail_count)
        for row in inventory.provisions
        if row.lease_uuid not in spoilt
    ]
    retentions = [
        (row.lease_uuid, row.provider_uuid, row.tenant) for row in inventory.retentions if row.lease_uuid not in spoilt
    ]
    for chunk in _chunks(provisions):
        sql.store_provisions(sweep_id, name, chunk)
    for kept in _chunks(retentions):
        sql.store_retentions(sweep_id, name, kept)
    # A lease in both lists of one backend moved between the two reads: it proves nothing, neither presence nor absence.
    sql.forget_others(sweep_id, name, kept=spoilt)


def _left_alone(sweep_id: int, swept: Swept) -> None:
    """Count the leases that this sweep does nothing about: they are under way, or their backend did not report.

    Nobody acts on the figures: when they cannot be had the sweep is none the worse for it.
    """
    try:
        ready, unlisted = sql.under_way(sweep_id)
        unreported = 0 if swept.complete else sql.unreported(sweep_id)
    except DatabaseError as error:
        log.warning("leases that were left alone are not counted", reason=str(error))
        return
    metrics.INFLIGHT_SKIPS.inc(ready)
    metrics.RECONCILER_CONFLICTS.inc(unlisted)
    metrics.DEFERRED_LEASES.inc(unreported)


def _unknown(sources: Sources, swept: Swept) -> None:
    """Read leases that backends list and this database does not know: ours get a row, absent ones are phantoms."""
    uuids = sql.unknown_listed(provider_uuid(), EXACT_READS)
    for uuid, answer in sources.exact(uuids).items():
        match answer:
            case ExactLease(lease=lease, height=height):
                due.in_transaction(partial(_store_exact, lease, height))
                swept.count("found", 1)
            case Absent():
                swept.count("phantoms", 1)
                metrics.CLEANUP_SKIPS.labels("orphan", "chain_unknown").inc()
                log.warning("a backend lists a lease that the chain does not know", lease_uuid=str(uuid))
            case _:
                metrics.CLEANUP_SKIPS.labels("orphan", "chain_error").inc()


def _store_exact(lease: ChainLease, height: int) -> None:
    if any(one.woken for one in lease_sql.store_reads([(lease, height)], exact=True).values()):
        wake.hint_after_commit()


def _errors(swept: Swept) -> None:
    """Count the live leases that only an operator can help, and say which backends their placements name."""
    for backend, number in sql.unconfigured_owners():
        log.error("placements name a backend that is not configured", backend=backend, leases=number)
        swept.count("lease_errors", number)
    swept.count("lease_errors", sql.without_payload())
    if errors := swept.counts.get("lease_errors", 0):
        metrics.RECONCILER_ACTIONS.labels("lease_error").inc(errors)
        if swept.outcome == "success" and swept.complete:
            swept.outcome = "partial"


def _wake(what: str, uuids: list[UUID], swept: Swept) -> None:
    swept.count(what, len(uuids))
    for chunk in _chunks(uuids):
        wake.leases(chunk)


def _wake_at(uuids: Iterable[UUID], height: int) -> None:
    with wake.news_about(uuids) as news:
        heights: Mapping[UUID, int | None] = dict.fromkeys(uuids, height + 1)
        news.wake(heights)


def _chunks(rows: list[T]) -> Iterator[list[T]]:
    for start in range(0, len(rows), CHUNK):
        yield rows[start : start + CHUNK]
