"""Work that is due: rows that many processes claim, renew and finish, and that no killed process can keep.

A row is *due* when its ``due_at`` has come; null means it is at rest. Claiming a row moves ``due_at`` a few seconds
ahead, raises ``epoch`` and commits, so a claim is only a promise with a short end: who is killed or stalled loses the
row by the clock of PostgreSQL. Whoever writes to a row later must still hold the epoch that the claim gave; news,
another claim, or a recorded outcome raise it, and the late writer changes nothing.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

from django.db import Error as DatabaseFailure
from django.db import OperationalError, connection, models, transaction

CLAIM_FOR = timedelta(seconds=5)
"""How long a claim holds without being renewed."""

RENEW_EVERY = timedelta(milliseconds=1500)
"""How often a living holder renews what it holds."""

BATCH = 500
"""The most rows one claim takes."""

STUCK_AFTER = 8
"""Failures in a row after which a row is shown as stuck. It goes on being tried."""

BACK_OFF_S = (1, 2, 5, 10, 30, 60)
LATE_BACK_OFF_S = 300


def back_off(attempts: int) -> timedelta:
    """Time to wait after this many failed attempts (1 is the first): 1, 2, 5, 10, 30, 60 s, then 5 min."""
    index = max(attempts, 1) - 1
    return timedelta(seconds=BACK_OFF_S[index] if index < len(BACK_OFF_S) else LATE_BACK_OFF_S)


class Due(models.Model):
    """A row that can be due.

    The three columns are written only by the functions here and by bulk statements that raise the epoch.
    """

    due_at = models.DateTimeField(null=True, blank=True)
    epoch = models.BigIntegerField(default=0)
    attempts = models.IntegerField(default=0)

    class Meta:
        abstract = True


@dataclass(frozen=True, slots=True)
class Claim:
    """One claimed row: its key, the epoch that the claim gave, and how often it was claimed without a finish."""

    pk: Any
    epoch: int
    attempts: int


def claim(
    model: type[Due],
    limit: int = BATCH,
    *,
    where: str = "TRUE",
    params: Sequence[Any] = (),
    also_set: str = "",
    claim_for: timedelta = CLAIM_FOR,
) -> list[Claim]:
    """Take up to ``limit`` due rows, oldest first, that nobody else is taking, in one statement that commits by itself.

    ``where`` narrows the rows (SQL over the table, alias ``t``, with ``params``); ``also_set`` adds assignments to the
    same update. Must not run inside a transaction that goes on to do something else.
    """
    table, key = model._meta.db_table, model._meta.pk.column
    setting = f", {also_set}" if also_set else ""
    with connection.cursor() as cursor:
        # Materialized: inside a nested loop the pick would run anew for each row, pass over what this very statement
        # has updated by then, and so take more than the limit.
        cursor.execute(
            f"""
            WITH picked AS MATERIALIZED (
                 SELECT t.{key} FROM {table} AS t
                  WHERE t.due_at <= now() AND ({where})
                  ORDER BY t.due_at LIMIT %s FOR NO KEY UPDATE SKIP LOCKED)
            UPDATE {table} AS r
               SET epoch = r.epoch + 1, attempts = r.attempts + 1, due_at = now() + %s{setting}
              FROM picked WHERE r.{key} = picked.{key}
         RETURNING r.{key}, r.epoch, r.attempts
            """,
            [*params, limit, claim_for],  # type: ignore[list-item]
        )
        return [Claim(*row) for row in cursor.fetchall()]


def renew(model: type[Due], held: Mapping[Any, int], *, claim_for: timedelta = CLAIM_FOR) -> set[Any]:
    """Prolong the claims in ``held`` (key to epoch) that are still ours; return the keys that were.

    Rows locked by somebody at this moment are passed over: they come back with the next renewal, or are lost to news.
    """
    if not held:
        return set()
    table, key = model._meta.db_table, model._meta.pk.column
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            WITH held AS (SELECT * FROM unnest(%s::{_array_type(model)}, %s::bigint[]) AS h(pk, epoch)),
                 mine AS (SELECT t.{key} FROM {table} AS t JOIN held ON held.pk = t.{key} AND held.epoch = t.epoch
                           WHERE t.due_at IS NOT NULL
                           ORDER BY t.{key} FOR NO KEY UPDATE OF t SKIP LOCKED)
            UPDATE {table} AS r SET due_at = now() + %s FROM mine WHERE r.{key} = mine.{key}
         RETURNING r.{key}
            """,
            [list(held), list(held.values()), claim_for],  # type: ignore[list-item]
        )
        return {row[0] for row in cursor.fetchall()}


def release(model: type[Due], held: Mapping[Any, int], *, after: timedelta = timedelta()) -> set[Any]:
    """Give back claims that are still ours, due again ``after`` this long; return the keys that were.

    The attempt that the claim counted stays counted: a release is not a finish.
    """
    if not held:
        return set()
    table, key = model._meta.db_table, model._meta.pk.column
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            WITH held AS (SELECT * FROM unnest(%s::{_array_type(model)}, %s::bigint[]) AS h(pk, epoch)),
                 mine AS (SELECT t.{key} FROM {table} AS t JOIN held ON held.pk = t.{key} AND held.epoch = t.epoch
                           WHERE t.due_at IS NOT NULL
                           ORDER BY t.{key} FOR NO KEY UPDATE OF t)
            UPDATE {table} AS r SET due_at = now() + %s, epoch = r.epoch + 1 FROM mine WHERE r.{key} = mine.{key}
         RETURNING r.{key}
            """,
            [list(held), list(held.values()), after],  # type: ignore[list-item]
        )
        return {row[0] for row in cursor.fetchall()}


def _array_type(model: type[Due]) -> str:
    kind = model._meta.pk.db_type(connection)
    if kind is None:
        msg = f"{model.__name__} has no column for its key"
        raise TypeError(msg)
    return {"bigint": "bigint[]", "uuid": "uuid[]", "text": "text[]"}.get(kind.split("(")[0], "text[]")


T = TypeVar("T")

REPEATABLE = frozenset({"55P03", "40P01"})
"""SQLSTATE of a lock that took too long, and of a deadlock: the whole transaction may be run again."""


def in_transaction(work: Callable[[], T], *, tries: int = 3) -> T:
    """Run ``work`` in one transaction; run all of it again when only locks were in the way, up to ``tries`` times."""
    for left in range(tries - 1, -1, -1):
        try:
            with transaction.atomic():
                return work()
        except OperationalError as error:
            if left == 0 or getattr(error.__cause__, "sqlstate", None) not in REPEATABLE:
                raise
    msg = "tries must be at least 1"
    raise ValueError(msg)


@dataclass(eq=False, slots=True)
class Holding:
    """Claims of one piece of work while it lasts: which epochs it holds, and when each was last known to be ours."""

    model: type[Due]
    epochs: dict[Any, int]
    until: float
    confirmed_at: float
    claim_for: timedelta = CLAIM_FOR
    lost: set[Any] = field(default_factory=set)

    def drop(self, keys: Sequence[Any]) -> None:
        """Stop renewing these: their outcome is recorded, or they are given up."""
        for key in keys:
            self.epochs.pop(key, None)


class _Renewals:
    """The renewal thread of this process: one statement per model every 1.5 s for all that the process holds."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.held: list[Holding] = []
        self.pid = 0

    def add(self, holding: Holding) -> None:
        with self.lock:
            if self.pid != os.getpid():  # a fork has no threads of its parent
                self.pid, self.held = os.getpid(), []
                threading.Thread(target=self._run, name="renewals", daemon=True).start()
            self.held.append(holding)

    def remove(self, holding: Holding) -> None:
        with self.lock:
            if holding in self.held:
                self.held.remove(holding)

    def _run(self) -> None:
        tick = threading.Event()
        while not tick.wait(RENEW_EVERY.total_seconds()):
            now = time.monotonic()
            with self.lock:
                kinds: dict[tuple[type[Due], timedelta], list[Holding]] = {}
                for holding in self.held:
                    if holding.epochs and holding.until > now:
                        kinds.setdefault((holding.model, holding.claim_for), []).append(holding)
            try:
                for (model, claim_for), holdings in kinds.items():
                    self._renew(model, claim_for, holdings)
            except DatabaseFailure:
                connection.close()  # a claim that can't be renewed ends by itself; the next round has a new connection

    @staticmethod
    def _renew(model: type[Due], claim_for: timedelta, holdings: list[Holding]) -> None:
        sent_at = time.monotonic()
        ours = renew(
            model, {key: epoch for one in holdings for key, epoch in list(one.epochs.items())}, claim_for=claim_for
        )
        for one in holdings:
            missing = one.epochs.keys() - ours
            one.lost = set(missing)
            if not missing:
                one.confirmed_at = sent_at


_renewals = _Renewals()


@contextmanager
def holding(
    model: type[Due],
    epochs: Mapping[Any, int],
    *,
    seconds: float,
    claim_for: timedelta = CLAIM_FOR,
    claimed_at: float | None = None,
) -> Iterator[Holding]:
    """Keep these claims (key to epoch) alive while the block runs, ``seconds`` at the longest.

    ``claimed_at`` is ``time.monotonic()`` from before the claiming statement. ``Holding.lost`` names those that the
    last renewal could not prolong: locked at that moment, or gone. A killed process renews nothing, so its rows are
    free again when the claim ends.
    """
    now = time.monotonic()
    one = Holding(model, dict(epochs), until=now + seconds, confirmed_at=claimed_at or now, claim_for=claim_for)
    _renewals.add(one)
    try:
        yield one
    finally:
        _renewals.remove(one)
