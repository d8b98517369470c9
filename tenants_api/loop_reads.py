"""What requests on the event loop ask the database: the leases, and the uses of tokens, of many requests at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, LiteralString, TypeVar
from uuid import UUID

import psycopg
from django.db import connection

from fred import on_loop
from fred.loop_database import LoopConnection
from fred.together import Together

Row = tuple[Any, ...]
_T = TypeVar("_T")

_SPEND: Final[LiteralString] = """
    INSERT INTO tenants_api_usedtoken (key, expires_at)
    SELECT * FROM unnest(%s::text[], %s::timestamptz[]) ORDER BY 1
    ON CONFLICT (key) DO NOTHING
    RETURNING key
"""


class LeaseRows:
    """One statement for all leases that are asked for at the same moment."""

    def __init__(self, query: LiteralString, params: Callable[[], Sequence[Any]]) -> None:
        """`query` takes `params` and then UUIDs as an array, and returns each lease's with its row."""
        self._rows: Together[UUID, Row | None] = Together(lambda: _Leases(query, params))

    def begin(self, lease: UUID) -> asyncio.Future[Row | None]:
        """Ask for the row of a lease, for `row` later."""
        return self._rows.begin(lease)

    def row(self, lease: UUID, begun: asyncio.Future[Row | None] | None = None) -> Row | None:
        """The row of a lease, None when there is none. Raises Django's errors of the database."""
        return _translated(lambda: on_loop.wait(begun or self.begin(lease)))

    async def close(self) -> None:
        """Close the connection."""
        await self._rows.close()


class _Leases:
    def __init__(self, query: LiteralString, params: Callable[[], Sequence[Any]]) -> None:
        self._query, self._params = query, params
        self._connection = LoopConnection()

    async def answer(self, asked: Sequence[UUID], /) -> list[Row | None]:
        rows = await self._connection.rows(self._query, [*self._params(), list(asked)])
        found = {row[0]: row for row in rows}
        return [found.get(one) for one in asked]

    async def close(self) -> None:
        await self._connection.close()


class _Spends:
    def __init__(self) -> None:
        self._connection = LoopConnection()

    async def answer(self, asked: Sequence[tuple[str, datetime]], /) -> list[bool]:
        keys, untils = zip(*asked, strict=True)
        rows = await self._connection.rows(_SPEND, [list(keys), list(untils)])
        first = {row[0] for row in rows}
        answers = []
        for key in keys:
            answers.append(key in first)
            first.discard(key)  # of two uses in one batch the earlier counts
        return answers

    async def close(self) -> None:
        await self._connection.close()


_spends: Final[Together[tuple[str, datetime], bool]] = Together(_Spends)


def spend(key: str, until: datetime) -> bool:
    """Whether this is the first use of a token, which is then stored. Raises Django's errors of the database.

    A statement whose connection was lost is sent again; if the first one was heard all the same, its uses look like
    second ones: nobody gets in twice.
    """
    return _translated(lambda: on_loop.wait(_spends.begin((key, until))))


async def close() -> None:
    """Close the connection for the uses of tokens."""
    await _spends.close()


def _translated(ask: Callable[[], _T]) -> _T:
    """Raise what the same statement would raise through Django."""
    try:
        return ask()
    except psycopg.Error:
        with connection.wrap_database_errors:
            raise
    except OSError as error:  # no answer in time, no connection
        with connection.wrap_database_errors:
            raise psycopg.OperationalError(*error.args) from error
