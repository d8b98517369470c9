"""Bulk statements of acts, over the tables of all apps. They run inside a finish, with the lease rows locked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import connection


def _run(sql: str, *params: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return cursor.fetchall() if cursor.description else []


def _columns(rows: Iterable[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


def insert_operations(rows: Sequence[tuple[UUID, UUID, str, bytes | None, str, str]], *, valid_for: timedelta) -> None:
    """Insert attempts (id, lease, backend, payload digest, both URLs), reserved and due, with what the lease says now.

    The placement is written with them, as attempted; one that names an owner already stays.
    """
    columns = _columns(rows)
    _run(
        """
        INSERT INTO placements_operation
               (id, lease_uuid, kind, backend, tenant, provider_uuid, items, payload_sha256, callback_url,
                lifecycle_url, state, refusal, error, dispatch_count, due_at, epoch, attempts, valid_until)
        SELECT n.id, l.uuid, 'provision', n.backend, l.tenant, l.provider_uuid, l.items, n.digest, n.operation_url,
               n.lifecycle_url, 'reserved', '', '', 0, now(), 0, 0, now() + %s
          FROM unnest(%s::uuid[], %s::uuid[], %s::text[], %s::bytea[], %s::text[], %s::text[])
               AS n(id, lease, backend, digest, operation_url, lifecycle_url)
          JOIN leases_lease AS l ON l.uuid = n.lease
         ORDER BY n.lease
        """,
        valid_for,
        *columns,
    )
    _run(
        """
        INSERT INTO placements_placement AS p (lease_uuid, backend, status, candidates, revision, set_at)
        SELECT n.lease, n.backend, 'attempted', '{}', 1, now()
          FROM unnest(%s::uuid[], %s::text[]) AS n(lease, backend) ORDER BY n.lease
            ON CONFLICT (lease_uuid) DO UPDATE
               SET backend = excluded.backend, revision = p.revision + 1
             WHERE p.status = 'attempted' AND p.backend IS DISTINCT FROM excluded.backend
        """,
        columns[1],
        columns[2],
    )


def renew_operations(ids: Sequence[UUID], *, valid_for: timedelta) -> None:
    """Make operations that have no outcome yet due at their backend now, with a new validity."""
    _run(
        """
        UPDATE placements_operation SET due_at = now(), epoch = epoch + 1, attempts = 0, valid_until = now() + %s
         WHERE id IN (SELECT id FROM placements_operation WHERE id = ANY(%s) AND state IN ('reserved', 'in_doubt')
                       ORDER BY id FOR NO KEY UPDATE)
        """,
        valid_for,
        list(ids),
    )


def stop_pushing(ids: Iterable[UUID]) -> None:
    """These were taken by their backend: nothing is pushed any more."""
    _run("UPDATE placements_operation SET due_at = NULL, on_wire_until = NULL WHERE id = ANY(%s)", list(ids))


def settle_operations(ids: Sequence[UUID]) -> list[tuple[str, str, float | None]]:
    """Close operations that have an outcome; return backend, kind and seconds since the first push of each."""
    return [
        (backend, kind, seconds)
        for backend, kind, seconds in _run(
            """
            UPDATE placements_operation AS o
               SET settled_at = now(), due_at = NULL, on_wire_until = NULL, epoch = o.epoch + 1,
                   finished_at = COALESCE(o.finished_at, now())
             WHERE o.id IN (SELECT id FROM placements_operation WHERE id = ANY(%s) AND settled_at IS NULL
                               AND state IN ('succeeded', 'failed', 'refused', 'ended')
                             ORDER BY id FOR NO KEY UPDATE)
         RETURNING o.backend, o.kind, EXTRACT(epoch FROM o.finished_at - o.first_dispatched_at)::float8
            """,
            list(ids),
        )
    ]


def confirm_placements(operations: Mapping[UUID, UUID]) -> None:
    """The operation of each lease succeeded: its backend is the owner, and goes on reporting with its id."""
    if not operations:
        return
    _run(
        """
        INSERT INTO placements_placement AS p
               (lease_uuid, backend, storage_id, status, lifecycle_id, candidates, revision, set_at)
        SELECT o.lease_uuid, o.backend, o.storage_id, 'confirmed', o.id, '{}', 1, now()
          FROM placements_operation AS o WHERE o.id = ANY(%s) ORDER BY o.lease_uuid
            ON CONFLICT (lease_uuid) DO UPDATE
               SET backend = excluded.backend, storage_id = excluded.storage_id, status = 'confirmed',
                   lifecycle_id = excluded.lifecycle_id, lifecycle_retired_at = NULL, revision = p.revision + 1
        """,
        list(operations.values()),
    )


def adopt(owners: Mapping[UUID, str]) -> None:
    """Take a backend that lists a lease as its owner, where no other is confirmed."""
    if not owners:
        return
    _run(
        """
        INSERT INTO placements_placement AS p (lease_uuid, backend, status, candidates, revision, set_at)
        SELECT n.lease, n.backend, 'confirmed', '{}', 1, now()
          FROM unnest(%s::uuid[], %s::text[]) AS n(lease, backend) ORDER BY n.lease
            ON CONFLICT (lease_uuid) DO UPDATE
               SET backend = excluded.backend, status = 'confirmed', revision = p.revision + 1
             WHERE p.status = 'attempted'
        """,
        list(owners),
        list(owners.values()),
    )


def delete_attempted_placements(leases: Sequence[UUID]) -> None:
    """Forget placements of leases whose attempts made nothing. A confirmed owner, or one of a success, stays."""
    if leases:
        _run("DELETE FROM placements_placement WHERE lease_uuid = ANY(%s) AND status = 'attempted'", list(leases))


def delete_untouched_placements(leases: Sequence[UUID]) -> None:
    """Forget placements of ended leases whose backend was never sent anything."""
    _run(
        """
        DELETE FROM placements_placement AS p
         WHERE p.lease_uuid = ANY(%s) AND p.status = 'attempted'
           AND NOT EXISTS (SELECT FROM placements_operation AS o
                            WHERE o.lease_uuid = p.lease_uuid AND o.backend = p.backend
                              AND (o.first_dispatched_at IS NOT NULL OR o.state = 'succeeded'))
        """,
        list(leases),
    )


def want(rows: Sequence[tuple[UUID, str, str, UUID | None, int | None]], *, valid_for: timedelta | None) -> None:
    """Want something signed (lease, verb, reason, operation, lease epoch): a new row, or the old one made due again.

    A row that is in a transaction is left alone: its outcome comes first.
    """
    _run(
        """
        INSERT INTO leases_chainaction AS a
               (lease_uuid, verb, reason, operation_id, lease_epoch, valid_until, state, last_error, due_at, epoch,
                attempts, created_at)
        SELECT n.lease, n.verb, n.reason, n.operation, n.epoch, now() + %s::interval, 'queued', '', now(), 0, 0, now()
          FROM unnest(%s::uuid[], %s::text[], %s::text[], %s::uuid[], %s::bigint[])
               AS n(lease, verb, reason, operation, epoch)
         ORDER BY n.lease
            ON CONFLICT (lease_uuid, verb) DO UPDATE
               SET reason = excluded.reason, operation_id = excluded.operation_id, lease_epoch = excluded.lease_epoch,
                   valid_until = excluded.valid_until, state = 'queued', tx_id = NULL, decided_at = NULL,
                   due_at = CASE WHEN a.state = 'queued' AND a.due_at > now() THEN a.due_at ELSE now() END,
                   epoch = a.epoch + 1
             WHERE a.state <> 'in_tx'
        """,
        valid_for,
        *_columns(rows),
    )


def drop_actions(leases: Sequence[UUID], *, verb: str = "") -> None:
    """What waits to be signed for these leases, of this verb or of any, is moot."""
    _run(
        """
        UPDATE leases_chainaction SET state = 'moot', due_at = NULL, epoch = epoch + 1, decided_at = now()
         WHERE id IN (SELECT id FROM leases_chainaction
                       WHERE lease_uuid = ANY(%s) AND state = 'queued' AND %s IN ('', verb)
                       ORDER BY lease_uuid, id FOR NO KEY UPDATE)
        """,
        list(leases),
        verb,
    )


def want_teardowns(rows: Sequence[tuple[UUID, str, str]]) -> None:
    """Want a lease removed at a backend (lease, backend, cause); a finished teardown starts anew."""
    _run(
        """
        INSERT INTO placements_teardown AS t
               (lease_uuid, backend, cause, state, last_error, due_at, epoch, attempts, created_at)
        SELECT n.lease, n.backend, n.cause, 'open', '', now(), 0, 0, now()
          FROM unnest(%s::uuid[], %s::text[], %s::text[]) AS n(lease, backend, cause) ORDER BY n.lease, n.backend
            ON CONFLICT (lease_uuid, backend) DO UPDATE
               SET state = 'open', due_at = now(), epoch = t.epoch + 1, attempts = 0, done_at = NULL, last_error = ''
             WHERE t.state = 'done'
        """,
        *_columns(rows),
    )


def park_teardowns(rows: Sequence[tuple[UUID, str]]) -> None:
    """Put these open teardowns (lease, backend) aside."""
    _move_teardowns(rows, "open", to="parked", due="NULL")


def resume_teardowns(rows: Sequence[tuple[UUID, str]]) -> None:
    """Make these parked teardowns (lease, backend) due again."""
    _move_teardowns(rows, "parked", to="open", due="now()")


def _move_teardowns(rows: Sequence[tuple[UUID, str]], from_: str, *, to: str, due: str) -> None:
    _run(
        f"""
        WITH mine AS (SELECT t.id FROM placements_teardown AS t
                        JOIN unnest(%s::uuid[], %s::text[]) AS n(lease, backend)
                          ON t.lease_uuid = n.lease AND t.backend = n.backend
                       WHERE t.state = %s ORDER BY t.id FOR NO KEY UPDATE OF t)
        UPDATE placements_teardown AS t SET state = %s, due_at = {due}, epoch = t.epoch + 1, attempts = 0
          FROM mine WHERE t.id = mine.id
        """,
        *_columns(rows),
        from_,
        to,
    )


def let_go_of_payloads(leases: Sequence[UUID], *, kept_for: timedelta) -> None:
    """The payloads of ended leases are deleted by the daily task after this long."""
    if leases:
        _run(
            "UPDATE leases_payload SET delete_after = now() + %s WHERE lease_uuid = ANY(%s) AND delete_after IS NULL",
            kept_for,
            list(leases),
        )


def apply_callbacks(ids: Sequence[int]) -> None:
    """Mark these callbacks as used."""
    if ids:
        _run("UPDATE placements_callback SET applied_at = now(), verdict = 'announced' WHERE id = ANY(%s)", list(ids))


def insert_records(rows: Sequence[tuple[UUID, str, str, str]]) -> None:
    """Store decisions (lease, decision, phase, reason)."""
    if rows:
        _run(
            """
            INSERT INTO reconciliation_decisionrecord (lease_uuid, decision, phase, reason, detail, at)
            SELECT n.lease, n.decision, n.phase, n.reason, '{}'::jsonb, now()
              FROM unnest(%s::uuid[], %s::text[], %s::text[], %s::text[]) AS n(lease, decision, phase, reason)
            """,
            *_columns(rows),
        )


def finish(rows: Sequence[tuple[UUID, int, str | None, str, timedelta | None, str | None, bool]]) -> dict[UUID, int]:
    """End the looks of leases still at their claimed epoch (lease, epoch, phase, reason, interval, error, touched).

    Return those with the epoch this left. A null phase stays; a null interval means at rest. With an error the attempt
    counts as failed and the interval is its back-off. ``touched``: inventory walks begun before now prove nothing about
    the lease any more. What moved on in between is left alone, and stays due.
    """
    return dict(
        _run(
            """
            WITH done AS (SELECT * FROM unnest(%s::uuid[], %s::bigint[], %s::text[], %s::text[], %s::interval[],
                                               %s::text[], %s::bool[])
                                     AS d(uuid, epoch, phase, reason, after, error, touched)),
                 mine AS (SELECT l.uuid FROM leases_lease AS l JOIN done AS d ON d.uuid = l.uuid AND d.epoch = l.epoch
                           ORDER BY l.uuid FOR NO KEY UPDATE OF l)
            UPDATE leases_lease AS l
               SET due_at = now() + d.after, epoch = l.epoch + 1,
                   attempts = CASE WHEN d.error IS NULL THEN 0 ELSE l.attempts END,
                   last_error = COALESCE(d.error, ''),
                   phase_at = CASE WHEN COALESCE(d.phase, l.phase) <> l.phase THEN now() ELSE l.phase_at END,
                   phase = COALESCE(d.phase, l.phase), reason = d.reason, looked_at = clock_timestamp(),
                   touched_at = CASE WHEN d.touched THEN clock_timestamp() ELSE l.touched_at END
              FROM mine JOIN done AS d ON d.uuid = mine.uuid
             WHERE l.uuid = mine.uuid
         RETURNING l.uuid, l.epoch
            """,
            *_columns(rows),
        )
    )
