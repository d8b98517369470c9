"""Bulk statements of the callback inbox. All of them run inside a transaction that holds the lease rows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db import connection

from placements.callback_request import Selector
from placements.status import OperationState


@dataclass(frozen=True, slots=True)
class Standing:
    """How an operation stands, and whether its id is the one its lease's backend goes on reporting with."""

    id: UUID
    lease_uuid: UUID
    backend: str
    state: OperationState
    is_settled: bool
    is_current: bool


@dataclass(frozen=True, slots=True)
class Owner:
    """Who a lease is placed at, and the id its backend reports with."""

    backend: str | None
    lifecycle_id: UUID | None


@dataclass(frozen=True, slots=True)
class InboxRow:
    """A callback as it goes into the inbox. With a verdict it is done with; without one a look has to use it."""

    lease_uuid: UUID
    selector: Selector
    selector_id: UUID | None
    status: str
    error: str
    retained: bool
    storage_id: UUID | None
    backend_label: str
    maintenance_id: UUID | None
    maintenance_admitted_at: object
    body_sha256: bytes
    verdict: str

    @property
    def key(self) -> tuple[object, ...]:
        """What the inbox holds once: an operation's status; anything else as long as nobody used it."""
        if self.selector is Selector.OPERATION:
            return (self.selector_id, self.status)
        return (self.lease_uuid, self.selector_id, self.status, self.maintenance_id, self.body_sha256)


def operations(ids: Iterable[UUID | None], *, open_of: Iterable[UUID]) -> list[Standing]:
    """Lock and read the operations with these ids, and the open ones of these leases."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT o.id, o.lease_uuid, o.backend, o.state, o.settled_at IS NOT NULL,
                   COALESCE(p.lifecycle_id = o.id, FALSE)
              FROM placements_operation AS o LEFT JOIN placements_placement AS p ON p.lease_uuid = o.lease_uuid
             WHERE o.id = ANY(%s) OR (o.lease_uuid = ANY(%s) AND o.settled_at IS NULL)
             ORDER BY o.id FOR NO KEY UPDATE OF o
            """,
            [list(ids), list(open_of)],
        )
        return [
            Standing(id_, lease, backend, OperationState(state), settled, current)
            for id_, lease, backend, state, settled, current in cursor.fetchall()
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


def insert(rows: Sequence[InboxRow]) -> set[tuple[object, ...]]:
    """Insert callbacks in this order; return the keys of those that were not in the inbox yet.

    What another row says already (the same result of an operation or a maintenance command, or the same report that
    no look has used yet) is left out.
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
                   n.maintenance_id, n.admitted_at, n.body, CASE WHEN n.verdict <> '' THEN now() END, n.verdict
              FROM unnest(%s::uuid[], %s::text[], %s::uuid[], %s::text[], %s::text[], %s::bool[], %s::uuid[],
                          %s::text[], %s::uuid[], %s::timestamptz[], %s::bytea[], %s::text[]) WITH ORDINALITY
                   AS n(lease, selector, selector_id, status, error, retained, storage_id, label, maintenance_id,
                        admitted_at, body, verdict, position)
             WHERE n.selector = 'operation'
                OR NOT EXISTS (SELECT FROM placements_callback AS k
                                WHERE k.lease_uuid = n.lease AND k.applied_at IS NULL AND k.body_sha256 = n.body
                                  AND k.selector_id IS NOT DISTINCT FROM n.selector_id AND k.selector = n.selector)
             ORDER BY n.position
                ON CONFLICT DO NOTHING
         RETURNING c.lease_uuid, c.selector, c.selector_id, c.status, c.maintenance_id, c.body_sha256
            """,
            [
                [row.lease_uuid for row in fresh],
                [str(row.selector) for row in fresh],
                [row.selector_id for row in fresh],
                [row.status for row in fresh],
                [row.error for row in fresh],
                [row.retained for row in fresh],
                [row.storage_id for row in fresh],
                [row.backend_label for row in fresh],
                [row.maintenance_id for row in fresh],
                [row.maintenance_admitted_at for row in fresh],
                [row.body_sha256 for row in fresh],
                [row.verdict for row in fresh],
            ],
        )
        return {
            (selector_id, status)
            if selector == Selector.OPERATION
            else (lease, selector_id, status, maintenance_id, bytes(body))
            for lease, selector, selector_id, status, maintenance_id, body in cursor.fetchall()
        }
