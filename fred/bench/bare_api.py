"""The least that may answer a tenant: an ASGI application that verifies the token, asks the database and the agent.

No framework and no check but the token's: one statement for the lease, for `connection` the insert of the used token,
one signed GET to the agent over kept connections, one JSON body. Served by the same server as the real one.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final, cast
from uuid import UUID

import orjson
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from fred import signing
from tenants_api import tokens

DATABASE: Final = "FRED_BENCH_DATABASE"
AGENT_PORT: Final = "FRED_BENCH_AGENT_PORT"
SECRET: Final = "FRED_BENCH_SECRET"  # noqa: S105 - the name of a variable
CONNECTIONS: Final = 8
"""To the database: as many as the real one has."""

_JSON: Final = (b"content-type", b"application/json")
_LEASE: Final = "SELECT tenant, provider_uuid, chain_state, meta_hash FROM leases_lease WHERE uuid = %s"
_SPEND: Final = "INSERT INTO tenants_api_usedtoken (key, expires_at) VALUES (%s, %s) ON CONFLICT DO NOTHING"
_READS: Final = {"status": "/provisions/", "connection": "/info/"}

_Pool = AsyncConnectionPool[AsyncConnection[tuple[Any, ...]]]


async def app(
    scope: MutableMapping[str, Any],
    receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
    send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
) -> None:
    """Answer `/v1/leases/<lease>/status` and `/connection`; 401 to whoever has no good token."""
    if scope["type"] != "http":
        return
    await receive()
    status, body = await _answer(scope)
    headers = [_JSON, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _answer(scope: MutableMapping[str, Any]) -> tuple[int, bytes]:
    header = next((value for key, value in scope["headers"] if key == b"authorization"), b"")
    try:
        token = tokens.access_token(tokens.bearer(header.decode("latin-1")), prefix="manifest", now=time.time())
    except tokens.InvalidToken:
        return 401, b"{}"
    lease, route = scope["path"].split("/")[3:5]
    pool = await _pool()
    async with pool.connection() as connection:
        if route == "connection":
            until = datetime.fromtimestamp(token.spent_until, UTC)
            if (await connection.execute(_SPEND, [token.replay_key, until], prepare=True)).rowcount == 0:
                return 401, b"{}"
        row = await (await connection.execute(_LEASE, [UUID(lease)], prepare=True)).fetchone()
    if row is None or row[0] != token.tenant or lease != token.lease_uuid:
        return 403, b"{}"
    status, found = await _agent().get(_READS[route] + lease)
    if status != 200:
        return status, b"{}"
    said = {"lease_uuid": lease, "tenant": row[0], "provider_uuid": str(row[1]), "state": row[2], route: found}
    return 200, orjson.dumps(said)


_opening = asyncio.Lock()


async def _pool() -> _Pool:
    pool = _make_pool()
    if pool.closed:
        async with _opening:
            await pool.open(wait=True)
    return pool


@cache
def _make_pool() -> _Pool:
    return AsyncConnectionPool(
        os.environ[DATABASE],
        min_size=CONNECTIONS,
        max_size=CONNECTIONS,
        open=False,
        kwargs={"autocommit": True},
        connection_class=AsyncConnection[tuple[Any, ...]],
    )


@cache
def _agent() -> _Agent:
    return _Agent(int(os.environ[AGENT_PORT]), os.environ[SECRET])


@dataclass(slots=True)
class _Agent:
    """Signed GETs to the agent; a connection serves one at a time and is kept for the next."""

    port: int
    secret: str
    _idle: deque[_Exchange] = field(default_factory=deque)

    async def get(self, path: str) -> tuple[int, Any]:
        """The status and the decoded body of one answer."""
        exchange = self._idle.pop() if self._idle else await self._connect()
        signature = signing.sign(self.secret, timestamp=int(time.time()), method="GET", target=path, body=b"")
        request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n{signing.HEADER}: {signature}\r\n\r\n"
        status, body = await exchange.ask(request.encode())
        self._idle.append(exchange)
        return status, orjson.loads(body)

    async def _connect(self) -> _Exchange:
        _, exchange = await asyncio.get_running_loop().create_connection(_Exchange, "127.0.0.1", self.port)
        return exchange


class _Exchange(asyncio.Protocol):
    """One connection to the agent; its answers all say how long they are."""

    def __init__(self) -> None:
        self._got = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own type, which only behaves like it

    def ask(self, request: bytes) -> asyncio.Future[tuple[int, bytes]]:
        """Send a request; the future has the status and the body."""
        self._answer: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()
        self._got = b""
        self._transport.write(request)
        return self._answer

    def data_received(self, data: bytes) -> None:
        self._got += data
        head, found, rest = self._got.partition(b"\r\n\r\n")
        if not found:
            return
        _, _, length = head.lower().partition(b"\r\ncontent-length:")
        if len(rest) >= int(length.partition(b"\r\n")[0]) and not self._answer.done():
            self._answer.set_result((int(head[9:12]), rest))

    def connection_lost(self, exc: Exception | None) -> None:
        answer = getattr(self, "_answer", None)
        if answer is not None and not answer.done():
            answer.set_exception(exc or ConnectionResetError("the agent closed the connection"))
