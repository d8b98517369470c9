"""What a tenant's request needs to know of a lease: one statement, and one exact chain read when that is too old."""

from collections.abc import Sequence
from typing import Any, Final, LiteralString
from uuid import UUID

import msgspec
import psycopg
import structlog
from django.conf import settings
from django.db import connection, transaction

from fred import on_loop
from fred.connections import let_go
from leases import sql as lease_sql
from leases import wake
from leases.chain.client import Absent, Doubt, ExactLease
from leases.status import TERMINAL, LeaseState
from reconciliation.facts_types import Unknown
from reconciliation.sources import Sources
from tenants_api import ahead
from tenants_api.errors import internal, unavailable
from tenants_api.loop_reads import LeaseRows

HEAD_MAX_AGE: Final = "30 seconds"
"""While the watcher saw a head within this time, what is stored is as new as the chain's last news."""

FOREIGN: Final = f"chain_{Doubt.FOREIGN}"

READ_S: Final = 5.0
"""Time for an exact read."""
PROBE_S: Final = 2.0
"""Time to learn, where it brought nothing, whether the chain answers anybody; a request as a whole has 12 s."""

log = structlog.get_logger(__name__)
sources = Sources(read_s=READ_S, probe_s=PROBE_S)
"""Exact reads of this process; a chain that did not answer is left alone for a while."""


class LeaseFacts(msgspec.Struct, frozen=True):
    """A lease as stored, with what hangs on it. ``is_known``: read at least once, and no news is newer.

    ``backend`` is that of its placement, ``attempted`` that of its open operation, ``conflicting`` those that a
    placement in conflict names. ``attempt_is_open``: nobody knows yet whether that backend took the operation.
    """

    uuid: UUID
    tenant: str
    provider_uuid: UUID | None
    state: int
    meta_hash: bytes
    sku: str
    is_known: bool
    has_payload: bool
    is_in_flight: bool
    attempt_is_open: bool
    placement: str
    backend: str
    attempted: str
    conflicting: Sequence[str]

    @property
    def payload_received(self) -> bool:
        """Whether the payload is here; one of an ended lease only waits for its deletion."""
        return self.has_payload and self.state not in TERMINAL


_LOAD: Final = """
    SELECT l.uuid, COALESCE(l.tenant, ''), l.provider_uuid, COALESCE(l.chain_state, 0), l.meta_hash,
           COALESCE(l.items -> 0 ->> 'sku', ''),
           l.chain_state IS NOT NULL
           AND (l.chain_state >= 3
                OR (l.chain_height >= l.news_height
                    AND EXISTS (SELECT FROM leases_chaincursor AS c
                                 WHERE c.chain_id = %s AND c.head_seen_at > now() - %s::interval))),
           EXISTS (SELECT FROM leases_payload AS y
                    WHERE y.lease_uuid = l.uuid AND y.state = 'current' AND y.delete_after IS NULL),
           o.id IS NOT NULL, COALESCE(o.state IN ('reserved', 'in_doubt'), FALSE),
           COALESCE(p.status, ''), COALESCE(p.backend, ''), COALESCE(o.backend, ''), COALESCE(p.candidates, '{}')
      FROM leases_lease AS l
      LEFT JOIN placements_placement AS p ON p.lease_uuid = l.uuid
      LEFT JOIN placements_operation AS o ON o.lease_uuid = l.uuid AND o.settled_at IS NULL
     WHERE l.uuid = ANY(%s)
"""


def _freshness() -> list[Any]:
    return [settings.FRED.chain_id, HEAD_MAX_AGE]


rows: Final = LeaseRows(_LOAD, _freshness)
"""Of requests on the event loop."""


def load(uuid: UUID) -> LeaseFacts | None:
    """Read the stored lease; None when there is no row."""
    row = rows.row(uuid, ahead.row(uuid)) if on_loop.is_here() else _prepared_row(_LOAD, [*_freshness(), [uuid]])
    if row is None:
        return None
    _, tenant, provider_uuid, state, meta_hash, *rest = row
    return LeaseFacts(uuid, tenant, provider_uuid, state, bytes(meta_hash), *rest)


def _prepared_row(query: LiteralString, params: list[Any]) -> tuple[Any, ...] | None:
    """The first row of a query that each connection plans only once: planning this one costs five times its execution.

    Django's own cursors put values into the text, so for PostgreSQL every call would be another query.
    """
    with connection.cursor() as opened, connection.wrap_database_errors:
        raw: psycopg.Connection[tuple[Any, ...]] = opened.connection
        raw.prepare_threshold = 0
        with psycopg.Cursor(raw) as cursor:
            return cursor.execute(query, params, prepare=True).fetchone()


def current(uuid: UUID, *, anew: bool = False) -> LeaseFacts | None:
    """The lease as the chain has it now: as stored while that is new enough, else after one exact read, then stored.

    ``anew``: read it in any case, unless it is over, which it stays. None when the chain has no such lease. Of a lease
    of another provider only the state is told, so it belongs to no caller. Raises the 500 when the chain does not
    answer (at once while it is known to be silent), and the 503 when too many requests wait for it.
    """
    facts = load(uuid)
    if facts is not None and facts.is_known and (not anew or facts.state in TERMINAL):
        return facts
    try:
        found = on_loop.blocking(exactly, uuid)
    except on_loop.NoRoom:
        raise unavailable() from None
    match found:
        case ExactLease():
            facts = load(uuid)
            if facts is None or facts.provider_uuid is None:
                raise internal()
            return facts
        case Absent():
            return None
        case Unknown(reason=reason, state=LeaseState() as state) if reason == FOREIGN:
            return _of_another_provider(uuid, state)
        case _:
            raise internal()


def _of_another_provider(uuid: UUID, state: LeaseState) -> LeaseFacts:
    return LeaseFacts(
        uuid,
        tenant="",
        provider_uuid=None,
        state=state,
        meta_hash=b"",
        sku="",
        is_known=True,
        has_payload=False,
        is_in_flight=False,
        attempt_is_open=False,
        placement="",
        backend="",
        attempted="",
        conflicting=(),
    )


def exactly(uuid: UUID) -> ExactLease | Absent | Unknown:
    """The lease as the chain has it at this moment; what was read is stored. `FOREIGN`: it is another provider's."""
    let_go()
    found = sources.exact([uuid])[uuid]
    if isinstance(found, ExactLease):
        _store(found)
    elif isinstance(found, Unknown) and found.reason != FOREIGN:
        log.warning("lease.not_read", lease_uuid=str(uuid), reason=found.reason)
    return found


def _store(read: ExactLease) -> None:
    """Keep what was read; a change is news for a look."""
    with transaction.atomic():
        stored = lease_sql.store_reads([(read.lease, read.height)], exact=True)
        if any(one.woken for one in stored.values()):
            transaction.on_commit(wake.hint_look)
