"""A backend on loopback that answers each request as the test says, also with silence, a reset or half an answer."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

MISSING = 404, b'{"error":"not provisioned"}'


@dataclass(frozen=True)
class Seen:
    """One request as it came."""

    route: str
    lease: str
    body: Any
    headers: dict[str, str]


class Hang:
    """No answer until the test lets go, then this one."""

    def __init__(self, status: int = 202, body: bytes = b"{}") -> None:
        self.answer = status, body
        self.loop: asyncio.AbstractEventLoop | None = None
        self._released = asyncio.Event()

    def release(self) -> None:
        """Answer now, and at once from now on."""
        if self.loop is None:
            self._released.set()
        else:
            self.loop.call_soon_threadsafe(self._released.set)

    async def wait(self) -> None:
        """Wait for `release`."""
        self.loop = asyncio.get_running_loop()
        await self._released.wait()


class Reset:
    """The connection is reset once the request was read."""


class Broken:
    """Half of an answer, then the end of the connection."""


Answer = tuple[int, bytes] | Hang | type[Reset] | type[Broken]


class ScriptedBackend:
    """Answers 202 to provisions, 404 to point reads, 200 to deprovisions, unless a script says otherwise.

    `script[route]` or `script[route, lease]` is a list of answers, used up one by one; `always` are the last resort.
    Routes are "provision", "read", "deprovision", and "stats" and other paths, which answer 404 unless scripted.
    """

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.script: dict[Any, deque[Answer]] = defaultdict(deque)
        self.always: dict[str, Answer] = {
            "provision": (202, b'{"provision_id":"x"}'),
            "read": MISSING,
            "deprovision": (200, b'{"status":"ok"}'),
        }
        self.on_request: Callable[[Seen], None] | None = None
        self.url = ""
        self.in_flight = 0
        self.most_in_flight = 0
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._tasks: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop)
        self._thread.join(10)

    def routes(self, lease: object = None) -> list[str]:
        """The routes asked so far, of one lease or of all."""
        return [one.route for one in list(self.seen) if lease is None or one.lease == str(lease)]

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=1024))
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*asyncio.all_tasks(self._loop), return_exceptions=True))
        self._loop.close()

    def _stop(self) -> None:
        self._loop.stop()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the peer went, or the test is over
        finally:
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *lines = head.split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (one.partition(":") for one in lines if one)}
        raw = await reader.readexactly(int(headers.get("content-length", "0")))
        seen = self._note(line, raw, headers)
        self.in_flight += 1
        self.most_in_flight = max(self.in_flight, self.most_in_flight)
        try:
            return await self._answer(seen, writer)
        finally:
            self.in_flight -= 1

    def _note(self, line: str, raw: bytes, headers: dict[str, str]) -> Seen:
        _method, path, _ = line.split(" ")
        body = json.loads(raw) if raw else None
        if path.startswith("/provisions/"):
            seen = Seen("read", path.rpartition("/")[2], body, headers)
        else:
            seen = Seen(path.partition("?")[0].strip("/"), (body or {}).get("lease_uuid", ""), body, headers)
        self.seen.append(seen)
        if self.on_request is not None:
            self.on_request(seen)
        return seen

    def _pick(self, seen: Seen) -> Answer:
        for key in ((seen.route, seen.lease), seen.route):
            if self.script[key]:
                return self.script[key].popleft()
        return self.always.get(seen.route, MISSING)

    async def _answer(self, seen: Seen, writer: asyncio.StreamWriter) -> bool:
        answer = self._pick(seen)
        if isinstance(answer, Hang):
            await answer.wait()
            answer = answer.answer
        if answer is Reset:
            handle = writer.get_extra_info("socket")
            handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
            return False
        if answer is Broken:
            writer.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 100\r\n\r\n{")
            await writer.drain()
            return False
        status, body = answer
        writer.write(
            b"HTTP/1.1 %d X\r\nContent-Length: %d\r\nContent-Type: application/json\r\n\r\n%b"
            % (status, len(body), body)
        )
        await writer.drain()
        return True


def row(lease: object, *, status: str = "provisioning", **fields: object) -> tuple[int, bytes]:
    """The answer of a point read that finds something."""
    return 200, json.dumps(
        {"lease_uuid": str(lease), "status": status, "created_at": "2026-01-01T00:00:00Z", **fields}
    ).encode()
