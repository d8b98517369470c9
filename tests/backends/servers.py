"""Loopback peers for tests: one that says exactly these bytes, and a served agent."""

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from uuid import UUID

import uvloop

from backends.agent import Agent
from backends.agent_server import AgentServer
from backends.agent_tls import ServerTls, TlsFiles
from backends.client import BackendTarget
from backends.contract import LeaseItem, ProvisionSpec
from backends.mock.driver import MockBackend, MockSettings
from backends.outbox import Outbox
from tests.waiting import wait_until

SECRET = "0123456789abcdef0123456789abcdef"
LEASE = UUID("0199c1d2-3e4f-7a5b-8c6d-7e8f90a1b2c3")
PROVIDER = UUID("01987000-aaaa-7bbb-8ccc-ddddeeeeffff")


def uuid_number(number: int) -> UUID:
    return UUID(int=(0x0199C1D2 << 96) | number)


@dataclass(frozen=True)
class Got:
    """One received request."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


def answer(status: int, body: bytes = b"", *, headers: str = "") -> bytes:
    """The bytes of a response."""
    head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
    return head.encode() + body


Script = Callable[[Got], "bytes | None"]


@dataclass
class Peer:
    """A server that answers as its script says; None closes the connection without a word."""

    script: Script = field(default=lambda _got: answer(200, b"{}"))

    def __post_init__(self) -> None:
        self.got: list[Got] = []
        self.connections = 0
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except (OSError, ValueError):
                return
            self.connections += 1
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as reader:
            try:
                while line := reader.readline():
                    method, target, _ = line.decode().split()
                    headers = {}
                    while (line := reader.readline().strip()) != b"":
                        name, _, value = line.decode().partition(":")
                        headers[name.lower()] = value.strip()
                    body = reader.read(int(headers.get("content-length", "0")))
                    got = Got(method, target, headers, body)
                    self.got.append(got)
                    said = self.script(got)
                    if said is None:
                        connection.shutdown(socket.SHUT_RDWR)
                        return
                    connection.sendall(said)
            except (OSError, ValueError):
                return

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._open:
            connection.close()


@contextmanager
def peer(script: Script | None = None) -> Iterator[Peer]:
    """A running `Peer`."""
    running = Peer(script) if script is not None else Peer()
    try:
        yield running
    finally:
        running.close()


def says(status: int, body: bytes | object = b"", *, headers: str = "") -> Script:
    """A script with one answer; what is not bytes is sent as JSON."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return lambda _got: answer(status, raw, headers=headers)


@contextmanager
def served(agent: object, *, files: TlsFiles | None = None, **times: float) -> Iterator[str]:
    """The address of this agent, served by a thread as the command does; with TLS files over HTTPS."""
    listener = socket.create_server(("127.0.0.1", 0))
    tls = ServerTls.of(files, agent.metrics) if files is not None else None
    server = AgentServer(agent, tls=tls, **{"grace": 1.0, **times})

    def run() -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(server.serve([listener]))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        wait_until(lambda: server.started or not thread.is_alive())
        assert server.started, "the agent did not start"
        scheme = "https" if files is not None else "http"
        yield f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        if thread.is_alive():
            server.loop.call_soon_threadsafe(server.stop)
        thread.join(10)
        listener.close()


def mock_agent(*, outbox: dict[str, object] | None = None, store=None, **settings: object) -> Agent:
    """A mock agent in memory."""
    driver = MockBackend(MockSettings(**settings), store)
    box = Outbox(name="mock-backend", secret=SECRET, store=store, **(outbox or {}))
    return Agent(driver, box, (SECRET,), starts_eagerly=True)


def target(url: str, **changes: object) -> BackendTarget:
    """A target for this address, with the shared test key."""
    return BackendTarget(**{"name": "b1", "url": url, "secret": SECRET, "timeout": 5.0, **changes})


def spec(
    lease: UUID = LEASE, *, callback_url: str = "http://127.0.0.1:9/callbacks/provision", **changes
) -> ProvisionSpec:
    """A provision of one unnamed item."""
    fields = {"tenant": "manifest1tenant", "provider_uuid": PROVIDER, "items": (LeaseItem("sku-1", 2),)}
    return ProvisionSpec(lease_uuid=lease, callback_url=callback_url, **{**fields, **changes})
