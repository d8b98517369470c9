"""Statements over the rows of sub-signers: which there are, which may sign, and when they are looked after next."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection
from django.db.models.functions import Now

from fred.due import CLAIM_FOR
from leases.chain.signer import Role, Signer
from leases.models import Signer as SignerRow

TASK = "sub-signers"
"""The row of the periodic task that looks after them."""


@dataclass(frozen=True, slots=True)
class Row:
    """A sub-signer as stored."""

    address: str
    index: int | None
    usable: bool
    is_open: bool
    """It has an open transaction."""


def ensure(signers: Iterable[Signer]) -> int:
    """Give every key its row; return how many were new. A new sub-signer is not usable until its grants are seen.

    The key of one that was removed may come back: it starts like a new one.
    """
    new = 0
    with connection.cursor() as cursor:
        for one in sorted(signers, key=lambda one: -1 if one.index is None else one.index):
            is_ours = one.role is Role.PROVIDER
            cursor.execute(
                """
                INSERT INTO leases_signer (address, role, usable, index, due_at, epoch, attempts)
                VALUES (%s, %s, %s, %s, now(), 0, 0)
                    ON CONFLICT (address) DO UPDATE
                   SET role = EXCLUDED.role, usable = EXCLUDED.usable, index = EXCLUDED.index, retired_at = NULL
                 WHERE leases_signer.retired_at IS NOT NULL OR leases_signer.role <> EXCLUDED.role
                    OR leases_signer.index IS DISTINCT FROM EXCLUDED.index
                """,
                [one.address, str(one.role), is_ours, one.index],
            )
            new += cursor.rowcount
    return new


def sub_signers() -> list[Row]:
    """All that were not retired, by index."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT s.address, s.index, s.usable,
                   EXISTS (SELECT FROM leases_chaintx AS t
                            WHERE t.signer = s.address AND t.state IN ('signed', 'broadcast'))
              FROM leases_signer AS s
             WHERE s.role = 'sub_signer' AND s.retired_at IS NULL ORDER BY s.index, s.address
            """
        )
        return [Row(*row) for row in cursor.fetchall()]


def promote(address: str, *, granted: Sequence[str], seen_at: datetime) -> bool:
    """Let it sign: all it needs was there in a check that began at `seen_at`. True when it was not usable before.

    A check that began before the chain refused one of its transactions proves nothing.
    """
    return bool(
        SignerRow.objects.filter(address=address, usable=False, retired_at=None)
        .exclude(demoted_at__gte=seen_at)
        .update(usable=True, granted=list(granted), last_error="")
    )


def demote(address: str, *, error: str, granted: Sequence[str] | None = None, refused: bool = False) -> bool:
    """Let it sign no more; True when it was usable. `refused`: by the chain's own word about a transaction.

    Whatever it has open is decided as ever.
    """
    changes: dict[str, Any] = {"usable": False, "last_error": error[:500]}
    if granted is not None:
        changes["granted"] = list(granted)
    if refused:
        changes |= {"demoted_at": Now(), "granted": []}
    rows = SignerRow.objects.filter(address=address, role=str(Role.SUB_SIGNER), retired_at=None)
    was_usable = rows.filter(usable=True).update(**changes)
    if not was_usable:
        rows.update(**changes)
    return bool(was_usable)


def note(address: str, *, error: str) -> None:
    """Keep why something could not be done for it."""
    SignerRow.objects.filter(address=address).update(last_error=error[:500])


def refused_since(moment: datetime) -> bool:
    """Whether the chain refused a transaction of a sub-signer after this moment."""
    return SignerRow.objects.filter(demoted_at__gte=moment, usable=False, retired_at=None).exists()


def retire(address: str) -> None:
    """It was removed and has no grant any more: it is not looked after again."""
    SignerRow.objects.filter(address=address, retired_at=None).update(
        usable=False, granted=[], retired_at=Now(), last_error="removed"
    )


def keep_for_errand(address: str, *, seconds: float) -> None:
    """Let lanes leave this signer alone for a while: an errand waits for it."""
    SignerRow.objects.filter(address=address).update(errand_until=Now() + timedelta(seconds=seconds))


def has_open_errand(kinds: Sequence[str]) -> bool:
    """Whether a transaction of these kinds is not decided yet."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT EXISTS (SELECT FROM leases_chaintx WHERE kind = ANY(%s) AND state IN ('signed', 'broadcast'))",
            [list(kinds)],
        )
        return bool(cursor.fetchone()[0])


@dataclass(frozen=True, slots=True)
class FailedErrand:
    """A transaction without leases that failed or was refused."""

    about: Sequence[Any]
    ran_out_of_gas: bool
    gas_limit: int
    error: str


def failed_errands(kind: str, *, within: timedelta) -> list[FailedErrand]:
    """Those of a kind that failed within this time, the newest first; what one of the kind did since then is over."""
    values: list[Any] = [kind, within]
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT about, codespace = 'sdk' AND code = 11, gas_limit, log FROM leases_chaintx
             WHERE kind = %s AND state IN ('failed', 'dropped') AND code IS NOT NULL
               AND NOT (codespace = 'sdk' AND code = 32) AND decided_at > now() - %s
             ORDER BY id DESC
            """,
            values,
        )
        rows = cursor.fetchall()
    return [FailedErrand(json.loads(row[0]) if isinstance(row[0], str) else row[0], *row[1:]) for row in rows]


def ask_for_check(after: timedelta = timedelta()) -> None:
    """Have the sub-signers looked after `after` this long at the latest, unless somebody is at it just now."""
    values: list[Any] = [after, TASK, after, CLAIM_FOR]
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE fred_periodictask AS t SET due_at = now() + %s, epoch = t.epoch + 1
             WHERE t.name = %s AND t.due_at > now() + GREATEST(%s, %s)
            """,
            values,
        )


def now() -> datetime:
    """The database's clock."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT now()")
        moment: datetime = cursor.fetchone()[0]
        return moment
