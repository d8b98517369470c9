"""What a run says: one document for machines, the same as tables for people."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from fred.bench.timeline import Span
from fred.bench.usage import MEBIBYTE, Usage

Figures = Mapping[str, float]


def percentile(values: Sequence[float], percent: float) -> float:
    """The value below which so many percent of them lie, 0 for no values.

    Index floor(count × p / 100) of the sorted list, at most the last.
    """
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * percent / 100), len(ordered) - 1)]


def ratio(ours: float, floor: float) -> float | None:
    """How many times the floor's figure ours is; None where there is no floor."""
    return ours / floor if floor > 0 else None


def _machine() -> dict[str, Any]:
    """What the figures were measured on, and how busy it was with other things."""
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "kernel": platform.release(),
    }


@dataclass(frozen=True, slots=True)
class Report:
    """One scenario: what was done, our figures, the floor's, and what each process cost in both."""

    scenario: str
    settings: Mapping[str, Any]
    ours: Figures
    floor: Figures = field(default_factory=dict)
    processes: Mapping[str, Usage] = field(default_factory=dict)
    floor_processes: Mapping[str, Usage] = field(default_factory=dict)
    steps: Mapping[str, Span] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=_machine)

    def ratios(self) -> dict[str, float | None]:
        """Ours by the floor's, for every figure that both have."""
        return {name: ratio(value, self.floor[name]) for name, value in self.ours.items() if name in self.floor}

    def document(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return {
            "scenario": self.scenario,
            "settings": dict(self.settings),
            "machine": dict(self.machine),
            "ours": dict(self.ours),
            "floor": dict(self.floor),
            "ratio": self.ratios(),
            "processes": {name: asdict(usage) for name, usage in self.processes.items()},
            "steps": {step: asdict(span) for step, span in self.steps.items()},
            "floor_processes": {name: asdict(usage) for name, usage in self.floor_processes.items()},
        }

    def write(self, path: Path) -> None:
        """Write the document to a file."""
        path.write_bytes(orjson.dumps(self.document(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))

    def text(self) -> str:
        """Two tables: figures, and what the processes cost."""
        said = ", ".join(f"{name} {value}" for name, value in self.settings.items())
        ratios = self.ratios()
        figures = [
            (name, _number(value), _number(self.floor.get(name)), _number(ratios.get(name)))
            for name, value in self.ours.items()
        ]
        steps = [
            (step, f"{span.first:.3f}", f"{span.middle:.3f}", f"{span.last:.3f}") for step, span in self.steps.items()
        ]
        costs = [
            (
                name,
                _number(usage.cpu),
                _number(self.floor_processes[name].cpu) if name in self.floor_processes else "",
                f"{usage.peak / MEBIBYTE:.0f}",
                f"{usage.memory / MEBIBYTE:.0f}",
                str(usage.processes),
            )
            for name, usage in ({**self.floor_processes, **self.processes}).items()
        ]
        return "\n".join(
            [
                f"{self.scenario}: {said}",
                *_table(("", "ours", "floor", "ratio"), figures),
                "",
                *(_table(("seconds after the event", "first", "middle", "last"), steps) if steps else ()),
                "",
                *_table(("process", "CPU s", "floor CPU s", "peak MiB", "memory MiB", "processes"), costs),
            ]
        )


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [tuple(head), *(tuple(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return [
        "  ".join(
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
