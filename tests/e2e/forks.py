"""The nursery as the stack has it: forks are asked for on its standard input, and heard of on its output."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parent.parent.parent
UP_S = 60.0
"""How long a process of the house may take until it is up."""


class Nursery:
    """Forks processes of the control plane on demand and hears how they end."""

    def __init__(self, log: Path, environment: Mapping[str, str]) -> None:
        """Start it; returns when it is ready to fork. The processes get this environment and write to this log."""
        self.log = log.open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.e2e.nursery"],
            cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
        )  # fmt: skip
        self.started: list[int] = []
        self.ended: dict[int, int] = {}
        self._lock = threading.Lock()
        self._is_ready = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()
        assert self._is_ready.wait(UP_S), "the nursery does not start"

    def _listen(self) -> None:
        for line in self.process.stdout:
            word, *numbers = line.decode().split()
            if word == "ready":
                self._is_ready.set()
            elif word == "started":
                self.started.append(int(numbers[0]))
            else:
                self.ended[int(numbers[0])] = int(numbers[1])

    def start(self, kind: str, points: str = "-") -> int:
        """A new process of this kind that dies at these points; its process id."""
        with self._lock:
            before = len(self.started)
            self.process.stdin.write(f"{kind} {points}\n".encode())
            self.process.stdin.flush()
            wait_until(lambda: len(self.started) > before, message="a fork")
            return self.started[-1]

    def kill(self, pid: int) -> None:
        """Kill it, if it lives, and wait until it is gone."""
        if pid not in self.ended:
            with suppress(ProcessLookupError):  # it has just ended by itself
                os.kill(pid, signal.SIGKILL)
            wait_until(lambda: pid in self.ended, message="the end of a killed process")

    def died(self, pid: int) -> bool:
        """Whether it met its point."""
        if pid in self.ended:
            assert self.ended[pid] == -signal.SIGKILL, f"{pid} ended with {self.ended[pid]}: see nursery.log"
        return pid in self.ended

    def stop(self) -> None:
        """Kill what still lives, and end it."""
        for pid in self.started:
            self.kill(pid)
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()
        self.log.close()
