"""Versions of a lease's payload: what an update proposes, what a provision would send, what can be gone back to.

Each version is a row of its own with the hash of its bytes. All of this runs in the caller's transaction, which holds
the lease's row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import connection

KEPT_FOR = timedelta(hours=1)
"""How long a version that nobody needs any more stays to be looked at."""


def propose(lease_uuid: UUID, body: bytes) -> int:
    """Store the bytes of an update before it is sent; return the version. It is in force only once promoted."""
    return int(
        _run(
            """
            INSERT INTO leases_payload (lease_uuid, state, body, sha256, corrupt)
            VALUES (%s, 'proposed', %s, %s, FALSE) RETURNING id
            """,
            lease_uuid,
            body,
            hashlib.sha256(body).digest(),
        )[0][0]
    )


def bodies(versions: Iterable[int]) -> dict[int, bytes]:
    """The bytes of these versions; one whose bytes are gone, or are not what came, is missing."""
    found = _run(
        "SELECT id, body FROM leases_payload WHERE id = ANY(%s) AND NOT corrupt AND sha256 = sha256(body)",
        list(versions),
    )
    return {id_: bytes(body) for id_, body in found}


def promote(versions: Iterable[int]) -> None:
    """Put proposed versions in force; the one before each stays, to be gone back to."""
    wanted = list(versions)
    if not wanted:
        return
    _run(
        """
        UPDATE leases_payload AS old SET state = 'superseded'
          FROM leases_payload AS new
         WHERE new.id = ANY(%s) AND new.state = 'proposed' AND old.lease_uuid = new.lease_uuid
           AND old.state = 'current'
        """,
        wanted,
    )
    _run(
        "UPDATE leases_payload SET state = 'current', stored_at = now() WHERE id = ANY(%s) AND state = 'proposed'",
        wanted,
    )


def confirm(versions: Iterable[int]) -> None:
    """The workload runs with these versions: nobody goes back further."""
    wanted = list(versions)
    if wanted:
        _run(
            """
            UPDATE leases_payload AS old SET delete_after = now() + %s
              FROM leases_payload AS new
             WHERE new.id = ANY(%s) AND new.state = 'current' AND old.lease_uuid = new.lease_uuid
               AND old.state = 'superseded' AND old.id < new.id AND old.delete_after IS NULL
            """,
            KEPT_FOR,
            wanted,
        )


def discard(versions: Iterable[int]) -> None:
    """Forget proposals that their backend declined."""
    wanted = list(versions)
    if wanted:
        _run("DELETE FROM leases_payload WHERE id = ANY(%s) AND state = 'proposed'", wanted)


def take_back(versions: Iterable[int]) -> None:
    """These versions failed: what was in force before one that was is so again."""
    wanted = list(versions)
    if not wanted:
        return
    leases = _run(
        """
        UPDATE leases_payload SET state = 'failed', delete_after = COALESCE(delete_after, now() + %s)
         WHERE id = ANY(%s) AND state IN ('proposed', 'current', 'superseded')
     RETURNING lease_uuid
        """,
        KEPT_FOR,
        wanted,
    )
    _run(
        """
        UPDATE leases_payload AS p SET state = 'current', delete_after = NULL
          FROM (SELECT DISTINCT ON (lease_uuid) id, lease_uuid FROM leases_payload
                 WHERE lease_uuid = ANY(%s) AND state = 'superseded' ORDER BY lease_uuid, id DESC) AS before
         WHERE p.id = before.id
           AND NOT EXISTS (SELECT FROM leases_payload AS c
                            WHERE c.lease_uuid = before.lease_uuid AND c.state = 'current')
        """,
        [row[0] for row in leases],
    )


def _run(statement: str, *params: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return cursor.fetchall() if cursor.description else []
