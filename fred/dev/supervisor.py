"""Child processes kept alive: started, watched, started again with back-off, stopped together."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from fred.dev import children, guardian
from fred.dev.foreground import ForegroundServer

BACKOFF_S = (0.5, 1.0, 2.0, 5.0, 10.0)
"""Waits before a restart; the last one repeats."""
GOOD_LIFE_S = 30.0
"""A child that lived this long starts at the shortest wait again."""
STOP_S = 10.0


class ChildDiedError(RuntimeError):
    """A child ended that cannot simply be started again; the message ends with its log's last lines."""


@dataclass(slots=True)
class Child:
    """One supervised program. `vital`: its end is the end of everything, because its state died with it."""

    name: str
    command: Sequence[str | Path]
    environment: Mapping[str, str]
    log: Path
    vital: bool = False
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    restarts: int = 0
    failures: int = 0
    again_at: float | None = None
    exit_status: int | None = None

    @property
    def pid(self) -> int:
        """Its process id; 0 while it doesn't run."""
        return self.process.pid if self.process and self.again_at is None else 0

    @property
    def state(self) -> str:
        """A few words for people."""
        if self.again_at is not None:
            return f"ended with {self.exit_status}, again in {max(0.0, self.again_at - time.monotonic()):.0f} s"
        return "running" if self.process else "stopped"


@dataclass(slots=True)
class Supervisor:
    """Keeps children and servers alive. All methods belong to the main thread, whose death ends the children."""

    folder: Path
    children: list[Child] = field(default_factory=list)
    servers: list[ForegroundServer] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    patience_s: float = STOP_S
    """How long children may take to end by themselves; with 0 they are killed at once."""
    _guardian: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Start the guardian."""
        self._guardian = subprocess.Popen(
            [sys.executable, "-I", "-S", guardian.__file__], stdin=subprocess.PIPE, process_group=0
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop everything, children before servers."""
        self.stop()

    def serve(self, server: ForegroundServer) -> None:
        """Start a server and keep it alive on the same port."""
        server.start()
        self.servers.append(server)

    def start(self, child: Child) -> Child:
        """Start a child and keep it alive."""
        self.children.append(child)
        self._spawn(child)
        return child

    def run(self, child: Child, *, seconds: float) -> None:
        """Run a child to its end; raises ChildDiedError when that is not a success in time."""
        self._spawn(child)
        assert child.process is not None  # noqa: S101 - just spawned
        try:
            child.process.wait(seconds)
        except subprocess.TimeoutExpired:
            children.stop(child.process)
        self._guard("-", child.process.pid)
        if child.process.returncode != 0:
            raise ChildDiedError(_obituary(child))

    def poll(self) -> None:
        """Look after everything: note what ended, start again what is due. Raises ChildDiedError for a vital child."""
        now = time.monotonic()
        for child in self.children:
            if child.again_at is not None:
                if now >= child.again_at:
                    child.restarts += 1
                    self._spawn(child)
            elif child.process is not None and (status := child.process.poll()) is not None:
                self._bury(child, status)
        for server in self.servers:
            if server.poll() is not None:
                self.notes.append(f"{server.name} ended; it is started again")
                server.restart()

    def end(self, *names: str) -> None:
        """End these children for good; those of other names go on."""
        ending = [child for child in self.children if child.name in names]
        self.children = [child for child in self.children if child.name not in names]
        self._end(ending)

    def stop(self) -> None:
        """Ask all children to end, kill what stays, then stop the servers; a second call does nothing."""
        ending, self.children = self.children, []
        self._end(ending)
        servers, self.servers = self.servers, []
        for server in reversed(servers):
            server.stop()
        self._dismiss_guardian()

    def _end(self, ending: Sequence[Child]) -> None:
        for child in ending:
            if child.process and child.process.poll() is None:
                child.process.send_signal(signal.SIGTERM if self.patience_s else signal.SIGKILL)
        until = time.monotonic() + self.patience_s
        for child in ending:
            if child.process:
                left = max(0.0, until - time.monotonic())
                children.stop(child.process, signals=((signal.SIGTERM, left), (signal.SIGKILL, 5.0)))
                self._guard("-", child.process.pid)
                child.process = None

    def _spawn(self, child: Child) -> None:
        child.process = children.spawn(
            child.command, child.log, environment=child.environment, folder=self.folder, death_signal=signal.SIGKILL
        )
        child.started_at = time.monotonic()
        child.again_at = None
        self._guard("+", child.process.pid)

    def _bury(self, child: Child, status: int) -> None:
        assert child.process is not None  # noqa: S101 - it was polled
        children.kill_group(child.process.pid)
        self._guard("-", child.process.pid)
        child.exit_status = status
        if child.vital:
            raise ChildDiedError(_obituary(child))
        now = time.monotonic()
        child.failures = 0 if now - child.started_at >= GOOD_LIFE_S else child.failures + 1
        child.again_at = now + BACKOFF_S[min(child.failures, len(BACKOFF_S)) - 1 if child.failures else 0]
        self.notes.append(f"{child.name} ended with {status}; its log: {child.log}")

    def _guard(self, sign: str, group: int) -> None:
        if self._guardian is None or self._guardian.stdin is None:
            return
        try:
            self._guardian.stdin.write(f"{sign}{group}\n".encode())
            self._guardian.stdin.flush()
        except BrokenPipeError:
            self._guardian = None

    def _dismiss_guardian(self) -> None:
        watch, self._guardian = self._guardian, None
        if watch is not None and watch.stdin is not None:
            watch.kill()
            watch.stdin.close()
            watch.wait()


def _obituary(child: Child) -> str:
    status = child.process.returncode if child.process else child.exit_status
    return f"{child.name} ended with {status}; its log {child.log} ends with:\n{children.tail(child.log)}"
