"""Who listens where, and what to say when somebody else already does."""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psutil

from fred.dev.foreground import free_port

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Listener:
    """One listening socket of `dev`."""

    name: str
    default: int
    meaning: str

    @property
    def option(self) -> str:
        """The option that moves it."""
        return f"--{self.name}-port"

    @property
    def argument(self) -> str:
        """The same as an attribute of parsed arguments."""
        return f"{self.name.replace('-', '_')}_port"


LISTENERS = (
    Listener("api", 8080, "tenant API"),
    Listener("admin", 8081, "admin site"),
    Listener("agent", 9000, "mock agent"),
    Listener("chain-grpc", 9090, "simulated chain, gRPC"),
    Listener("chain-rpc", 26657, "simulated chain, RPC and WebSocket"),
    Listener("chain-rest", 1317, "simulated chain, REST"),
    Listener("chain-admin", 26670, "simulated chain, admin API"),
)


class PortTakenError(RuntimeError):
    """Another process listens on a port that `dev` needs; the message names it and the way out."""


def choose(wanted: Mapping[str, int], *, free: bool) -> dict[str, int]:
    """A port for each listener: the one asked for, else its usual one, or with `free` any free one.

    0 asks for a free one. Raises PortTakenError naming every port that is taken.
    """
    chosen: dict[str, int] = {}
    taken: list[str] = []
    for listener in LISTENERS:
        port = wanted.get(listener.name, 0 if free else listener.default)
        if port == 0:
            port = free_port()
            while port in chosen.values():
                port = free_port()
        elif not can_listen(port):
            taken.append(
                f"  {port} ({listener.meaning}) is taken{_by_whom(port)}; choose another: {listener.option} PORT"
            )
        chosen[listener.name] = port
    if taken:
        raise PortTakenError("\n".join(["these ports are needed:", *taken, "or let --free-ports choose all of them"]))
    return chosen


def can_listen(port: int) -> bool:
    """Whether a server could listen on this loopback port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            if error.errno in {errno.EADDRINUSE, errno.EACCES}:
                return False
            raise
        return True


def _by_whom(port: int) -> str:
    try:
        for connection in psutil.net_connections("inet"):
            address: Any = connection.laddr
            if connection.status == psutil.CONN_LISTEN and address.port == port and connection.pid:
                return f" by {psutil.Process(connection.pid).name()} (process {connection.pid})"
    except psutil.Error:
        return ""
    return ""
