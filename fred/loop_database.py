"""Statements from the event loop, beside Django's connections: one connection, opened when it is needed.

Below psycopg's cursors, on its wrapper of libpq: a cursor costs several times what the statement itself does.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import count
from typing import Any, Final, LiteralString

import psycopg
from django.db import connection
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, ExecStatus, TransactionStatus
from psycopg.pq.abc import PGresult

from fred.time_limits import TimeLimit

STATEMENT_S: Final = 15.0
"""As long as the server itself lets a statement run; one that takes longer costs the connection."""
MOST_PREPARED: Final = 50
"""Statements that one session keeps prepared; who asks more kinds has the others planned each time."""
CANCEL_S: Final = 1.0
"""How long a statement that is not waited for any more holds up the end of its session."""
_DJANGOS_OWN: Final = frozenset({"cursor_factory", "context", "prepare_threshold"})
_GOOD: Final = frozenset({ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK})


async def connect() -> psycopg.AsyncConnection[Any]:
    """A connection with the settings of Django's own, each statement a transaction of its own."""
    found = connection.get_connection_params()
    parameters = {name: value for name, value in found.items() if name not in _DJANGOS_OWN}
    return await psycopg.AsyncConnection.connect(**parameters, autocommit=True)


class LoopConnection:
    """One connection of one loop, for one statement at a time; one that was lost is opened again, once a statement."""

    def __init__(self) -> None:
        self._session: _Session | None = None

    async def rows(self, query: LiteralString, params: Sequence[Any]) -> list[tuple[Any, ...]]:
        """What a statement returns; it may be sent a second time when the connection was lost under it.

        Raises psycopg.Error or OSError when the database is away, TimeoutError when it does not answer.
        """
        for is_last in (False, True):
            try:
                with TimeLimit(STATEMENT_S):
                    if self._session is None:
                        self._session = _Session(await connect())
                    return await self._session.rows(query, params)
            except BaseException as error:
                lost = self._session is not None and self._session.is_lost
                await self.close()
                if is_last or not lost or not isinstance(error, psycopg.Error):
                    raise
        raise AssertionError("unreachable")

    async def close(self) -> None:
        """Close the connection, if there is one."""
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()


class _Session:
    """An open connection whose socket the loop watches, so that its end is seen while nobody asks."""

    def __init__(self, opened: psycopg.AsyncConnection[Any]) -> None:
        self._opened = opened
        self._libpq = opened.pgconn
        # A descriptor of our own: libpq closes its one when it sees the end, and the number may be another's then.
        self._socket = os.dup(opened.pgconn.socket)
        self._transformer = Transformer(opened)
        self._prepared: dict[tuple[str, tuple[int, ...]], bytes] = {}
        self._loop = asyncio.get_running_loop()
        self._results: list[PGresult] = []
        self._answer: asyncio.Future[list[PGresult]] | None = None
        self._loop.add_reader(self._socket, self._read)

    @property
    def is_lost(self) -> bool:
        return self._libpq.status == ConnStatus.BAD

    async def rows(self, query: LiteralString, params: Sequence[Any]) -> list[tuple[Any, ...]]:
        transformer = self._transformer
        values = transformer.dump_sequence(params, [PyFormat.AUTO] * len(params))
        types, formats = transformer.types or (), transformer.formats
        name = self._prepared.get((query, types)) or await self._prepare(query, types)
        if name:
            self._libpq.send_query_prepared(name, values, formats)
        else:
            self._libpq.send_query_params(_numbered(query), values, types, formats)
        result = await self._answered()
        transformer.set_pgresult(result)
        return transformer.load_rows(0, result.ntuples, tuple)

    async def close(self) -> None:
        self._loop.remove_reader(self._socket)
        os.close(self._socket)
        try:
            if not self.is_lost and self._libpq.transaction_status == TransactionStatus.ACTIVE:
                await self._opened.cancel_safe(timeout=CANCEL_S)
        except psycopg.Error:
            pass  # nobody is told: the statement's own time limit ends it
        finally:
            await self._opened.close()

    async def _prepare(self, query: LiteralString, types: tuple[int, ...]) -> bytes | None:
        if len(self._prepared) >= MOST_PREPARED:
            return None
        name = b"loop_%d" % len(self._prepared)
        self._libpq.send_prepare(name, _numbered(query), types)
        await self._answered()
        self._prepared[query, types] = name
        return name

    async def _answered(self) -> PGresult:
        """Send what was queued, and wait for its result. Raises what the server says."""
        self._answer = self._loop.create_future()
        while self._libpq.flush():
            await self._writable()
        results = await self._answer
        for one in results:
            if one.status not in _GOOD:
                raise error_from_result(one)
        return results[-1]

    async def _writable(self) -> None:
        waiting: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_writer(self._socket, _settle, waiting)
        try:
            await waiting
        finally:
            self._loop.remove_writer(self._socket)

    def _read(self) -> None:
        """Take what came; what comes while nobody asks is the end of the session, or a notice."""
        answer = self._answer
        try:
            self._libpq.consume_input()
            while True:
                if self._libpq.is_busy():
                    # The end may have come with what was read just now, and the loop tells of both only once.
                    self._libpq.consume_input()
                    if self._libpq.is_busy():
                        return
                result = self._libpq.get_result()
                if result is None:
                    break
                self._results.append(result)
        except psycopg.Error as error:
            if self.is_lost:
                self._loop.remove_reader(self._socket)
            if answer is not None and not answer.done():
                answer.set_exception(error)
            return
        if self._results and answer is not None and not answer.done():
            results, self._results = self._results, []
            answer.set_result(results)


def _settle(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


@lru_cache(maxsize=64)
def _numbered(query: LiteralString) -> bytes:
    """The query with its parameters by number, as the server reads them: `$1` for the first `%s`; `%%` stands for `%`.

    Raises ValueError for any other use of `%`, such as a parameter by name.
    """
    numbers = count(1)

    def numbered(found: re.Match[str]) -> str:
        match found[0]:
            case "%s":
                return f"${next(numbers)}"
            case "%%":
                return "%"
        raise ValueError(f"{found[0]!r} in a statement: a parameter is %s, a percent sign %%")

    return re.sub(r"%.?", numbered, query, flags=re.DOTALL).encode()
