"""Statements of the watcher: events, the cursor, and since when this database can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection

from leases.chain.events import LeaseEvent

ALIVE_FOR = timedelta(minutes=10)
"""A watcher that wrote nothing for longer has missed too much to vouch for what this database does not know."""
SWEEP = "sweep"
"""Name of the periodic task that compares everything."""


def unseen(events: Sequence[LeaseEvent], *, chain_id: str) -> list[LeaseEvent]:
    """Those of these events that are not stored yet; a look without locks, so some may be by the time they are."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT e.n FROM unnest(%s::uuid[], %s::text[]) WITH ORDINALITY AS e(lease, type, n)
             WHERE NOT EXISTS (SELECT 1 FROM leases_chainevent AS c
                                WHERE c.chain_id = %s AND c.lease_uuid = e.lease AND c.type = e.type)
             ORDER BY e.n
            """,
            [[event.lease_uuid for event in events], [event.type.value for event in events], chain_id],
        )
        return [events[row[0] - 1] for row in cursor.fetchall()]


def insert_events(events: Sequence[LeaseEvent], *, chain_id: str) -> set[tuple[UUID, str]]:
    """Store events of locked leases; return lease and type of those that were new."""
    if not events:
        return set()
    ordered = sorted(events, key=lambda event: (event.lease_uuid, event.type))
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO leases_chainevent (chain_id, lease_uuid, type, height, tx_hash, tenant)
            SELECT %s, e.lease, e.type, e.height, e.tx_hash, e.tenant
              FROM unnest(%s::uuid[], %s::text[], %s::bigint[], %s::text[], %s::text[]) WITH ORDINALITY
                AS e(lease, type, height, tx_hash, tenant, n)
             ORDER BY e.n
                ON CONFLICT DO NOTHING
         RETURNING lease_uuid, type
            """,
            [
                chain_id,
                [event.lease_uuid for event in ordered],
                [event.type.value for event in ordered],
                [event.height for event in ordered],
                [event.tx_hash for event in ordered],
                [event.tenant for event in ordered],
            ],
        )
        return set(cursor.fetchall())


def known(leases: Sequence[UUID]) -> set[UUID]:
    """Those of these leases that have a row."""
    return _uuids("SELECT uuid FROM leases_lease WHERE uuid = ANY(%s)", leases)


def told_of_acknowledgement(leases: Sequence[UUID]) -> set[UUID]:
    """Those of these locked leases to whom an acknowledgement is no news.

    They are stored as ACTIVE or ended, or a transaction of ours acknowledges them: its lane records the outcome, and
    wakes them with it. A look before that would read each of them from the chain.
    """
    return _uuids(
        """
        SELECT l.uuid FROM leases_lease AS l
         WHERE l.uuid = ANY(%s)
           AND (l.chain_state >= 2 OR EXISTS (SELECT FROM leases_chainaction AS a
                                               WHERE a.lease_uuid = l.uuid AND a.verb = 'ack' AND a.state = 'in_tx'))
        """,
        leases,
    )


def behind(leases: Sequence[UUID], heights: Sequence[int]) -> set[UUID]:
    """Those of these locked leases about which no news of this height has come yet."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT l.uuid FROM unnest(%s::uuid[], %s::bigint[]) AS n(uuid, height)
              JOIN leases_lease AS l ON l.uuid = n.uuid AND l.news_height < n.height
            """,
            [list(leases), list(heights)],
        )
        return {row[0] for row in cursor.fetchall()}


def _uuids(statement: str, leases: Sequence[UUID]) -> set[UUID]:
    if not leases:
        return set()
    with connection.cursor() as cursor:
        cursor.execute(statement, [list(leases)])
        return {row[0] for row in cursor.fetchall()}


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far this chain was read, and the newest head anybody saw."""

    last_height: int
    head_height: int


def cursor_of(chain_id: str) -> Cursor | None:
    """Read the cursor; None before the first start."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT last_height, head_height FROM leases_chaincursor WHERE chain_id = %s", [chain_id])
        row = cursor.fetchone()
        return Cursor(*row) if row else None


def create_cursor(chain_id: str, *, height: int, block_time: datetime) -> bool:
    """Make the cursor at the head of the first start; False when another watcher made it."""
    values: list[Any] = [chain_id, height, height, block_time, height, block_time]
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO leases_chaincursor (chain_id, last_height, head_height, head_time, head_seen_at,
                                            trusted_from_height, trusted_from_at, trusted_block_at, alive_at,
                                            system_identifier, timeline_id)
            SELECT %s, %s, %s, %s, now(), %s, now(), %s::timestamptz + interval '1 microsecond', now(),
                   s.system_identifier::text, c.timeline_id
              FROM pg_control_system() AS s, pg_control_checkpoint() AS c
                ON CONFLICT DO NOTHING
            """,
            values,
        )
        return bool(cursor.rowcount == 1)


def move_cursor(chain_id: str, *, to: int) -> None:
    """Everything up to this height is stored. The cursor never moves back."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE leases_chaincursor SET last_height = GREATEST(last_height, %s) WHERE chain_id = %s", [to, chain_id]
        )


def see_head(chain_id: str, *, height: int, block_time: datetime) -> bool:
    """Note a head; False when a higher one was seen before: this node is behind, or its chain began anew."""
    values: list[Any] = [height, block_time, chain_id, height]
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE leases_chaincursor SET head_height = %s, head_time = %s, head_seen_at = now()
             WHERE chain_id = %s AND head_height <= %s
            """,
            values,
        )
        return bool(cursor.rowcount == 1)


def keep_alive(chain_id: str) -> bool:
    """Write that somebody watches; False when too long nobody did, or when this is not the database it was."""
    values: list[Any] = [chain_id, ALIVE_FOR]
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE leases_chaincursor AS k SET alive_at = now()
              FROM pg_control_system() AS s, pg_control_checkpoint() AS c
             WHERE k.chain_id = %s AND k.alive_at > now() - %s
               AND k.system_identifier = s.system_identifier::text AND k.timeline_id = c.timeline_id
            """,
            values,
        )
        return bool(cursor.rowcount == 1)


def distrust(chain_id: str) -> None:
    """From now on only: what this database does not know of earlier times proves nothing.

    The head of this moment is not known yet, so no lease counts as seen from its birth until `trust_from` says it.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE leases_chaincursor AS k
               SET trusted_from_at = now(), trusted_from_height = GREATEST(k.last_height, k.head_height),
                   trusted_block_at = NULL, alive_at = now(),
                   system_identifier = s.system_identifier::text, timeline_id = c.timeline_id
              FROM pg_control_system() AS s, pg_control_checkpoint() AS c
             WHERE k.chain_id = %s
            """,
            [chain_id],
        )


def trust_from(chain_id: str, *, height: int, block_time: datetime) -> bool:
    """Leases of blocks after this one are seen from their birth; False when that was settled before."""
    values: list[Any] = [height, block_time, chain_id]
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE leases_chaincursor
               SET trusted_from_height = GREATEST(trusted_from_height, %s),
                   trusted_block_at = %s::timestamptz + interval '1 microsecond'
             WHERE chain_id = %s AND trusted_block_at IS NULL
            """,
            values,
        )
        return bool(cursor.rowcount == 1)


def leases_with_open_pushes(limit: int) -> list[UUID]:
    """Leases with an operation that may still be pushed (again), or with a command never sent, some of them."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT lease_uuid FROM placements_operation
             WHERE state IN ('reserved', 'in_doubt') AND settled_at IS NULL
               AND (valid_until IS NULL OR valid_until > now())
             UNION
            SELECT lease_uuid FROM placements_maintenancecommand WHERE state = 'reserved' AND settled_at IS NULL
             ORDER BY lease_uuid LIMIT %s
            """,
            [limit],
        )
        return [row[0] for row in cursor.fetchall()]


def outlive_pushes(leases: Sequence[UUID]) -> None:
    """End the time of the open pushes of these locked leases: nobody sends them before the next look."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE placements_operation SET valid_until = now(), epoch = epoch + 1
             WHERE lease_uuid = ANY(%s) AND state IN ('reserved', 'in_doubt') AND settled_at IS NULL
               AND (valid_until IS NULL OR valid_until > now())
            """,
            [list(leases)],
        )


def unsent_commands(leases: Sequence[UUID]) -> list[UUID]:
    """The restarts and updates of these leases of which our rows say that they were never sent."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id FROM placements_maintenancecommand WHERE lease_uuid = ANY(%s) AND state = 'reserved'",
            [list(leases)],
        )
        return [row[0] for row in cursor.fetchall()]


def ask_for_sweep() -> None:
    """Make the sweep due now."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO fred_periodictask (name, due_at, epoch, attempts, outcome) VALUES (%s, now(), 0, 0, '')
                ON CONFLICT (name) DO UPDATE SET due_at = now(), epoch = fred_periodictask.epoch + 1
            """,
            [SWEEP],
        )


def write_health(*, healthy: bool, detail: str) -> None:
    """Store how the chain looks to the watcher; the health routes read it."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO backends_healthcheck (name, healthy, detail, checked_at) VALUES ('watcher', %s, %s, now())
                ON CONFLICT (name) DO UPDATE
               SET healthy = EXCLUDED.healthy, detail = EXCLUDED.detail, checked_at = EXCLUDED.checked_at
            """,
            [healthy, detail],
        )
