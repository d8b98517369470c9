"""Statements of the lanes. Lock order: leases (uuid order), actions, signer, transaction."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import connection

from fred.due import CLAIM_FOR, Claim
from leases import sql
from leases.chain.tx import SignedTx
from leases.models import ChainAction

Verb = ChainAction.Verb

SENDABLE = "t.state = 'queued' AND (t.valid_until IS NULL OR t.valid_until > now())"
"""Actions a lane may take, over the table's alias of `fred.due.claim`."""
FREE_SIGNER = """
    t.usable AND t.address = ANY(%s) AND (t.errand_until IS NULL OR t.errand_until <= now())
             AND EXISTS (SELECT 1 FROM leases_chainaction AS a
                          WHERE a.state = 'queued' AND a.due_at <= now()
                            AND (a.valid_until IS NULL OR a.valid_until > now()))
"""
"""A signer (of these addresses) is taken only together with work: alone it stays free."""


@dataclass(frozen=True, slots=True)
class Queue:
    """What waits of one verb: how much, and for how long the oldest."""

    verb: str
    count: int
    oldest: timedelta


@dataclass(frozen=True, slots=True)
class Waiting:
    """All that waits, the signers that may take it, how many of them are free, and the verb stored last."""

    queues: Mapping[str, Queue]
    free_signers: int
    last_kind: str
    lanes: Sequence[str] = ()


def waiting(addresses: Sequence[str]) -> Waiting:
    """Count what waits, and which of these signers are free; no locks.

    Sub-signers come first: the provider's key takes leases only while none of them is usable.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            SELECT t.verb, count(*), now() - min(t.created_at) FROM leases_chainaction AS t
             WHERE t.due_at <= now() AND {SENDABLE} GROUP BY t.verb
            """
        )
        queues = {verb: Queue(verb, count, oldest) for verb, count, oldest in cursor.fetchall()}
        if not queues:
            return Waiting({}, 0, "")
        cursor.execute(
            """
            SELECT address, role, due_at <= now() AND (errand_until IS NULL OR errand_until <= now()),
                   (SELECT kind FROM leases_chaintx WHERE kind IN ('ack', 'reject', 'close') ORDER BY id DESC LIMIT 1)
              FROM leases_signer WHERE usable AND address = ANY(%s)
            """,
            [list(addresses)],
        )
        rows = cursor.fetchall()
    lanes = [row for row in rows if row[1] == "sub_signer"] or rows
    return Waiting(
        queues,
        free_signers=sum(bool(row[2]) for row in lanes),
        last_kind=rows[0][3] or "" if rows else "",
        lanes=[row[0] for row in lanes],
    )


def looks_due() -> bool:
    """Whether a lease is due for a look: more may soon want to go to the chain."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT EXISTS (SELECT 1 FROM leases_lease WHERE due_at <= now())")
        return bool(cursor.fetchone()[0])


def outlived() -> dict[int, UUID]:
    """Queued actions that are due though their time is over: action to lease."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT id, lease_uuid FROM leases_chainaction
             WHERE due_at <= now() AND state = 'queued' AND valid_until <= now() ORDER BY due_at LIMIT 1000
            """
        )
        return dict(cursor.fetchall())


def let_outlived_fall(actions: Iterable[int]) -> set[UUID]:
    """Take the due time of those still outlived; return their leases, which are locked and have to be woken."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE leases_chainaction SET due_at = NULL, epoch = epoch + 1, last_error = 'not signed in time'
             WHERE id = ANY(%s) AND state = 'queued' AND due_at <= now() AND valid_until <= now()
         RETURNING lease_uuid
            """,
            [list(actions)],
        )
        return {row[0] for row in cursor.fetchall()}


@dataclass(frozen=True, slots=True)
class Pick:
    """A claimed action with what its lane must know: the stored state of its lease, and how it went before.

    `ran_out_tx` ran out of `ran_out_gas`, in the last five minutes. `raised_gas` is what was declared after that for
    bytes that never got into a block.
    """

    id: int
    epoch: int
    lease: UUID
    verb: str
    reason: str
    attempts: int
    chain_state: int | None
    ran_out_tx: int | None = None
    ran_out_gas: int | None = None
    raised_gas: int | None = None
    fee_or_gas: bool = False
    """Its last transaction met too little fee or gas: no lease is to blame, the group stays together."""


def picks(claims: Sequence[Claim]) -> list[Pick]:
    """Read the claimed actions, those still at their epoch, in the order of their leases' uuids."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT a.id, a.epoch, a.lease_uuid, a.verb, a.reason, a.attempts, l.chain_state,
                   CASE WHEN w.ran_out THEN t.id WHEN w.raised THEN (t.about ->> 0)::bigint END,
                   CASE WHEN w.ran_out THEN t.gas_limit WHEN w.raised THEN (t.about ->> 1)::bigint END,
                   CASE WHEN w.raised THEN t.gas_limit END,
                   COALESCE(t.codespace = 'sdk' AND t.code IN (11, 13), FALSE)
              FROM unnest(%s::bigint[], %s::bigint[]) AS c(id, epoch)
              JOIN leases_chainaction AS a ON a.id = c.id AND a.epoch = c.epoch
              JOIN leases_lease AS l ON l.uuid = a.lease_uuid
              LEFT JOIN leases_chaintx AS t ON t.id = a.tx_id
              LEFT JOIN LATERAL (
                SELECT t.state = 'failed' AND t.codespace = 'sdk' AND t.code = 11 AS ran_out,
                       t.state = 'dropped' AND jsonb_array_length(t.about) = 2 AS raised
                 WHERE t.decided_at > now() - interval '5 minutes') AS w ON TRUE
             WHERE a.state = 'queued'
             ORDER BY a.lease_uuid
            """,
            [[claim.pk for claim in claims], [claim.epoch for claim in claims]],
        )
        return [Pick(*row) for row in cursor.fetchall()]


def put_back(actions: Mapping[int, int], *, after: timedelta = timedelta(), error: str = "", counted: bool) -> None:
    """Give claimed actions (id to epoch) back, due `after` this long; `counted` keeps the attempt as a failed one."""
    if not actions:
        return
    values: list[Any] = [list(actions), list(actions.values()), after, error, counted]
    with connection.cursor() as cursor:
        cursor.execute(
            """
            WITH mine AS (SELECT a.id FROM unnest(%s::bigint[], %s::bigint[]) AS c(id, epoch)
                            JOIN leases_chainaction AS a ON a.id = c.id AND a.epoch = c.epoch AND a.state = 'queued'
                           WHERE a.due_at IS NOT NULL ORDER BY a.id FOR NO KEY UPDATE OF a)
            UPDATE leases_chainaction AS a
               SET due_at = now() + %s, epoch = a.epoch + 1, last_error = COALESCE(NULLIF(%s, ''), a.last_error),
                   attempts = CASE WHEN %s THEN a.attempts ELSE GREATEST(a.attempts - 1, 0) END
              FROM mine WHERE a.id = mine.id
            """,
            values,
        )


def standing(chosen: Mapping[int, int]) -> tuple[set[int], set[int]]:
    """Lock chosen actions (id to epoch) whose leases are locked; return those that stand and those that have fallen.

    A reject or close falls when its lease moved on since it was decided, or its time is over. What is no longer at its
    epoch is in neither: somebody else has it.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT a.id, a.verb = 'ack' OR (COALESCE(a.lease_epoch = l.epoch, FALSE)
                                            AND COALESCE(a.valid_until > now(), TRUE))
              FROM unnest(%s::bigint[], %s::bigint[]) AS c(id, epoch)
              JOIN leases_chainaction AS a ON a.id = c.id AND a.epoch = c.epoch AND a.state = 'queued'
              JOIN leases_lease AS l ON l.uuid = a.lease_uuid
             ORDER BY a.id FOR NO KEY UPDATE OF a
            """,
            [list(chosen), list(chosen.values())],
        )
        rows = cursor.fetchall()
    return {id_ for id_, stands in rows if stands}, {id_ for id_, stands in rows if not stands}


def let_fall(actions: Iterable[int]) -> set[UUID]:
    """Take the due time of locked actions whose lease has moved on; return their leases, which have to be woken."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE leases_chainaction SET due_at = NULL, epoch = epoch + 1, last_error = 'its lease has moved on'
             WHERE id = ANY(%s) RETURNING lease_uuid
            """,
            [list(actions)],
        )
        return {row[0] for row in cursor.fetchall()}


def occupy(signer: Claim) -> bool:
    """Put a claimed signer to rest for a transaction; False when the claim is lost."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE leases_signer SET due_at = NULL, epoch = epoch + 1, attempts = 0
             WHERE address = %s AND epoch = %s AND due_at IS NOT NULL
            """,
            [signer.pk, signer.epoch],
        )
        return bool(cursor.rowcount == 1)


def insert_tx(
    signed: SignedTx, *, signer: str, kind: str, actions: Iterable[int], about: Sequence[Any] = ()
) -> Claim | None:
    """Store signed bytes, claimed by whoever stores them, and bind the locked actions to them.

    `about` says what a transaction without actions is for, and of another, which one ran out of how much gas before.

    Bytes that a node refused before, and nobody else ever saw, may come again: nonce and hash follow from the content.
    None when these bytes are known otherwise.
    """
    values: list[Any] = [
        signer,
        signed.sequence,
        kind,
        signed.tx_bytes,
        signed.tx_hash,
        signed.gas_limit,
        f"{signed.fee.amount}{signed.fee.denom}",
        signed.timeout_height,
        json.dumps(list(about)),
        CLAIM_FOR,
    ]
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO leases_chaintx (signer, sequence, kind, tx_bytes, tx_hash, state, gas_limit, fee,
                                        timeout_height, codespace, log, about, due_at, epoch, attempts)
            VALUES (%s, %s, %s, %s, %s, 'signed', %s, %s, %s, '', '', %s, now() + %s, 1, 1)
                ON CONFLICT (tx_hash) DO UPDATE
               SET state = 'signed', due_at = EXCLUDED.due_at, epoch = leases_chaintx.epoch + 1, attempts = 1,
                   code = NULL, codespace = '', log = '', missed_at = NULL, decided_at = NULL, created_at = now(),
                   looked_height = -1, height_since = NULL
             WHERE leases_chaintx.state = 'dropped'
         RETURNING id, epoch
            """,
            values,
        )
        row = cursor.fetchone()
        if row is None:
            return None
        cursor.execute(
            """
            UPDATE leases_chainaction SET state = 'in_tx', tx_id = %s, due_at = NULL, epoch = epoch + 1
             WHERE id = ANY(%s)
            """,
            [row[0], list(actions)],
        )
    return Claim(row[0], row[1], 1)


def last_sequence(signer: str) -> tuple[int | None, tuple[str, int, str] | None]:
    """The sequence of a signer's last executed transaction, and how a node refused its very last one just now."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT sequence FROM leases_chaintx WHERE signer = %s AND state IN ('included', 'failed')
             ORDER BY id DESC LIMIT 1
            """,
            [signer],
        )
        used = cursor.fetchone()
        cursor.execute(
            """
            SELECT state, codespace, code, log, created_at > now() - interval '30 seconds'
              FROM leases_chaintx WHERE signer = %s ORDER BY created_at DESC, id DESC LIMIT 1
            """,
            [signer],
        )
        last = cursor.fetchone()
    refused = (last[1], last[2], last[3]) if last and last[0] == "dropped" and last[2] is not None and last[4] else None
    return (used[0] if used else None), refused


def finish_unsent(done: Mapping[int, int], moot: Mapping[int, int]) -> set[UUID]:
    """Close queued actions (id to epoch) that need no transaction any more; wake and return their locked leases."""
    closed: set[UUID] = set()
    with connection.cursor() as cursor:
        for state, rows in (("done", done), ("moot", moot)):
            if not rows:
                continue
            cursor.execute(
                """
                UPDATE leases_chainaction AS a
                   SET state = %s, due_at = NULL, epoch = a.epoch + 1, attempts = 0, decided_at = now(), last_error = ''
                  FROM unnest(%s::bigint[], %s::bigint[]) AS c(id, epoch)
                 WHERE a.id = c.id AND a.epoch = c.epoch AND a.state = 'queued'
             RETURNING a.lease_uuid
                """,
                [state, list(rows), list(rows.values())],
            )
            closed |= {row[0] for row in cursor.fetchall()}
    sql.wake(dict.fromkeys(closed))
    return closed


def free_rested() -> int:
    """Free signers that rest for no open transaction; return how many there were."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE leases_signer AS s SET due_at = now(), epoch = s.epoch + 1
             WHERE s.due_at IS NULL
               AND NOT EXISTS (SELECT 1 FROM leases_chaintx AS t
                                WHERE t.signer = s.address AND t.state IN ('signed', 'broadcast'))
            """
        )
        return int(cursor.rowcount)


def set_signer(address: str, *, after: timedelta, epoch: int | None = None) -> None:
    """Free a signer `after` this long. With an epoch only the holder of that claim may."""
    values: list[Any] = [after, address, epoch, epoch]
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE leases_signer SET due_at = now() + %s, epoch = epoch + 1
             WHERE address = %s AND (%s::bigint IS NULL OR epoch = %s)
            """,
            values,
        )
