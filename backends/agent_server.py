"""An HTTP/1.1 server for one ASGI application: what an agent needs and no more, so that it is quick.

A request whose body came with its head starts the application without waiting, and without a task if the application
says `starts_eagerly`. An application may cut the connection with `scope["extensions"]["agent.cut"]()`.
"""

import asyncio
import signal
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog

from backends import agent_eager
from backends.agent_connection import Connection, Exchange
from backends.agent_tls import ServerTls

log = structlog.get_logger(__name__)

_RELOAD_SECONDS = 60.0
_FAREWELL_SECONDS = 0.3


@dataclass(eq=False)
class AgentServer:
    """Serves one application.

    Times are in seconds: `read_timeout` for a whole request, `write_timeout` for what the client does not take,
    `idle_timeout` between requests, `grace` for open requests when it is told to stop.
    """

    app: Any
    host: str = "127.0.0.1"
    port: int = 0
    tls: ServerTls | None = None
    read_timeout: float = 15.0
    write_timeout: float = 15.0
    idle_timeout: float = 60.0
    grace: float = 10.0
    loop: asyncio.AbstractEventLoop = field(init=False)

    def __post_init__(self) -> None:
        """A server that does not listen yet."""
        self.connections: set[Connection] = set()
        self.is_stopping = False
        self.started = False
        self._is_eager = bool(getattr(self.app, "starts_eagerly", False))
        self._tasks: set[asyncio.Task[Any]] = set()
        self._stops = 0

    async def serve(self, sockets: Sequence[socket.socket] = ()) -> bool:
        """Serve until `stop`; returns whether the application could start. Raises OSError where it can't listen."""
        self.loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self.gone = asyncio.Event()
        self._life: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        said: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        life = self.loop.create_task(self.app({"type": "lifespan"}, self._life.get, said.put))
        await self._life.put({"type": "lifespan.startup"})
        if (await said.get())["type"] != "lifespan.startup.complete":
            await life
            return False
        listening = []
        try:
            named: list[dict[str, Any]] = [{"sock": one} for one in sockets] or [{"host": self.host, "port": self.port}]
            for where in named:
                server = await self.loop.create_server(
                    lambda: Connection(self), ssl=self.tls, backlog=2048, reuse_address=True, **where
                )
                listening.append(server)
            self.started = True
            await self._watch()
        finally:
            self.is_stopping = True
            for server in listening:
                server.close()
            await self._drain()
            await self._life.put({"type": "lifespan.shutdown"})
            await said.get()
            await life
        return True

    def stop(self) -> None:
        """Take no more; a second call does not wait for open requests. From the loop's thread."""
        self._stops += 1
        if self._stops > 1:
            self.grace = 0.0
        self._stop.set()

    def handle_signals(self) -> None:
        """SIGTERM and SIGINT stop, SIGHUP reads the certificates again. Inside the loop, before `serve`."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        if self.tls is not None:
            loop.add_signal_handler(signal.SIGHUP, lambda tls: tls.reload(always=True), self.tls)

    def forget(self, connection: Connection) -> None:
        """It is gone."""
        self.connections.discard(connection)
        if not self.connections:
            self.gone.set()

    def run(self, one: Exchange) -> None:
        """Let the application answer."""
        answer = self._answer(one)
        task = agent_eager.run(answer) if self._is_eager else self.loop.create_task(answer)
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _answer(self, one: Exchange) -> None:
        try:
            await self.app(one.scope, one.receive, one.send)
        except Exception:
            log.exception("agent.answer_failed")
        if not one.sent and not one.connection.is_gone:
            one.connection.cut()

    async def _watch(self) -> None:
        reload_at = self.loop.time() + _RELOAD_SECONDS
        while not self._stop.is_set():
            moment = self.loop.time()
            for connection in [one for one in self.connections if 0 < one.deadline < moment]:
                connection.transport.close()
            if self.tls is not None and moment >= reload_at:
                self.tls.reload()
                reload_at = moment + _RELOAD_SECONDS
            wait = self.loop.create_task(self._stop.wait())
            await asyncio.wait({wait}, timeout=1.0)
            wait.cancel()

    async def _drain(self) -> None:
        end = self.loop.time() + self.grace
        for connection in [one for one in self.connections if one.is_idle]:
            connection.transport.close()
        while self._tasks and self.loop.time() < end:
            await asyncio.wait(set(self._tasks), timeout=min(0.5, max(0.0, end - self.loop.time())))
            end = min(end, self.loop.time() + self.grace)
        for connection in list(self.connections):
            connection.transport.close()
        await self._until_gone(_FAREWELL_SECONDS)  # answers leave; over TLS the client may say goodbye
        for connection in list(self.connections):
            connection.cut()
        for task in list(self._tasks):
            task.cancel()
        await self._until_gone(_FAREWELL_SECONDS)

    async def _until_gone(self, seconds: float) -> None:
        if self.connections:
            self.gone.clear()
            wait = self.loop.create_task(self.gone.wait())
            await asyncio.wait({wait}, timeout=seconds)
            wait.cancel()
