"""The live view of a running house: compact on a terminal, a line now and then without one."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import psutil
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fred.dev.board import Board, Figures, Line
from fred.dev.house import House
from fred.dev.supervisor import Child

REFRESH_S: Final = 1.0
PLAIN_EVERY_S: Final = 10.0
_MEBIBYTE: Final = 1 << 20


@dataclass(slots=True)
class View:
    """Shows the house until something stops it."""

    house: House
    board: Board
    _meters: dict[int, psutil.Process] = field(default_factory=dict)
    _pause: threading.Event = field(default_factory=threading.Event)

    def stay(self) -> None:
        """Look after the house and show it, for ever: a signal or a vital child's end gets out of here."""
        if self.house.options.plain or not self.house.teller.is_live:
            self._stay_plain()
        self._stay_live()

    def _stay_live(self) -> None:
        with Live(self._render(), console=self.house.teller.console, auto_refresh=False, transient=True) as live:
            while True:
                self.house.look_after()
                live.update(self._render(), refresh=True)
                self._pause.wait(REFRESH_S)

    def _stay_plain(self) -> None:
        told, last = 0.0, ""
        while True:
            self.house.look_after()
            if time.monotonic() - told >= PLAIN_EVERY_S:
                told = time.monotonic()
                line = summary(self.board.read())
                if line != last:
                    self.house.teller.say(line)
                    last = line
            self._pause.wait(REFRESH_S)

    def _render(self) -> RenderableType:
        figures = self.board.read()
        upper = Table.grid(padding=(0, 3))
        upper.add_row(_phases(figures), _rates(figures), self._processes())
        lower = Table.grid(padding=(0, 3))
        lower.add_row(_lines("last decisions", figures.decisions), _lines("last events", figures.events))
        head = Text(f"block {figures.height or '?'}   ", style="bold")
        head.append(f"API {self.house.url('api')}   admin {self.house.url('admin', '/admin/')}   Ctrl-C stops all")
        parts: list[RenderableType] = [head, Text(), upper, Text(), lower]
        if figures.problem:
            parts.insert(1, Text(f"database: {figures.problem}", style="red"))
        return Group(*parts)

    def _processes(self) -> Table:
        table = Table(title="processes", title_justify="left", box=None, padding=(0, 1), header_style="dim")
        table.add_column("name")
        for name in ("pid", "CPU", "memory", "restarts"):
            table.add_column(name, justify="right")
        table.add_column("state")
        for server in self.house.supervisor.servers:
            state = Text("running", style="green") if server.poll() is None else Text("ended", style="red")
            table.add_row(server.name, str(server.pid), *self._usage(server.pid), "", state)
        for child in self.house.supervisor.children:
            style = "green" if child.pid else "red"
            table.add_row(
                child.name,
                str(child.pid or ""),
                *self._usage(child.pid),
                _restarts(child),
                Text(child.state, style=style),
            )
        return table

    def _usage(self, pid: int) -> tuple[str, str]:
        """CPU in percent of one core and resident memory, of a process with all its children."""
        if not pid:
            return "", ""
        percent, resident = 0.0, 0
        try:
            family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        except psutil.Error:
            return "", ""
        for process in family:
            try:
                # The same object must be asked again: the first answer of a new one is always 0.
                percent += self._meters.setdefault(process.pid, process).cpu_percent(None)
                resident += process.memory_info().rss
            except psutil.Error:
                self._meters.pop(process.pid, None)
        return f"{percent:.0f} %", f"{resident // _MEBIBYTE} MB"


def summary(figures: Figures) -> str:
    """The house in one line."""
    if figures.problem:
        return f"database: {figures.problem}"
    phases = ", ".join(f"{number} {name}" for name, number, _ in figures.phases) or "none"
    return f"leases: {phases}"


def _phases(figures: Figures) -> Table:
    table = Table(title="leases", title_justify="left", box=None, padding=(0, 1), header_style="dim")
    table.add_column("phase")
    table.add_column("number", justify="right")
    table.add_column("waiting", justify="right")
    for name, number, waiting in figures.phases:
        table.add_row(name, str(number), str(waiting or ""))
    return table


def _rates(figures: Figures) -> Table:
    table = Table(title="traffic", title_justify="left", box=None, padding=(0, 1), header_style="dim")
    table.add_column("what")
    table.add_column("total", justify="right")
    table.add_column("per s", justify="right")
    for name, total, rate in figures.rates:
        table.add_row(name, str(total), f"{rate:.1f}")
    return table


def _lines(title: str, lines: Sequence[Line]) -> Table:
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1), show_header=False)
    for line in lines:
        table.add_row(Text(line.at, style="dim"), line.lease[-12:], line.text[:60])
    return table


def _restarts(child: Child) -> str:
    return str(child.restarts or "")
