"""The tables of the race: what the chain says, what news there was, and what was done wrong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from uuid import UUID

from django.conf import settings
from django.db import connection

from leases import wake
from leases.chain.client import Absent, ChainLease, Coin, ExactLease, LeaseItem, LeasePage, Unknown
from leases.status import LeaseState

SKU = UUID("01890a5d-ac96-774b-bcce-b302099a8001")

CREATE = """
    CREATE TABLE race_chain (uuid uuid PRIMARY KEY, state int NOT NULL, height bigint NOT NULL);
    CREATE TABLE race_news (
        id bigserial PRIMARY KEY, lease uuid NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp()
    );
    CREATE INDEX ON race_news (lease);
    CREATE TABLE race_violations (id bigserial PRIMARY KEY, what text NOT NULL);
    CREATE TABLE race_workers (pid int PRIMARY KEY);
    CREATE SEQUENCE race_height;
"""
DROP = "DROP TABLE IF EXISTS race_chain, race_news, race_violations, race_workers; DROP SEQUENCE IF EXISTS race_height"


def run(sql: str, *params: object) -> list[tuple]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params or None)
        return cursor.fetchall() if cursor.description else []


def tell(uuids: Iterable[UUID], state: LeaseState | None = None) -> None:
    """News about these leases: a new state on chain, or only a nudge. Stored and woken in one transaction."""
    uuids = sorted(uuids)
    with wake.news_about(uuids) as news:
        height = None
        if state is not None:
            height = run("SELECT nextval('race_height')")[0][0]
            run(
                """
                INSERT INTO race_chain SELECT unnest(%s::uuid[]), %s, %s
                    ON CONFLICT (uuid) DO UPDATE SET state = excluded.state, height = excluded.height
                """,
                uuids,
                int(state),
                height,
            )
        run("INSERT INTO race_news (lease) SELECT unnest(%s::uuid[])", uuids)
        news.wake(dict.fromkeys(uuids, height))


def counts(uuids: Sequence[UUID]) -> dict[UUID, int]:
    """How many rows of news each lease has, callbacks among them; one that is kept without an effect is no news."""
    return dict(
        run(
            """
            SELECT u.uuid, (SELECT count(*) FROM race_news AS n WHERE n.lease = u.uuid)
                         + (SELECT count(*) FROM placements_callback AS c
                             WHERE c.lease_uuid = u.uuid AND c.verdict IN ('', 'applied', 'announced'))
              FROM unnest(%s::uuid[]) AS u(uuid)
            """,
            list(uuids),
        )
    )


class TableChain:
    """Chain reads from the race's table; the height of a read is the newest handed out before it."""

    def leases(self, lease_uuids: Sequence[UUID]) -> dict[UUID, ExactLease | Absent | Unknown]:
        height = self._height()
        known = dict(run("SELECT uuid, state FROM race_chain WHERE uuid = ANY(%s)", list(lease_uuids)))
        return {
            uuid: ExactLease(_lease(uuid, known[uuid]), height) if uuid in known else Absent(height)
            for uuid in lease_uuids
        }

    def list_leases(self, provider_uuid: UUID, state: LeaseState | None = None) -> Iterator[LeasePage]:
        height = self._height()
        found = run("SELECT uuid, state FROM race_chain WHERE state = %s", int(state or LeaseState.PENDING))
        yield LeasePage(tuple(_lease(*row) for row in found), height)

    @staticmethod
    def _height() -> int:
        return run("SELECT COALESCE(max(height), 0) FROM race_chain")[0][0]


def _lease(uuid: UUID, state: int) -> ChainLease:
    return ChainLease(
        uuid=uuid,
        tenant="manifest1lqurt6ul2zm6x7yu670yty8w3uhg5hs5m6wd8d",
        provider_uuid=settings.FRED.provider_uuid,
        state=LeaseState(state),
        items=(LeaseItem(SKU, 1, Coin("umfx", 1)),),
        created_at=datetime.now(UTC),
    )
