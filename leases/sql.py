"""Bulk statements over leases. Every one locks its rows in uuid order first and says which rows it changed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection

from fred import counting
from fred.metrics import CHAIN_STALE_READS
from leases.chain.client import ChainLease
from leases.status import TERMINAL


def lock_or_stub(uuids: Iterable[UUID], *, skip_locked: bool = False) -> set[UUID]:
    """Lock these leases in uuid order, inserting stubs for those without a row; return the locked ones.

    The insert waits for another transaction that is inserting the same stub; the lock is a statement of its own, so it
    sees what that transaction committed.
    """
    wanted = sorted(set(uuids))
    if not wanted:
        return set()
    with connection.cursor() as cursor:
        cursor.execute("SELECT uuid FROM leases_lease WHERE uuid = ANY(%s)", [wanted])
        known = {row[0] for row in cursor.fetchall()}
        missing = [uuid for uuid in wanted if uuid not in known]
        if missing:
            cursor.execute(
                """
                INSERT INTO leases_lease (uuid, epoch, attempts, chain_height, news_height, items, meta_hash, phase,
                                          reason, chain_reason, last_error)
                SELECT m.uuid, 0, 0, -1, -1, '[]'::jsonb, ''::bytea, 'observed', '', '', ''
                  FROM unnest(%s::uuid[]) WITH ORDINALITY AS m(uuid, n) ORDER BY m.n
                    ON CONFLICT DO NOTHING
                """,
                [missing],
            )
    return lock(wanted, skip_locked=skip_locked)


def lock(uuids: Iterable[UUID], *, skip_locked: bool = False) -> set[UUID]:
    """Lock the rows that exist, in uuid order; with ``skip_locked`` only those that nobody holds."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT uuid FROM leases_lease WHERE uuid = ANY(%s) ORDER BY uuid FOR NO KEY UPDATE"
            + (" SKIP LOCKED" if skip_locked else ""),
            [sorted(set(uuids))],
        )
        return {row[0] for row in cursor.fetchall()}


def wake(heights: Mapping[UUID, int | None], *, touched: bool = False) -> set[UUID]:
    """Mark locked leases due; one that was read at the height of the news or above stays as it is. Return the woken.

    ``touched``: the news came from a backend's side, as in :func:`touch`, without a second update.
    """
    if not heights:
        return set()
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE leases_lease AS l
               SET due_at = now(), epoch = l.epoch + 1, attempts = 0,
                   news_height = GREATEST(l.news_height, COALESCE(n.height, -1)),
                   touched_at = CASE WHEN %s THEN clock_timestamp() ELSE l.touched_at END
              FROM unnest(%s::uuid[], %s::bigint[]) AS n(uuid, height)
             WHERE l.uuid = n.uuid AND (n.height IS NULL OR l.chain_height < n.height)
         RETURNING l.uuid
            """,
            [touched, list(heights), list(heights.values())],
        )
        return {row[0] for row in cursor.fetchall()}


@dataclass(frozen=True, slots=True)
class Stored:
    """What storing a read did to one lease: the facts moved, and whether that woke it."""

    changed: bool
    woken: bool


def store_reads(
    reads: Iterable[tuple[ChainLease, int]],
    *,
    exact: bool,
    claimed: Mapping[UUID, int] | None = None,
) -> dict[UUID, Stored]:
    """Write chain facts read at a height; the only writer of these columns.

    A read older than the stored one, or one that would move a state backwards, changes nothing and its lease is
    missing from the result. A listing (``exact`` false) never stores a terminal state. A lease whose facts changed is
    woken, unless it still stands at the epoch in ``claimed`` (a look stores what it will decide on itself). Rows are
    locked in uuid order; leases without a row get one. Runs inside the caller's transaction.
    """
    rows = sorted(
        (pair for pair in reads if exact or pair[0].state not in TERMINAL),
        key=lambda pair: pair[0].uuid,
    )
    if not rows:
        return {}
    lock_or_stub(lease.uuid for lease, _ in rows)
    with connection.cursor() as cursor:
        cursor.execute(_STORE, _columns(rows, claimed or {}))
        stored = {uuid: Stored(changed=changed, woken=woken) for uuid, changed, woken in cursor.fetchall()}
    if not exact and len(stored) < len(rows):
        counting.count(CHAIN_STALE_READS.labels("list_leases"), len(rows) - len(stored))
    return stored


_STORE = """
    WITH read AS (
        SELECT * FROM unnest(%s::uuid[], %s::text[], %s::uuid[], %s::smallint[], %s::bigint[], %s::text[], %s::bytea[],
                             %s::timestamptz[], %s::text[], %s::bigint[])
            AS r(uuid, tenant, provider, state, height, items, meta_hash, created_at, reason, epoch)
    ), fresh AS (
        SELECT r.*, l.epoch AS row_epoch,
               (l.chain_state IS DISTINCT FROM r.state OR l.items IS DISTINCT FROM r.items::jsonb) AS changed
          FROM read AS r JOIN leases_lease AS l ON l.uuid = r.uuid
         WHERE r.height >= l.chain_height
           AND (l.chain_state IS NULL OR l.chain_state = r.state OR (l.chain_state < 3 AND l.chain_state < r.state))
    )
    UPDATE leases_lease AS l
       SET tenant = f.tenant, provider_uuid = f.provider, chain_state = f.state, chain_height = f.height,
           items = f.items::jsonb, meta_hash = f.meta_hash, created_at = f.created_at, chain_reason = f.reason,
           absent_height = NULL,
           due_at = CASE WHEN f.changed AND f.epoch IS DISTINCT FROM f.row_epoch THEN now() ELSE l.due_at END,
           attempts = CASE WHEN f.changed AND f.epoch IS DISTINCT FROM f.row_epoch THEN 0 ELSE l.attempts END,
           epoch = CASE WHEN f.changed AND f.epoch IS DISTINCT FROM f.row_epoch THEN l.epoch + 1 ELSE l.epoch END
      FROM fresh AS f
     WHERE l.uuid = f.uuid
 RETURNING l.uuid, f.changed, f.changed AND f.epoch IS DISTINCT FROM f.row_epoch
"""


def _columns(rows: Sequence[tuple[ChainLease, int]], claimed: Mapping[UUID, int]) -> list[list[Any]]:
    leases = [lease for lease, _ in rows]
    return [
        [lease.uuid for lease in leases],
        [lease.tenant for lease in leases],
        [lease.provider_uuid for lease in leases],
        [int(lease.state) for lease in leases],
        [height for _, height in rows],
        [items_text(lease) for lease in leases],
        [lease.meta_hash for lease in leases],
        [lease.created_at for lease in leases],
        [lease.rejection_reason or lease.closure_reason or "" for lease in leases],
        [claimed.get(lease.uuid) for lease in leases],
    ]


def items_text(lease: ChainLease) -> str:
    """The same items as JSON text."""
    return json.dumps(items_json(lease))


def items_json(lease: ChainLease) -> list[dict[str, Any]]:
    """The lease's items in chain order, as a backend gets them; empty names and domains are left out."""
    found = []
    for item in lease.items:
        entry: dict[str, Any] = {"sku": str(item.sku_uuid), "quantity": item.quantity}
        if item.service_name:
            entry["service_name"] = item.service_name
        if item.custom_domain:
            entry["custom_domain"] = item.custom_domain
        found.append(entry)
    return found


def store_states(states: Mapping[UUID, int], height: int, *, state: int, reason: str = "") -> set[UUID]:
    """Note that a transaction of ours moved these leases to ``state``, seen as a read at ``height``; wake what changed.

    For a lane, which knows the outcome of its transaction but read no lease: give the block before the inclusion, for
    the lease may have ended later in that block. ``states`` maps a lease to the lowest state it may be in. Rows must be
    locked already.
    """
    if not states:
        return set()
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE leases_lease AS l
               SET chain_state = %s, chain_height = GREATEST(l.chain_height, %s),
                   chain_reason = CASE WHEN %s = '' THEN l.chain_reason ELSE %s END,
                   due_at = now(), epoch = l.epoch + 1, attempts = 0
             WHERE l.uuid = ANY(%s) AND l.chain_state IS NOT NULL AND l.chain_state < 3 AND l.chain_state < %s
         RETURNING l.uuid
            """,
            [state, height, reason, reason, list(states), state],
        )
        return {row[0] for row in cursor.fetchall()}


def store_absent(heights: Mapping[UUID, int]) -> None:
    """Note that an exact read at a height found no such lease. Nothing else follows from it."""
    if not heights:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE leases_lease AS l SET absent_height = GREATEST(l.absent_height, n.height)
              FROM unnest(%s::uuid[], %s::bigint[]) AS n(uuid, height)
             WHERE l.uuid = n.uuid
            """,
            [list(heights), list(heights.values())],
        )


def touch(uuids: Iterable[UUID], *, at: datetime | None = None) -> None:
    """Something of these locked leases changed at a backend's side: inventory walks begun before now prove nothing."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE leases_lease SET touched_at = COALESCE(%s, clock_timestamp()) WHERE uuid = ANY(%s)",
            [at, list(uuids)],
        )
