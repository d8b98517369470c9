"""Statements about a chain that is not believed: since when and why, and the block that is known of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection


@dataclass(frozen=True, slots=True)
class Memory:
    """What is stored of a chain's history: the newest head, a block with its hash, and why it is suspect, if it is."""

    head_height: int
    known_height: int | None
    known_hash: str
    suspect_reason: str


def memory(chain_id: str) -> Memory | None:
    """Read it; None before the first start."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT head_height, known_height, known_hash, suspect_reason FROM leases_chaincursor WHERE chain_id = %s
            """,
            [chain_id],
        )
        row = cursor.fetchone()
        return Memory(*row) if row else None


def remember(chain_id: str, *, height: int, block_hash: str) -> None:
    """Keep a block's hash; of two the higher block."""
    _run(
        """
        UPDATE leases_chaincursor SET known_height = %s, known_hash = %s
         WHERE chain_id = %s AND COALESCE(known_height, -1) < %s
        """,
        [height, block_hash, chain_id, height],
    )


def suspect(chain_id: str, *, reason: str, detail: str) -> bool:
    """Believe this chain no more; False when it was suspect before (the first reason stays)."""
    return _run(
        """
        UPDATE leases_chaincursor SET suspect_reason = %s, suspect_detail = %s, suspect_since = now()
         WHERE chain_id = %s AND suspect_reason = ''
        """,
        [reason, detail[:500], chain_id],
    )


def believe(chain_id: str, *, forget_hash: bool = False) -> bool:
    """Believe it again; with ``forget_hash`` also what its blocks looked like is forgotten. False: it was believed."""
    return _run(
        """
        UPDATE leases_chaincursor
           SET suspect_reason = '', suspect_detail = '', suspect_since = NULL,
               known_height = CASE WHEN %s THEN NULL ELSE known_height END,
               known_hash = CASE WHEN %s THEN '' ELSE known_hash END
         WHERE chain_id = %s AND suspect_reason <> ''
        """,
        [forget_hash, forget_hash, chain_id],
    )


def standing(chain_id: str) -> tuple[str, str, datetime | None]:
    """Reason, detail and beginning of the suspicion; empty when there is none."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT suspect_reason, suspect_detail, suspect_since FROM leases_chaincursor WHERE chain_id = %s",
            [chain_id],
        )
        row: tuple[str, str, datetime | None] | None = cursor.fetchone()
        return row or ("", "", None)


def wake_the_waiting() -> None:
    """Make due what waited because the chain was suspect; its rows are locked in uuid order."""
    _run(
        """
        UPDATE leases_lease SET due_at = now(), epoch = epoch + 1, attempts = 0
         WHERE uuid IN (SELECT uuid FROM leases_lease WHERE reason = %s ORDER BY uuid FOR NO KEY UPDATE)
        """,
        ["chain_suspect"],
    )


def _run(statement: str, values: list[Any]) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return bool(cursor.rowcount)
