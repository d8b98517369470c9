"""Statements from the event loop, beside Django's connections: one connection, opened when it is needed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, LiteralString

import psycopg
from django.db import connection

STATEMENT_S: Final = 15.0
"""As long as the server itself lets a statement run; one that takes longer costs the connection."""
_DJANGOS_OWN: Final = frozenset({"cursor_factory", "context", "prepare_threshold"})


async def connect() -> psycopg.AsyncConnection[Any]:
    """A connection with the settings of Django's own, each statement a transaction of its own."""
    found = connection.get_connection_params()
    parameters = {name: value for name, value in found.items() if name not in _DJANGOS_OWN}
    return await psycopg.AsyncConnection.connect(**parameters, autocommit=True)


class LoopConnection:
    """One connection of one loop, for one statement at a time; one that was lost is opened again, once a statement."""

    def __init__(self) -> None:
        self._connection: psycopg.AsyncConnection[Any] | None = None

    async def rows(
        self, query: LiteralString, params: Sequence[Any], *, prepare: bool | None = None
    ) -> list[tuple[Any, ...]]:
        """What a statement returns; it may be sent a second time when the connection was lost under it.

        Raises psycopg.Error or OSError when the database is away, TimeoutError when it does not answer.
        """
        for is_last in (False, True):
            try:
                async with asyncio.timeout(STATEMENT_S):
                    if self._connection is None:
                        self._connection = await connect()
                    cursor = await self._connection.execute(query, params, prepare=prepare)
                    return await cursor.fetchall()
            except (psycopg.Error, OSError) as error:
                lost = self._connection is not None and self._connection.closed
                await self.close()
                if is_last or not lost or isinstance(error, TimeoutError):
                    raise
        raise AssertionError("unreachable")

    async def close(self) -> None:
        """Close the connection, if there is one."""
        if self._connection is not None:
            opened, self._connection = self._connection, None
            await opened.close()
