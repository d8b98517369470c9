"""Token buckets for an event loop, which they never block: what is asked for while a script runs goes into the next.

All kinds of a loop share one task with one connection of its own, and go to Valkey together. It ends with its loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import sha1
from typing import Any, Final

from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as LinkError
from redis.exceptions import NoScriptError

from fred import valkey
from fred.buckets import TAKE, Buckets, Draw
from fred.together import Together

_SHA: Final = sha1(TAKE.encode(), usedforsecurity=False).hexdigest()
_Script = tuple[Sequence[str], Sequence[str]]
"""KEYS and ARGV of one run."""


class LoopBuckets(Buckets):
    """Buckets whose tokens a loop takes by `await`, and threads as ever; in the same Valkey as all others."""

    def __init__(self, kind: str, *, url: Callable[[], str] = valkey.url, **limits: Any) -> None:
        """`url` of Valkey, asked for at each connection; `limits` as of `Buckets`."""
        super().__init__(kind, **limits)
        self._draws = _draws(url)

    async def take_soon(self, key: str) -> Draw:
        """Take a token. Waits 200 ms at the longest."""
        return await self._draws.ask((self, key))

    async def close(self) -> None:
        """End the task and its connection; whoever else asks begins anew."""
        await self._draws.close()

    def script(self, keys: Sequence[str]) -> _Script | None:
        """What takes a token for each of these keys; None while nobody asks Valkey."""
        return None if self._is_quiet() else self._arguments(keys)

    def drawn(self, answer: Any) -> list[Draw]:
        """What that brought."""
        return self._answers(answer)

    def drawn_here(self, keys: Sequence[str], error: Exception | None) -> list[Draw]:
        """A token for each of these keys from our own buckets; an error of Valkey's keeps everybody from it a while."""
        if error is not None:
            self._be_quiet(error)
        return self._from_own(keys)


@lru_cache(maxsize=8)
def _draws(url: Callable[[], str]) -> Together[tuple[LoopBuckets, str], Draw]:
    return Together(lambda: _Draws(_Link(url)))


class _Draws:
    """Draws of one loop, over a connection of its own."""

    def __init__(self, link: _Link) -> None:
        self._link = link

    async def answer(self, asked: Sequence[tuple[LoopBuckets, str]], /) -> list[Draw]:
        kinds: dict[LoopBuckets, list[str]] = {}
        for buckets, key in asked:
            kinds.setdefault(buckets, []).append(key)
        scripts = {buckets: script for buckets, keys in kinds.items() if (script := buckets.script(keys))}
        error: Exception | None = None
        found: dict[LoopBuckets, Any] = {}
        if scripts:
            try:
                async with asyncio.timeout(valkey.LIMIT_S):
                    found = dict(zip(scripts, await self._link.run(list(scripts.values())), strict=True))
            except Exception as reason:  # noqa: BLE001 - all who wait in this batch must get a draw
                error = reason
                await self._link.close()
        draws = {
            buckets: iter(
                buckets.drawn(found[buckets])
                if buckets in found
                else buckets.drawn_here(keys, error if buckets in scripts else None)
            )
            for buckets, keys in kinds.items()
        }
        return [next(draws[buckets]) for buckets, _ in asked]

    async def close(self) -> None:
        await self._link.close()


class _Link:
    """One connection to Valkey, made when it is needed."""

    def __init__(self, url: Callable[[], str]) -> None:
        self._url = url
        self._redis: Redis | None = None
        self._connection: AbstractConnection | None = None

    async def run(self, scripts: Sequence[_Script]) -> list[Any]:
        """The answer of each run. A connection that broke since its last use is made anew, once."""
        was_open = self._connection is not None
        try:
            return await self._ask(scripts)
        except LinkError:
            await self.close()
            if not was_open:
                raise
            return await self._ask(scripts)

    async def close(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.disconnect(nowait=True)

    async def _ask(self, scripts: Sequence[_Script]) -> list[Any]:
        connection = self._connection or await self._connect()
        arguments = [(str(len(names)), *names, *limits) for names, limits in scripts]
        await connection.send_packed_command(b"".join([_packed("EVALSHA", _SHA, *one) for one in arguments]))
        answers = [await self._answer(connection) for _ in scripts]
        for number, answer in enumerate(answers):
            if isinstance(answer, NoScriptError):
                await connection.send_packed_command(_packed("EVAL", TAKE, *arguments[number]))
                answers[number] = await connection.read_response()
        return answers

    async def _answer(self, connection: AbstractConnection) -> Any:
        try:
            return await connection.read_response()
        except NoScriptError as unknown:  # the other answers come all the same
            return unknown

    async def _connect(self) -> AbstractConnection:
        if self._redis is None:
            self._redis = Redis.from_url(
                self._url(),
                socket_timeout=None,  # the caller has a limit for all of it
                socket_connect_timeout=valkey.LIMIT_S,
                retry=Retry(NoBackoff(), 0),
            )
        connection: AbstractConnection = self._redis.connection_pool.make_connection()  # type: ignore[no-untyped-call]
        self._connection = connection
        await connection.connect()  # type: ignore[no-untyped-call]
        return connection


def _packed(*words: str) -> bytes:
    """A command on the wire; the library's own way costs more than the rest of a draw."""
    encoded = [word.encode() for word in words]
    return b"*%d\r\n" % len(encoded) + b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in encoded])
