"""A client that keeps many connections busy with requests made beforehand, at little cost of its own."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import cast

import uvloop


@dataclass(slots=True)
class Answers:
    """What came back: how many of each status, and the seconds that each call took."""

    statuses: Counter[int] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    elapsed: float = 0.0


class CallError(RuntimeError):
    """The server went away, or was too slow."""


def call(host: str, ports: Sequence[int], requests: Sequence[bytes], *, connections: int, within: float) -> Answers:
    """Send every request once, each connection one after the other; raises CallError after `within` seconds.

    The connections are shared out over the ports.
    """
    return uvloop.run(_call(host, ports, requests, connections, within))


async def _call(host: str, ports: Sequence[int], requests: Sequence[bytes], connections: int, within: float) -> Answers:
    loop = asyncio.get_running_loop()
    answers, left = Answers(), deque(requests)
    done: asyncio.Future[None] = loop.create_future()
    clients = [_Client(left, answers, len(requests), done) for _ in range(min(connections, len(requests)))]
    for number, client in enumerate(clients):
        await loop.create_connection(partial(_itself, client), host, ports[number % len(ports)])
    started = time.perf_counter()
    for client in clients:
        client.send()
    try:
        await asyncio.wait_for(done, within)
    except TimeoutError:
        raise CallError(f"{len(answers.seconds)} of {len(requests)} calls answered in {within:g} s") from None
    finally:
        for client in clients:
            client.close()
    answers.elapsed = time.perf_counter() - started
    return answers


class _Client(asyncio.Protocol):
    """One connection: sends, waits for the whole answer, sends again."""

    def __init__(self, left: deque[bytes], answers: Answers, total: int, done: asyncio.Future[None]) -> None:
        self._left, self._answers, self._total, self._done = left, answers, total, done
        self._transport: asyncio.Transport | None = None
        self._got = b""
        self._at = 0.0
        self._closing = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own type, which only behaves like it

    def send(self) -> None:
        """Send what is next, if anything is left."""
        if self._left and self._transport is not None:
            self._at = time.perf_counter()
            self._transport.write(self._left.popleft())

    def data_received(self, data: bytes) -> None:
        got = self._got + data if self._got else data
        head, found, rest = got.partition(b"\r\n\r\n")
        if not found or len(rest) < _length(head):
            self._got = got
            return
        self._got = b""
        self._answers.seconds.append(time.perf_counter() - self._at)
        self._answers.statuses[int(head[9:12])] += 1
        if len(self._answers.seconds) >= self._total:
            if not self._done.done():
                self._done.set_result(None)
            return
        self.send()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._closing and not self._done.done():
            self._done.set_exception(CallError(f"the server closed a connection: {exc}"))

    def close(self) -> None:
        """Hang up."""
        self._closing = True
        if self._transport is not None:
            self._transport.close()


def _itself(client: _Client) -> _Client:
    return client


def _length(head: bytes) -> int:
    _, found, rest = head.lower().partition(b"\r\ncontent-length:")
    return int(rest.partition(b"\r\n")[0]) if found else 0
