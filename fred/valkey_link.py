"""A script of Valkey's for an event loop, over a connection of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from hashlib import sha1
from typing import Any, Final, cast

from hiredis import PushNotification, Reader, pack_command
from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection, DefaultParser
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as LinkError
from redis.exceptions import InvalidResponse, NoScriptError

CLOSED: Final = "Connection closed by server."


class ScriptLink:
    """One connection to Valkey, made when it is needed. One run at a time; whoever runs it limits the time."""

    def __init__(self, script: str, url: Callable[[], str]) -> None:
        """`url` of Valkey is asked for at the first connection."""
        self._script = script
        self._sha = sha1(script.encode(), usedforsecurity=False).hexdigest()
        self._url = url
        self._redis: Redis | None = None
        self._connection: AbstractConnection | None = None
        self._wire: _Wire | None = None

    async def run(self, keys: list[str], arguments: list[str]) -> Any:
        """Its answer. A connection that broke since its last use is made anew, once.

        Raises Valkey's error, or what kept it from answering: then the link must be closed before its next use.
        """
        was_open = self._connection is not None
        try:
            return await self._ask(keys, arguments)
        except LinkError:
            await self.close()
            if not was_open:
                raise
            return await self._ask(keys, arguments)

    async def close(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection, self._wire = self._connection, None, None
        if connection is not None:
            await connection.disconnect(nowait=True)

    async def _ask(self, keys: list[str], arguments: list[str]) -> Any:
        wire = self._wire or await self._connect()
        run = (str(len(keys)), *keys, *arguments)
        try:
            return await wire.ask("EVALSHA", self._sha, *run)
        except NoScriptError:
            return await wire.ask("EVAL", self._script, *run)

    async def _connect(self) -> _Wire:
        """The library makes and greets the connection as the URL says; then it is ours."""
        if self._redis is None:
            self._redis = Redis.from_url(
                self._url(),
                socket_timeout=None,  # the caller has a limit for all of it
                socket_connect_timeout=None,
                retry=Retry(NoBackoff(), 0),
            )
        connection: AbstractConnection = self._redis.connection_pool.make_connection()  # type: ignore[no-untyped-call]
        self._connection = connection
        await connection.connect()  # type: ignore[no-untyped-call]
        streams = cast("asyncio.StreamWriter", connection._writer)  # noqa: SLF001 - nothing public leads to the transport
        self._wire = _Wire(cast("asyncio.Transport", streams.transport), connection.socket_timeout)
        return self._wire


class _Wire(asyncio.Protocol):
    """Commands and answers on an open connection; the library's streams cost more than all else of a draw."""

    def __init__(self, transport: asyncio.Transport, limit_s: float | None) -> None:
        """`limit_s` for an answer to come; None for any time."""
        self._transport = transport
        self._limit_s = limit_s
        self._reader = Reader(protocolError=InvalidResponse, replyError=DefaultParser.parse_error)
        self._asked: asyncio.Future[Any] | None = None
        transport.set_protocol(self)

    async def ask(self, *command: str) -> Any:
        """The answer; it is raised if it is an error. Raises LinkError when the connection broke."""
        if self._transport.is_closing():
            raise LinkError(CLOSED)
        asked = self._asked = asyncio.get_running_loop().create_future()
        self._transport.write(pack_command(command))  # type: ignore[arg-type]  # its stub knows commands of one word
        if self._limit_s is None:
            return await asked
        async with asyncio.timeout(self._limit_s):
            return await asked

    def data_received(self, data: bytes) -> None:
        """An answer, or a part of one."""
        try:
            self._reader.feed(data)
            while (answer := self._reader.gets()) is not False:
                if not isinstance(answer, PushNotification):
                    self._end(answer)
        except InvalidResponse as error:
            self._end(error)

    def connection_lost(self, error: Exception | None) -> None:
        """Whoever waits does so in vain."""
        if self._asked is not None:
            self._end(LinkError(str(error or CLOSED)))

    def _end(self, answer: Any) -> None:
        asked, self._asked = self._asked, None
        if asked is None:  # the next one who asks would take it for theirs
            self._transport.abort()
        elif asked.done():
            pass
        elif isinstance(answer, Exception):
            asked.set_exception(answer)
        else:
            asked.set_result(answer)
