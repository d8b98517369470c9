"""Who listens where, and what to say when somebody else already does."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

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


@dataclass(slots=True)
class Claims:
    """Ports that this house will listen on, kept from every other house of this machine until this is closed.

    Between the choice of a port and the moment its server is up nobody listens there. So the claim is a socket of
    another kind, by the port's number: one process can have it, and the kernel takes it back when that ends.
    """

    _sockets: dict[int, socket.socket] = field(default_factory=dict)

    def __enter__(self) -> Self:
        """Nothing is claimed yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give all claims back."""
        self.close()

    def take(self, port: int) -> bool:
        """Claim a port; False when another house has it."""
        if port in self._sockets:
            return True
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            claim.bind(_claim_of(port))
        except OSError as error:
            claim.close()
            if error.errno == errno.EADDRINUSE:
                return False
            raise
        self._sockets[port] = claim
        return True

    def is_others(self, port: int) -> bool:
        """Whether another house has the claim of this port; claims nothing itself, not even for a moment."""
        if port in self._sockets:
            return False
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
            return asking.connect_ex(_claim_of(port)) == 0

    def close(self) -> None:
        """Give all claims back; a second call does nothing."""
        while self._sockets:
            self._sockets.popitem()[1].close()


def choose(wanted: Mapping[str, int], *, free: bool, claims: Claims | None = None) -> dict[str, int]:
    """A port for each listener: the one asked for, else its usual one, or with `free` any free one.

    0 asks for a free one. What is chosen is claimed, if there are `claims` to do so. Raises PortTakenError naming
    every port that cannot be had; after the first of them nothing more is claimed, so that of two who choose the same
    ports at once one gets them.
    """
    chosen: dict[str, int] = {}
    taken: list[str] = []
    for listener in LISTENERS:
        port = wanted.get(listener.name, 0 if free else listener.default)
        if port == 0:
            port = free_port()
            while port in {*chosen.values(), *wanted.values()} or not (claims is None or claims.take(port)):
                port = free_port()
        elif (why := _why_not(port, chosen, claims, claim=not taken)) is not None:
            taken.append(f"  {port} ({listener.meaning}) {why}; choose another: {listener.option} PORT")
        chosen[listener.name] = port
    if taken:
        raise PortTakenError(_told(taken))
    return chosen


def refuse_taken(chosen: Mapping[str, int]) -> None:
    """Raise PortTakenError when somebody else than this process and those below it listens on one of these ports."""
    ours = {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}
    others = {port: process for port, process in _listening() if process not in ours}
    taken = [
        f"  {port} ({listener.meaning}) is taken{_by(others[port])}; choose another: {listener.option} PORT"
        for listener in LISTENERS
        if (port := chosen[listener.name]) in others
    ]
    if taken:
        raise PortTakenError(_told(taken))


def can_listen(port: int) -> bool:
    """Whether a server could listen on this loopback port now."""
    return _bind_error(port) == 0


def _told(taken: list[str]) -> str:
    return "\n".join(["these ports are needed:", *taken, "or let --free-ports choose all of them"])


def _why_not(port: int, chosen: Mapping[str, int], claims: Claims | None, *, claim: bool) -> str | None:
    """Why a port cannot be had, in words that follow it; None when it can. With `claim` it is claimed."""
    twice = next((listener.meaning for listener in LISTENERS if chosen.get(listener.name) == port), None)
    if twice is not None:
        return f"is also that of the {twice}"
    if claims is not None and (not claims.take(port) if claim else claims.is_others(port)):
        return f"is taken by another `dev`{_of_claim(port)}"
    match _bind_error(port):
        case errno.EACCES:
            return "is one that only root may use"
        case errno.EADDRINUSE:
            return "is taken" + _by(next((process for taken, process in _listening() if taken == port), None))
    return None


def _bind_error(port: int) -> int:
    """The number of the error with which a server could not listen on this port; 0 when it could."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            if error.errno in {errno.EADDRINUSE, errno.EACCES}:
                return error.errno
            raise
        return 0


def _listening() -> Iterator[tuple[int, int | None]]:
    """Ports with a server that loopback connections reach, and its process: None where it may not be known."""
    try:
        found = psutil.net_connections("inet")
    except psutil.Error:
        return
    for connection in found:
        address: Any = connection.laddr
        if connection.status == psutil.CONN_LISTEN and address.ip in {HOST, "0.0.0.0", "::", f"::ffff:{HOST}"}:  # noqa: S104
            yield address.port, connection.pid


def _by(process: int | None) -> str:
    if not process:
        return ""
    try:
        return f" by {psutil.Process(process).name()} (process {process})"
    except psutil.Error:
        return ""


def _claim_of(port: int) -> str:
    """The address of a claim: a name without a file."""
    return f"\0fred-dev-port-{port}"


def _of_claim(port: int) -> str:
    """The process that has the claim, in brackets; empty where it may not be known."""
    shown: Any = _claim_of(port).replace("\0", "@")
    try:
        found = [one.pid for one in psutil.net_connections("unix") if one.laddr == shown and one.pid]
    except psutil.Error:
        return ""
    return f" (process {found[0]})" if found else ""
