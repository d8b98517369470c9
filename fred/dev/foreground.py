"""A server program in the foreground of this process: started with a deadline, ended with its parent."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import socket
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Self

from fred.dev import binaries, children

if TYPE_CHECKING:
    import subprocess
    from types import TracebackType

READY_WITHIN = 60.0
"""Seconds that a server has to answer its first question."""
START_ATTEMPTS = 3
"""A free port can be taken by another between the choice and the server's bind: so many tries."""
POLL_SECONDS = 0.02
FREE_PORT_TRIES = 100
LOWEST_FREE_PORT = 11_000
"""Below stand the usual ports of `dev`."""
ROOM_ABOVE = 16_000
OUTGOING_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")


class ServerStartError(RuntimeError):
    """A server did not become ready; the message ends with its log's last lines."""


class ForegroundServer(ABC):
    """What both servers share: a folder, a child, a port, a start with a deadline, a clean stop."""

    name: str
    """The server's name in logs and file names."""
    stop_signals: tuple[tuple[signal.Signals, float], ...]
    death_signal: signal.Signals

    def __init__(self, folder: Path, *, port: int | None = None) -> None:
        """Name the folder that keeps data and log; None as port means a free one at each start."""
        self.folder = folder
        self.port = port or 0
        self._wanted_port = port
        self._process: subprocess.Popen[bytes] | None = None
        self.log = folder / f"{self.name}.log"
        self.account = children.unprivileged_account()

    @property
    @abstractmethod
    def url(self) -> str:
        """Where clients connect."""

    @property
    def pid(self) -> int:
        """The running server's process id; 0 when it doesn't run."""
        return self._process.pid if self._process else 0

    def __enter__(self) -> Self:
        """Start and return when the server answers; raises ServerStartError."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop cleanly."""
        self.stop()

    def start(self) -> None:
        """Start on the wanted port or a free one; return when the server answers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        private = self._prepare()
        for attempt in range(1, START_ATTEMPTS + 1):
            self.port = self._wanted_port or free_port()
            process = children.spawn(
                self._command(private),
                self.log,
                account=self.account,
                death_signal=self.death_signal,
                folder=private,
                environment={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
            )
            if self._wait_until_ready(process):
                self._process = process
                self._after_start()
                return
            children.stop(process, signals=((signal.SIGKILL, 5.0),))
            if self._wanted_port or attempt == START_ATTEMPTS:
                break
        message = (
            f"{self.name} did not start on port {self.port}; its log {self.log} ends with:\n{children.tail(self.log)}"
        )
        raise ServerStartError(message)

    def restart(self) -> None:
        """Start again after an end that nobody asked for, on the same port: clients find it where it was."""
        self.stop()
        wanted, self._wanted_port = self._wanted_port, self.port
        try:
            self.start()
        finally:
            self._wanted_port = wanted

    def stop(self) -> None:
        """Stop cleanly; a second call does nothing."""
        process, self._process = self._process, None
        if process is not None:
            children.stop(process, signals=self.stop_signals)

    def poll(self) -> int | None:
        """The exit status when the server has ended on its own, else None."""
        return self._process.poll() if self._process else None

    def wipe(self) -> None:
        """Delete the server's data, wherever it lies; only while it is stopped."""
        elsewhere = self._elsewhere()
        if elsewhere is not None:
            shutil.rmtree(elsewhere, ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _private_folder(self) -> Path:
        """A folder that only the server's account can read, and can reach.

        Usually `folder` itself. For root below a closed parent it is one under the system's temporary folder, noted
        in `folder` so that the next start finds its data again.
        """
        if self.account is None or binaries.can_enter(self.folder.parent, self.account):
            private = self.folder / "private"
            private.mkdir(mode=0o700, exist_ok=True)
        else:
            known = self._elsewhere()
            if known is None:
                known = Path(tempfile.mkdtemp(prefix=f"fred-{self.name}-"))
                (self.folder / "elsewhere").write_text(str(known))
            private = known
        if self.account is not None:
            if private.stat().st_uid != self.account.uid:
                binaries.give(private, self.account)  # with what a server wrote there when it ran as somebody else
            if private.parent == self.folder:
                self.folder.chmod(0o711)
        return private

    def _elsewhere(self) -> Path | None:
        try:
            noted = Path((self.folder / "elsewhere").read_text())
            owner = noted.lstat().st_uid
        except OSError:
            return None
        owned = owner in {0, self.account.uid if self.account else os.geteuid()}
        return noted if owned and noted.is_dir() and not noted.is_symlink() else None

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> bool:
        pause = threading.Event()
        deadline = time.monotonic() + READY_WITHIN
        while time.monotonic() < deadline:
            if process.poll() is not None:
                return False
            if self._answers():
                return True
            pause.wait(POLL_SECONDS)
        return False

    @abstractmethod
    def _prepare(self) -> Path:
        """Make what the server needs before it starts; return its private folder."""

    @abstractmethod
    def _command(self, private: Path) -> list[str | Path]:
        """The program and its arguments."""

    @abstractmethod
    def _answers(self) -> bool:
        """Whether the server answers a question now."""

    @abstractmethod
    def _after_start(self) -> None:
        """Do what is left to do once the server answers."""


def free_port() -> int:
    """A TCP port of the loopback interface that nobody listens on at this moment.

    It lies below the ports that the kernel gives to outgoing connections, where there is room: one of those could
    take it before its server is up.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        for _ in range(FREE_PORT_TRIES):
            try:
                probe.bind(("127.0.0.1", _lasting_port()))
                break
            except OSError as error:
                if error.errno not in {errno.EADDRINUSE, errno.EACCES}:
                    raise
        else:
            probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _lasting_port() -> int:
    """Any port below those of outgoing connections; 0, the kernel's choice, where too few are left."""
    try:
        first_outgoing = int(OUTGOING_PORTS.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0
    return random.SystemRandom().randrange(LOWEST_FREE_PORT, first_outgoing) if first_outgoing > ROOM_ABOVE else 0
