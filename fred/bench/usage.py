"""What processes cost: CPU seconds and memory, children included, read from the kernel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

MEBIBYTE = 1024 * 1024
_RESET_PEAK = "5"
"""Written to `clear_refs` it makes the kernel forget the highest resident size so far."""


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU in seconds, memory in bytes.

    `peak` is the highest resident size of the largest single process, `memory` what the whole tree holds now with
    shared pages counted once among their users.
    """

    cpu: float
    peak: int
    memory: int
    processes: int

    def since(self, before: Usage) -> Usage:
        """The same with only the CPU that was used after `before`."""
        return Usage(max(0.0, self.cpu - before.cpu), self.peak, self.memory, self.processes)


@dataclass(frozen=True, slots=True)
class Meter:
    """Reads the usage of process trees, by the name that each is known by."""

    roots: Mapping[str, int]
    alone: frozenset[str] = frozenset({"bench"})
    """Names of those whose children are not theirs to answer for."""

    def start(self) -> dict[str, Usage]:
        """Forget earlier peaks and read where everything stands."""
        for process in (process for _, tree in self._trees() for process in tree):
            with suppress(OSError):
                Path(f"/proc/{process.pid}/clear_refs").write_text(_RESET_PEAK)
        return self.read()

    def read(self) -> dict[str, Usage]:
        """The usage of each tree now; a process that is gone counts as nothing."""
        return {name: _of(tree, alone=name in self.alone) for name, tree in self._trees()}

    def since(self, before: Mapping[str, Usage]) -> dict[str, Usage]:
        """The usage of each tree after `before` was read."""
        return {name: usage.since(before[name]) for name, usage in self.read().items() if name in before}

    def _trees(self) -> list[tuple[str, list[psutil.Process]]]:
        return [(name, _tree(pid)[: 1 if name in self.alone else None]) for name, pid in self.roots.items() if pid]


def _tree(pid: int) -> list[psutil.Process]:
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _of(tree: Iterable[psutil.Process], *, alone: bool) -> Usage:
    cpu, peak, memory, number = 0.0, 0, 0, 0
    for process in tree:
        with suppress(psutil.NoSuchProcess, OSError):
            times = process.cpu_times()
            cpu += times.user + times.system + (0.0 if alone else times.children_user + times.children_system)
            peak = max(peak, _kilobytes(process.pid, "status", "VmHWM:"))
            memory += _kilobytes(process.pid, "smaps_rollup", "Pss:")
            number += 1
    return Usage(cpu, peak, memory, number)


def _kilobytes(pid: int, file: str, field: str) -> int:
    for line in Path(f"/proc/{pid}/{file}").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    return 0
