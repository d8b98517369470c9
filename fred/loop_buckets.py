"""Token buckets for an event loop, which they never block: what is asked for while a script runs goes into the next.

One task with one connection of its own. It ends with its loop, and closes the connection then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from hashlib import sha1
from typing import Any, Final

import structlog
from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as LinkError
from redis.exceptions import NoScriptError

from fred import valkey
from fred.buckets import TAKE, Buckets, Draw

_MOST_TOGETHER: Final = 200
_SHA: Final = sha1(TAKE.encode(), usedforsecurity=False).hexdigest()

log = structlog.get_logger("fred.buckets")


class LoopBuckets(Buckets):
    """Buckets whose tokens are taken by `await`; in the same Valkey as those of threads."""

    def __init__(self, kind: str, *, url: Callable[[], str] = valkey.url, **limits: Any) -> None:
        """`url` of Valkey, asked for at each connection; `limits` as of `Buckets`."""
        super().__init__(kind, **limits)
        self._url = url
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None

    async def take_soon(self, key: str) -> Draw:
        """Take a token. Waits 200 ms at the longest."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop or self._task is None or self._task.done():
            self._begin(loop)
        future: asyncio.Future[Draw] = loop.create_future()
        self._waiting.append((key, future))
        self._wake.set()
        return await future

    async def close(self) -> None:
        """End the task and its connection."""
        if self._task is not None and self._loop is asyncio.get_running_loop():
            self._task.cancel()
            await asyncio.wait([self._task])

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: list[tuple[str, asyncio.Future[Draw]]] = []
        self._wake = asyncio.Event()
        self._task = loop.create_task(self._work(self._waiting, self._wake))

    async def _work(self, waiting: list[tuple[str, asyncio.Future[Draw]]], wake: asyncio.Event) -> None:
        link = _Link(self._url)
        try:
            while True:
                await wake.wait()
                wake.clear()
                while waiting:
                    batch = waiting[:_MOST_TOGETHER]
                    del waiting[:_MOST_TOGETHER]
                    draws = await self._take(link, [key for key, _ in batch])
                    for (_, future), draw in zip(batch, draws, strict=True):
                        if not future.done():
                            future.set_result(draw)
        finally:
            await link.close()

    async def _take(self, link: _Link, keys: Sequence[str]) -> list[Draw]:
        if not self._is_quiet():
            names, limits = self._arguments(keys)
            try:
                async with asyncio.timeout(valkey.LIMIT_S):
                    return self._answers(await link.run(names, limits))
            except Exception as error:  # noqa: BLE001 - all who wait in this batch must get a draw
                await link.close()
                self._be_quiet(error)
        return self._from_own(keys)


class _Link:
    """One connection to Valkey, made when it is needed."""

    def __init__(self, url: Callable[[], str]) -> None:
        self._url = url
        self._redis: Redis | None = None
        self._connection: AbstractConnection | None = None

    async def run(self, names: Sequence[str], limits: Sequence[str]) -> Any:
        """The script's answer. A connection that broke since its last use is made anew, once."""
        was_open = self._connection is not None
        try:
            return await self._ask(names, limits)
        except LinkError:
            await self.close()
            if not was_open:
                raise
            return await self._ask(names, limits)

    async def close(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.disconnect(nowait=True)

    async def _ask(self, names: Sequence[str], limits: Sequence[str]) -> Any:
        if self._connection is None:
            if self._redis is None:
                self._redis = Redis.from_url(
                    self._url(),
                    socket_timeout=None,  # the caller has a limit for all of it
                    socket_connect_timeout=valkey.LIMIT_S,
                    retry=Retry(NoBackoff(), 0),
                )
            self._connection = self._redis.connection_pool.make_connection()  # type: ignore[no-untyped-call]
            await self._connection.connect()
        arguments = (str(len(names)), *names, *limits)
        try:
            await self._connection.send_packed_command(_packed("EVALSHA", _SHA, *arguments))
            return await self._connection.read_response()
        except NoScriptError:
            await self._connection.send_packed_command(_packed("EVAL", TAKE, *arguments))
            return await self._connection.read_response()


def _packed(*words: str) -> bytes:
    """A command on the wire; the library's own way costs more than the rest of a draw."""
    encoded = [word.encode() for word in words]
    return b"*%d\r\n" % len(encoded) + b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in encoded])
