"""The figures of the live view, read from the database of the house."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Self

import psycopg

WINDOW_S: Final = 10.0
"""Rates are means over this long."""
_LISTED: Final = 8
_PHASES: Final = "SELECT phase, count(*), count(*) FILTER (WHERE reason <> '') FROM leases_lease GROUP BY 1"
_DECISIONS: Final = """
    SELECT at, lease_uuid::text, decision, phase, reason FROM reconciliation_decisionrecord ORDER BY id DESC LIMIT %s
"""
_EVENTS: Final = "SELECT at, lease_uuid::text, status, error FROM leases_statusevent ORDER BY id DESC LIMIT %s"
_TOTALS: Final = """
    SELECT (SELECT count(*) FROM leases_chainevent),
           (SELECT count(*) FROM placements_callback),
           (SELECT count(*) FROM leases_chaintx),
           (SELECT count(*) FROM reconciliation_decisionrecord),
           (SELECT max(head_height) FROM leases_chaincursor)
"""
_COUNT: Final = "SELECT count(*) FROM leases_lease WHERE uuid = ANY(%s::uuid[]) AND phase = ANY(%s)"
_CURSOR: Final = "SELECT 1 FROM leases_chaincursor WHERE head_height > 0 LIMIT 1"
_STORY: Final = """
    SELECT phase, reason, count(*) FROM leases_lease WHERE uuid = ANY(%s::uuid[]) GROUP BY 1, 2 ORDER BY 3 DESC
"""
RATES: Final = ("chain events", "callbacks", "transactions", "decisions")


@dataclass(frozen=True, slots=True)
class Line:
    """One row of a list: when, which lease, what."""

    at: str
    lease: str
    text: str


@dataclass(frozen=True, slots=True)
class Figures:
    """What the house looks like now. `problem` is set instead when the database did not answer."""

    phases: Sequence[tuple[str, int, int]] = ()
    """Name, number of leases, number of those that wait for something."""
    decisions: Sequence[Line] = ()
    events: Sequence[Line] = ()
    rates: Sequence[tuple[str, int, float]] = ()
    """Name, total, per second over the window."""
    height: int | None = None
    problem: str = ""


@dataclass(slots=True)
class Board:
    """Reads the figures over one connection, made again when it breaks."""

    database_url: str
    _connection: psycopg.Connection[tuple[object, ...]] | None = None
    _history: deque[tuple[float, tuple[int, ...]]] = field(default_factory=deque)

    def __enter__(self) -> Self:
        """Connect lazily."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self._forget()

    def count(self, leases: Sequence[str], phases: Sequence[str]) -> int:
        """How many of these leases are in one of these phases; 0 while the database is away."""
        try:
            row = self._connected().execute(_COUNT, [list(leases), list(phases)]).fetchone()
        except psycopg.Error:
            self._forget()
            return 0
        return _int(row[0]) if row else 0

    def is_watched(self) -> bool:
        """Whether the watcher has found its place in the chain: what is created from now on is news to it."""
        try:
            return self._connected().execute(_CURSOR).fetchone() is not None
        except psycopg.Error:
            self._forget()
            return False

    def story(self, leases: Sequence[str]) -> str:
        """Where these leases stand, for a message."""
        try:
            rows = self._connected().execute(_STORY, [list(leases)]).fetchall()
        except psycopg.Error as error:
            self._forget()
            return f"the database does not answer: {error}"
        told = ", ".join(f"{number} {phase}{f' ({reason})' if reason else ''}" for phase, reason, number in rows)
        return f"leases: {told or 'none of them is known'}"

    def read(self) -> Figures:
        """The figures now; never raises for what the database does."""
        try:
            return self._read(self._connected())
        except psycopg.Error as error:
            self._forget()
            return Figures(problem=str(error).strip().splitlines()[0] if str(error).strip() else repr(error))

    def _connected(self) -> psycopg.Connection[tuple[object, ...]]:
        if self._connection is None:
            self._connection = psycopg.connect(
                self.database_url,
                autocommit=True,
                connect_timeout=2,
                options="-c statement_timeout=2000",
                application_name="fred dev",
            )
        return self._connection

    def _read(self, connection: psycopg.Connection[tuple[object, ...]]) -> Figures:
        phases = [(str(name), _int(number), _int(waiting)) for name, number, waiting in connection.execute(_PHASES)]
        decisions = [
            Line(_clock(at), str(lease), " ".join(str(word) for word in words if word))
            for at, lease, *words in connection.execute(_DECISIONS, [_LISTED])
        ]
        events = [
            Line(_clock(at), str(lease), " ".join(str(word) for word in words if word))
            for at, lease, *words in connection.execute(_EVENTS, [_LISTED])
        ]
        row = connection.execute(_TOTALS).fetchone() or ()
        *totals, height = row
        return Figures(
            phases=sorted(phases),
            decisions=decisions,
            events=events,
            rates=self._rates(tuple(_int(total) for total in totals)),
            height=None if height is None else _int(height),
        )

    def _rates(self, totals: tuple[int, ...]) -> list[tuple[str, int, float]]:
        now = time.monotonic()
        self._history.append((now, totals))
        while len(self._history) > 1 and now - self._history[0][0] > WINDOW_S:
            self._history.popleft()
        since, before = self._history[0]
        seconds = max(now - since, 1e-9)
        return [
            (name, total, (total - old) / seconds if now > since else 0.0)
            for name, total, old in zip(RATES, totals, before, strict=True)
        ]

    def _forget(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _int(value: object) -> int:
    return int(str(value))


def _clock(at: object) -> str:
    return at.strftime("%H:%M:%S") if hasattr(at, "strftime") else str(at)
