"""Admit what a tenant asks for: that a backend puts what it keeps of an ended lease under a new, PENDING one.

Everything that can be in the way is looked at, and the attempt written, in one transaction that holds both lease rows;
nothing is sent before its commit. The row is made claimed by the caller, whose process sends it and waits for its
outcome; should that process die, the row is in doubt and is sent again under the same id.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from django.conf import settings

from fred import counting, due, metrics
from leases import sql as lease_sql
from leases import wake
from leases.status import LeaseState
from placements.callback_urls import callback_urls
from placements.models import Placement
from placements.pushes import Claimed
from placements.status import OperationState
from reconciliation import placement_writes
from reconciliation import restore_sql as sql
from reconciliation.act import VALID_FOR


class Obstacle(StrEnum):
    """Why a restore was not admitted; nothing was written."""

    NOT_PENDING = "not_pending"
    NOT_KEPT = "not_kept"  # no placement says where the source was
    LOST = "lost"  # the storage that had it is gone for good
    UNCLEAR = "unclear"  # its backend is not settled, or takes no calls
    SOURCE_BUSY = "source_busy"  # something else still goes on with the source
    TARGET_BUSY = "target_busy"  # the new lease is being provisioned or restored, or was


@dataclass(frozen=True, slots=True)
class Wish:
    """A restore of `source` into `target`, as its tenant asked for it. `operation` is its name for ever."""

    operation: UUID
    target: UUID
    source: UUID
    tenant: str
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class Earlier:
    """This very restore was admitted before, and stands like this."""

    state: OperationState
    refusal: str
    error: str


def admit_restore(wish: Wish) -> Claimed | Earlier | Obstacle:
    """Write the attempt, claimed by the caller; or say what is in the way, or how the same attempt stands.

    After an attempt was written no look provisions the lease any more: its epoch has moved on, and one operation of a
    lease is open at most.
    """
    with placement_writes.watched():
        return due.in_transaction(lambda: _admit(wish))


def earlier(operation: UUID) -> Earlier | None:
    """How an admitted restore stands now; None when there is none of this id."""
    found = sql.earlier(operation)
    return Earlier(OperationState(found.state), found.refusal, found.error) if found else None


def settle_unmade(operation: UUID, lease: UUID) -> None:
    """Close a restore that was refused or never sent, so that its lease is free for another; else a look does it.

    One that is closed already, or of which something was made meanwhile, is left alone.
    """

    def settle() -> None:
        with wake.news_about([lease], known=True) as news:
            closed = sql.settle_unmade(operation)
            if closed is None:
                return
            _, backend, seconds = closed
            news.wake([lease], touched=True)
            counting.count(metrics.PROVISIONINGS.labels("error", backend, "restore"))
            if seconds is not None:
                counting.observe(metrics.PROVISIONING_SECONDS.labels(backend, "restore"), seconds)

    with placement_writes.watched():
        due.in_transaction(settle)


def _admit(wish: Wish) -> Claimed | Earlier | Obstacle:
    with wake.news_about([wish.target, wish.source], known=True) as news:
        before = sql.earlier(wish.operation)
        if before is not None:
            if (before.lease_uuid, before.source_lease_uuid) != (wish.target, wish.source):
                return Obstacle.TARGET_BUSY
            return Earlier(OperationState(before.state), before.refusal, before.error)
        leases = sql.leases_of(wish.target, wish.source)
        if leases is None or not _may_take(leases, wish):
            return Obstacle.NOT_PENDING
        if obstacle := _obstacle(leases):
            return obstacle
        claimed_at = time.monotonic()
        urls = callback_urls(settings.FRED.callback_base_url, wish.operation)
        epoch = sql.insert(
            wish.operation,
            wish.target,
            wish.source,
            backend=leases.backend,
            urls=urls,
            request_id=wish.request_id,
            valid=VALID_FOR,
        )
        news.wake([wish.target], touched=True)
        lease_sql.touch([wish.source])
        return Claimed(wish.operation, epoch, leases.backend, claimed_at)


def _may_take(leases: sql.RestoreLeases, wish: Wish) -> bool:
    """Whether the new lease is still what the caller saw: his, ours and PENDING."""
    return (leases.state, leases.tenant, leases.provider_uuid) == (
        LeaseState.PENDING,
        wish.tenant,
        settings.FRED.provider_uuid,
    )


def _obstacle(leases: sql.RestoreLeases) -> Obstacle | None:
    if not leases.placement:
        return Obstacle.NOT_KEPT
    if leases.placement == Placement.Status.LOST:
        return Obstacle.LOST
    settled = {Placement.Status.CONFIRMED, Placement.Status.ATTEMPTED}
    if leases.placement not in settled or leases.source_attempt_is_open or not leases.takes_calls:
        return Obstacle.UNCLEAR
    if leases.source_is_owned:
        return Obstacle.SOURCE_BUSY
    return Obstacle.TARGET_BUSY if leases.target_is_taken else None
