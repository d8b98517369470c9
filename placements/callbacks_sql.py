"""Bulk statements of the callback inbox. All of them run inside a transaction that holds the lease rows."""

from collections.abc import Iterable, Sequence
from uuid import UUID

import msgspec
import orjson
from django.db import connection

from placements.callback_request import Selector, VerifiedCallback
from placements.status import OperationState


class ReportedOperation(msgspec.Struct, frozen=True):
    """An operation that callbacks may speak of; ``is_current``: its lease's backend goes on reporting with its id.

    ``is_elsewhere``: by its placement the lease belongs to another backend. ``is_closing``: it is being removed.
    """

    id: UUID
    lease_uuid: UUID
    backend: str
    state: OperationState
    is_settled: bool
    is_current: bool
    is_elsewhere: bool
    is_closing: bool


class Owner(msgspec.Struct, frozen=True):
    """Who a lease is placed at, and the id its backend reports with."""

    backend: str | None
    lifecycle_id: UUID | None


class InboxRow(msgspec.Struct, frozen=True):
    """A callback as it goes into the inbox. With a verdict it is done with; without one a look has to use it.

    Selector and id are those it was taken by, which may differ from what its URL said.
    """

    callback: VerifiedCallback
    selector: Selector
    selector_id: UUID | None
    verdict: str

    @property
    def key(self) -> tuple[object, ...]:
        """What the inbox holds once: an operation's status; anything else as long as it may be about the same."""
        callback = self.callback
        if self.selector is Selector.OPERATION:
            return (self.selector_id, callback.status)
        return (
            callback.lease_uuid,
            self.selector_id,
            callback.status,
            callback.maintenance_id,
            callback.body_sha256,
        )


def operations(ids: Iterable[UUID | None], *, open_of: Iterable[UUID]) -> list[ReportedOperation]:
    """Lock and read the operations with these ids, and the open ones of these leases."""
    wanted, leases = list(ids), list(open_of)
    either = "o.id = ANY(%s)"
    if leases:
        either += " OR (o.lease_uuid = ANY(%s) AND o.settled_at IS NULL)"
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            SELECT o.id, o.lease_uuid, o.backend, o.state, o.settled_at IS NOT NULL,
                   COALESCE(p.lifecycle_id = o.id, FALSE),
                   COALESCE(p.status = 'confirmed' AND p.backend <> o.backend, FALSE),
                   EXISTS (SELECT FROM placements_teardown AS t WHERE t.lease_uuid = o.lease_uuid AND t.state <> 'done')
              FROM placements_operation AS o LEFT JOIN placements_placement AS p ON p.lease_uuid = o.lease_uuid
             WHERE {either}
             ORDER BY o.id FOR NO KEY UPDATE OF o
            """,
            [wanted, leases] if leases else [wanted],
        )
        return [
            ReportedOperation(id_, lease, backend, OperationState(state), *claims)
            for id_, lease, backend, state, *claims in cursor.fetchall()
        ]


def owners(lease_uuids: Iterable[UUID]) -> dict[UUID, Owner]:
    """Read who these leases are placed at; leases without a placement are missing."""
    wanted = list(lease_uuids)
    if not wanted:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT lease_uuid, backend, lifecycle_id FROM placements_placement WHERE lease_uuid = ANY(%s)", [wanted]
        )
        return {lease: Owner(backend, lifecycle_id) for lease, backend, lifecycle_id in cursor.fetchall()}


def with_unfinished_command(lease_uuids: Iterable[UUID]) -> set[UUID]:
    """Those of these leases with a restart or update of which it is not known yet how it went."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT DISTINCT lease_uuid FROM placements_maintenancecommand
             WHERE lease_uuid = ANY(%s) AND finished_at IS NULL
            """,
            [list(lease_uuids)],
        )
        return {row[0] for row in cursor.fetchall()}


def insert(rows: Sequence[InboxRow]) -> set[tuple[object, ...]]:
    """Insert callbacks in this order; return the keys of those that were not in the inbox yet.

    What another row says already (the same result of an operation or a maintenance command, or the same report that
    no look has used yet) is left out. A report from before a restart or update was sent can't be about that one: the
    same words since then are another report. So there are at most as many unused rows of the same words as commands
    were sent meanwhile, and one.
    """
    distinct = {row.key: row for row in reversed(rows)}
    fresh = list(reversed(distinct.values()))
    if not fresh:
        return set()
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO placements_callback AS c
                   (lease_uuid, selector, selector_id, status, error, retained, storage_id, backend_label,
                    maintenance_id, maintenance_admitted_at, body_sha256, applied_at, verdict)
            SELECT n.lease, n.selector, n.selector_id, n.status, n.error, n.retained, n.storage_id, n.label,
                   n.maintenance_id, n.admitted_at, decode(n.body, 'hex'),
                   CASE WHEN n.verdict <> '' THEN now() END, n.verdict
              FROM ROWS FROM (json_to_recordset(%s) AS (
                       lease uuid, selector text, selector_id uuid, status text, error text, retained bool,
                       storage_id uuid, label text, maintenance_id uuid, admitted_at timestamptz, body text,
                       verdict text)) WITH ORDINALITY
                   AS n(lease, selector, selector_id, status, error, retained, storage_id, label, maintenance_id,
                        admitted_at, body, verdict, position)
             WHERE n.selector = 'operation'
                OR NOT EXISTS (SELECT FROM placements_callback AS k
                                WHERE k.lease_uuid = n.lease AND k.applied_at IS NULL
                                  AND k.body_sha256 = decode(n.body, 'hex')
                                  AND k.selector_id IS NOT DISTINCT FROM n.selector_id AND k.selector = n.selector
                                  AND NOT EXISTS (SELECT FROM placements_maintenancecommand AS m
                                                   WHERE m.lease_uuid = n.lease AND m.finished_at IS NULL
                                                     AND m.first_dispatched_at > k.received_at))
             ORDER BY n.position
                ON CONFLICT DO NOTHING
         RETURNING c.lease_uuid, c.selector, c.selector_id, c.status, c.maintenance_id, c.body_sha256
            """,
            [orjson.dumps([_document(row) for row in fresh]).decode()],
        )
        return {
            (selector_id, status)
            if selector == Selector.OPERATION
            else (lease, selector_id, status, maintenance_id, bytes(body))
            for lease, selector, selector_id, status, maintenance_id, body in cursor.fetchall()
        }


def _document(row: InboxRow) -> dict[str, object]:
    """A row as one JSON object: many rows in one parameter cost a tenth of twelve arrays of text."""
    callback = row.callback
    return {
        "lease": callback.lease_uuid,
        "selector": row.selector,
        "selector_id": row.selector_id,
        "status": callback.status,
        "error": callback.error,
        "retained": callback.retained,
        "storage_id": callback.storage_id,
        "label": callback.backend_label,
        "maintenance_id": callback.maintenance_id,
        "admitted_at": callback.maintenance_admitted_at,
        "body": callback.body_sha256.hex(),
        "verdict": row.verdict,
    }
