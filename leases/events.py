"""Status events: what a lease's subscribers see. Rows are recorded in the transaction of the change they tell of.

A notification of PostgreSQL goes out with the commit, so that every web process hears of them, whichever made them; it
carries only leases, for a row that is lost on the way to somebody is found again in the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from django.db import connection

CHANNEL: Final = "fred_status_events"
"""PostgreSQL's channel. Payload: uuids of leases that have new events, separated by commas."""
MOST_KEPT: Final = 1000
"""Events of one lease that are kept; the oldest go first. What is old goes too, but never a lease's newest."""
MOST_TEXT: Final = 16_384
"""Characters of an event's error; what a backend said may be longer."""
_NAMED_AT_ONCE: Final = 200
"""Leases in one notification: PostgreSQL takes less than 8,000 bytes, a uuid and its comma have 37."""

_RECORD: Final = """
    WITH held AS MATERIALIZED (
        SELECT uuid FROM leases_lease WHERE uuid = ANY(%s) ORDER BY uuid FOR NO KEY UPDATE
    ), made AS (
        INSERT INTO leases_statusevent (lease_uuid, status, error, request_id, at)
        SELECT n.lease, n.status, n.error, n.request, clock_timestamp()
          FROM unnest(%s::uuid[], %s::text[], %s::text[], %s::text[]) WITH ORDINALITY
               AS n(lease, status, error, request, position)
          JOIN held ON held.uuid = n.lease
         ORDER BY n.position
    )
    SELECT pg_notify(%s, p.leases) FROM unnest(%s::text[]) AS p(leases)
"""
_TRIM: Final = """
    DELETE FROM leases_statusevent AS e
     USING (SELECT n.lease, (SELECT id FROM leases_statusevent
                              WHERE lease_uuid = n.lease ORDER BY id DESC OFFSET %s LIMIT 1) AS newest
              FROM unnest(%s::uuid[]) AS n(lease)) AS old
     WHERE e.lease_uuid = old.lease AND e.id <= old.newest
"""


def record(events: Sequence[tuple[UUID, str, str]], *, request_ids: Sequence[str] = ()) -> None:
    """Store status events (lease, status, error), in this order, and tell all web processes once this is committed.

    Runs in the caller's transaction, which has locked the rows of these leases: ids are drawn under that lock, so those
    of one lease increase in the order of commit. A lease without a row gets no event. `request_ids` names the request
    that caused each, where requests did.
    """
    if not events:
        return
    leases = sorted({lease for lease, _, _ in events})
    named = [
        ",".join(map(str, leases[start : start + _NAMED_AT_ONCE])) for start in range(0, len(leases), _NAMED_AT_ONCE)
    ]
    uuids, statuses, errors = (list(column) for column in zip(*events, strict=True))
    columns = [uuids, statuses, [error[:MOST_TEXT] for error in errors], list(request_ids) or [""] * len(events)]
    with connection.cursor() as cursor:
        cursor.execute(_RECORD, [leases, *columns, CHANNEL, named])
        cursor.execute(_TRIM, [MOST_KEPT, leases])
