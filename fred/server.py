"""The web server: uvicorn with our protocols, our order of stopping, and certificates that change while it runs.

`python -m fred.server [APPLICATION]` serves the tenant API, or with `FRED_ROLE=admin` the admin site, as the settings
say. SIGTERM and SIGINT stop it, and its exit status is 0 then; SIGHUP reads the certificate again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from uvicorn.config import STARTUP_FAILURE

from fred import limits
from fred.certificates import CertificateError, ListenerTls
from fred.http_protocol import HttpProtocol
from fred.limits import Times
from fred.upgrade import is_events_target
from fred.ws_protocol import WebSocketProtocol

if TYPE_CHECKING:
    from fred.conf import HouseConfig, ProviderConfig

APPLICATION: Final = "fred.asgi:application"
ADMIN_TIMES: Final = Times(read_s=60.0, write_s=75.0)
"""Pages of the admin site may take longer than an answer to a tenant."""
BACKLOG: Final = 2048
HANDSHAKE_S: Final = 5.0
"""Limit of a TLS handshake."""
FAREWELL_S: Final = 2.0
"""How long streams and WebSockets have to end once they are told that the server stops."""
_TICKS_PER_RELOAD: Final = 600  # of a tenth of a second each

logger = logging.getLogger("uvicorn.error")


def opens_nowhere(_: bytes) -> bool:
    """No target opens a WebSocket."""
    return False


class ServerConfig(uvicorn.Config):
    """What is served, where, and within which limits."""

    def __init__(
        self,
        app: Any,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        times: Times = Times(),  # noqa: B008 - frozen
        stop_s: float = 30.0,
        opens_socket: Callable[[bytes], bool] = opens_nowhere,
        tls: ListenerTls | None = None,
    ) -> None:
        """`stop_s`: how long open requests may take when the server stops. An empty host means all interfaces.

        `opens_socket` says of a request target whether a WebSocket may be opened there; everywhere else a request
        that asks for one is answered as if it did not.
        """
        super().__init__(
            app,
            host=host,
            port=port,
            loop="uvloop",
            http=HttpProtocol,
            ws=WebSocketProtocol,
            ws_max_size=limits.MAX_MESSAGE_BYTES,
            ws_per_message_deflate=False,
            ws_ping_interval=None,
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=BACKLOG,
            workers=1,
            reset_contextvars=True,  # a pipelined request would begin with what the one before it left
            ssl_context_factory=(lambda *_: tls) if tls is not None else None,
        )
        self.times = times
        self.stop_s = stop_s
        self.opens_socket = opens_socket
        self.tls = tls


class Server(uvicorn.Server):
    """Serves one application in one process."""

    config: ServerConfig

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, then listen; ends the process when one of them fails."""
        loop = asyncio.get_running_loop()
        self.stopping = asyncio.Event()
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            sys.exit(STARTUP_FAILURE)
        self.lifespan.state[limits.STOPPING] = self.stopping
        tls = self.config.tls
        self.servers = []
        try:
            for listener in sockets or _listeners(self.config.host, self.config.port):
                server = await loop.create_server(
                    self._connection,
                    sock=listener,
                    ssl=tls,
                    ssl_handshake_timeout=HANDSHAKE_S if tls is not None else None,
                    backlog=BACKLOG,
                )
                self.servers.append(server)
        except OSError as error:
            logger.error("cannot listen on %s, port %d: %s", self.config.host, self.config.port, error)  # noqa: TRY400
            await self.lifespan.shutdown()
            sys.exit(STARTUP_FAILURE)
        if threading.current_thread() is threading.main_thread():
            loop.add_signal_handler(signal.SIGHUP, self._reload)
        for server in self.servers:
            for one in server.sockets:
                logger.info("listening on %s", one.getsockname()[:2])
        self.started = True

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second: cut who is late; every minute: look at the certificate's files."""
        self._cut_the_late()
        if counter % _TICKS_PER_RELOAD == 0 and self.config.tls is not None:
            self.config.tls.reload()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept nothing, finish open requests, then end streams and close WebSockets, then the application."""
        logger.info("stopping")
        for server in self.servers:
            server.close()
        for one in sockets or ():
            one.close()
        for connection in self._connections:
            if isinstance(connection, HttpProtocol):
                connection.shutdown()
        await self._until(lambda: not any(one.is_answering for one in self._connections), self.config.stop_s)
        self.stopping.set()
        for connection in self._connections:
            if isinstance(connection, WebSocketProtocol) and connection.handshake_complete:
                connection.go_away()
        await self._until(lambda: not self._connections and not self.server_state.tasks, FAREWELL_S)
        left = len(self.server_state.tasks)
        if left:
            logger.warning("%d requests did not end in time", left)
        for connection in self._connections:
            connection.transport.abort()
        for task in list(self.server_state.tasks):
            task.cancel()
        await self._until(lambda: not self.server_state.tasks, FAREWELL_S)
        await self.lifespan.shutdown()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take signals for the wish to stop. One that was met is over: uvicorn would end the process by it now."""
        with super().capture_signals():
            yield
            if not self.force_exit:
                self._captured_signals.clear()

    @property
    def _connections(self) -> Sequence[HttpProtocol | WebSocketProtocol]:
        return list(self.server_state.connections)  # type: ignore[arg-type]

    def _connection(self) -> HttpProtocol:
        return HttpProtocol(self.config, self.server_state, self.lifespan.state)

    def _cut_the_late(self) -> None:
        now = asyncio.get_running_loop().time()
        for connection in self._connections:
            connection.tick(now)

    async def _until(self, met: Callable[[], bool], seconds: float) -> None:
        """Wait so long at most, not at all after a second SIGINT; time limits go on."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while not met() and not self.force_exit and loop.time() < until:
            self._cut_the_late()
            await asyncio.sleep(0.02)

    def _reload(self) -> None:
        if self.config.tls is not None:
            self.config.tls.reload(always=True)


def of_settings(provider: ProviderConfig, house: HouseConfig, *, app: Any = APPLICATION) -> Server:
    """The server that these settings describe. Raises CertificateError for a pair that does not load."""
    if house.fred_role == "admin":
        from fred.conf.values import split_host_port  # noqa: PLC0415

        host, port = split_host_port(house.fred_admin_listen_addr)
        return Server(ServerConfig(app, host=host, port=port, times=ADMIN_TIMES, stop_s=_stop_s(provider)))
    host, port = provider.api_address
    times = Times(
        read_s=provider.http_read_timeout.total_seconds(),
        write_s=provider.http_write_timeout.total_seconds(),
        idle_s=provider.http_idle_timeout.total_seconds(),
    )
    tls = ListenerTls.of(provider.tls_cert_file, provider.tls_key_file) if provider.tls_cert_file else None
    return Server(
        ServerConfig(
            app,
            host=host,
            port=port,
            times=times,
            stop_s=_stop_s(provider),
            opens_socket=is_events_target,
            tls=tls,
        )
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until a signal; ends with 1 where the certificate does not load, with 3 where nobody can listen.

    A thread that still waits for something once everything was stopped holds up the process's end for a moment only.
    """
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fred.settings")
    from django.conf import settings  # noqa: PLC0415 - only a process that serves has them

    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        server = of_settings(settings.FRED, settings.HOUSE, app=words[0] if words else APPLICATION)
    except CertificateError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(1) from None
    server.run()
    end = threading.Timer(FAREWELL_S, os._exit, [0])
    end.daemon = True
    end.start()


def _stop_s(provider: ProviderConfig) -> float:
    return provider.shutdown_timeout.total_seconds()


def _listeners(host: str, port: int) -> list[socket.socket]:
    """Bound sockets: one for a host, for an empty host one for each generation of IP that this machine has."""
    if host:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return [socket.create_server((host, port), family=family, backlog=BACKLOG)]
    found = [socket.create_server(("", port), backlog=BACKLOG)]
    if socket.has_ipv6:
        try:
            port = found[0].getsockname()[1]
            found.append(socket.create_server(("::", port), family=socket.AF_INET6, backlog=BACKLOG))
        except OSError as error:
            logger.info("no IPv6 here: %s", error)
    return found


if __name__ == "__main__":
    main()
