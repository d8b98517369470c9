"""Statements over stored transactions. Lock order: leases (uuid order), actions, signer, transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import connection

from fred.due import Claim


@dataclass(frozen=True, slots=True)
class OpenTx:
    """A stored transaction whose fate is not known yet. Ages are those of the database's clock.

    `still_for`: since when the chain stood at the height of the last look.
    """

    id: int
    epoch: int
    attempts: int
    signer: str
    kind: str
    tx_hash: str
    tx_bytes: bytes
    state: str
    gas_limit: int
    timeout_height: int
    age: timedelta
    missed_for: timedelta | None
    sequence: int
    still_for: timedelta | None


def read_open(claims: Sequence[Claim]) -> list[OpenTx]:
    """Read claimed transactions that are still open and still at their epoch."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT t.id, t.epoch, t.attempts, t.signer, t.kind, t.tx_hash, t.tx_bytes, t.state, t.gas_limit,
                   t.timeout_height, now() - t.created_at, now() - t.missed_at, t.sequence, now() - t.height_since
              FROM unnest(%s::bigint[], %s::bigint[]) AS c(id, epoch)
              JOIN leases_chaintx AS t ON t.id = c.id AND t.epoch = c.epoch
             WHERE t.state IN ('signed', 'broadcast') ORDER BY t.id
            """,
            [[claim.pk for claim in claims], [claim.epoch for claim in claims]],
        )
        return [OpenTx(*row) for row in cursor.fetchall()]


@dataclass(frozen=True, slots=True)
class Bound:
    """An action that a transaction carries."""

    id: int
    lease: UUID
    verb: str
    reason: str
    attempts: int


def bound(tx: int) -> list[Bound]:
    """The actions that wait for this transaction, in the order of their leases' uuids."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT id, lease_uuid, verb, reason, attempts FROM leases_chainaction
             WHERE tx_id = %s AND state = 'in_tx' ORDER BY lease_uuid
            """,
            [tx],
        )
        return [Bound(*row) for row in cursor.fetchall()]


def close_actions(actions: Iterable[int], *, tx: int, state: str) -> None:
    """Close those of these actions that wait for the transaction; the caller holds their leases and wakes them."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE leases_chainaction
               SET state = %s, due_at = NULL, epoch = epoch + 1, attempts = 0, decided_at = now(), last_error = ''
             WHERE id = ANY(%s) AND tx_id = %s AND state = 'in_tx'
            """,
            [state, list(actions), tx],
        )


def queue_again(delays: Mapping[int, timedelta], *, tx: int, error: str, counted: bool) -> None:
    """Queue actions of a transaction that did not serve them, each due after its delay.

    `counted` leaves the attempt standing as a failed one: groups that fail again and again are halved.
    """
    if not delays:
        return
    values: list[Any] = [error, counted, list(delays), list(delays.values()), tx]
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE leases_chainaction AS a
               SET state = 'queued', due_at = now() + c.delay, epoch = a.epoch + 1, last_error = %s,
                   attempts = CASE WHEN %s THEN a.attempts ELSE 0 END
              FROM unnest(%s::bigint[], %s::interval[]) AS c(id, delay)
             WHERE a.id = c.id AND a.tx_id = %s AND a.state = 'in_tx'
            """,
            values,
        )


def free_signer(address: str, *, after: timedelta = timedelta()) -> None:
    """Make the signer of a decided transaction free again, `after` this long."""
    values: list[Any] = [after, address]
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE leases_signer SET due_at = now() + %s, epoch = epoch + 1, attempts = 0 WHERE address = %s", values
        )


def note_height(tx: int, *, epoch: int, height: int) -> timedelta:
    """Note the chain's height at this look; return how long the chain is known to stand there."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE leases_chaintx
               SET height_since = CASE WHEN looked_height = %s THEN COALESCE(height_since, now()) ELSE now() END,
                   looked_height = %s
             WHERE id = %s AND epoch = %s AND state IN ('signed', 'broadcast')
         RETURNING now() - height_since
            """,
            [height, height, tx, epoch],
        )
        row = cursor.fetchone()
    return timedelta() if row is None else row[0]


def decide(
    tx: int,
    *,
    state: str,
    height: int | None = None,
    code: int | None = None,
    codespace: str = "",
    log: str = "",
    epoch: int | None = None,
) -> bool:
    """Write what became of an open transaction, once; with an epoch only if the claim still stands. False: too late."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE leases_chaintx
               SET state = %s, height = %s, code = %s, codespace = %s, log = %s, due_at = NULL, epoch = epoch + 1,
                   attempts = 0, decided_at = now()
             WHERE id = %s AND state IN ('signed', 'broadcast') AND (%s::bigint IS NULL OR epoch = %s)
            """,
            [state, height, code, codespace, log[:2000], tx, epoch, epoch],
        )
        return bool(cursor.rowcount == 1)


def note_broadcast(tx: int, *, epoch: int, after: timedelta) -> None:
    """A node's mempool holds it: look for it `after` this long, unless news of a block came between."""
    values: list[Any] = [epoch, epoch, after, epoch, tx]
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE leases_chaintx
               SET state = 'broadcast', attempts = CASE WHEN epoch = %s THEN 0 ELSE attempts END,
                   due_at = CASE WHEN epoch = %s THEN now() + %s ELSE due_at END,
                   epoch = CASE WHEN epoch = %s THEN epoch + 1 ELSE epoch END
             WHERE id = %s AND state IN ('signed', 'broadcast')
            """,
            values,
        )


def look_again(tx: int, *, epoch: int, after: timedelta, missed: bool | None = None) -> None:
    """Undecided: look again `after` this long. `missed` notes (True) or forgets (False) that it was missed too late."""
    values: list[Any] = [after, missed, missed, tx, epoch]
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE leases_chaintx
               SET due_at = now() + %s, epoch = epoch + 1,
                   missed_at = CASE WHEN %s::boolean IS NULL THEN missed_at
                                    WHEN %s::boolean THEN COALESCE(missed_at, now()) END
             WHERE id = %s AND epoch = %s AND state IN ('signed', 'broadcast')
            """,
            values,
        )


def nudge() -> int:
    """A block was made: look for every transaction that a mempool holds. Return how many there are.

    Those count too that are due already: between two blocks nobody may have come by to look.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """
            WITH held AS (SELECT id FROM leases_chaintx
                           WHERE state = 'broadcast' ORDER BY id FOR NO KEY UPDATE SKIP LOCKED)
            UPDATE leases_chaintx AS t SET due_at = LEAST(t.due_at, now()), epoch = t.epoch + 1
              FROM held WHERE t.id = held.id
            """
        )
        return int(cursor.rowcount)


def sequence_refusals(signer: str) -> int:
    """How often the chain expected another sequence of this signer within the last ten minutes."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT count(*) FROM leases_chaintx
             WHERE signer = %s AND state = 'dropped' AND codespace = 'sdk' AND code = 32
               AND created_at > now() - interval '10 minutes'
            """,
            [signer],
        )
        row = cursor.fetchone()
        return int(row[0])
