"""docs/operating.md names every metric, log event, check, phase and reason that there is, and no other."""

import ast
import re
from pathlib import Path

import pytest
from prometheus_client import Counter, Gauge, Histogram

from fred import metrics
from fred.gauges import SHARED_GAUGES

ROOT = Path(__file__).resolve().parents[2]
APPS = ("fred", "leases", "backends", "placements", "reconciliation", "tenants_api")
LEVELS = {"lines": "INFO", "debug": "DEBUG", "info": "INFO", "warning": "WARN", "error": "ERROR", "exception": "ERROR"}
PAGE = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
NOT_WRITTEN = "*not written in this version*"


def rows_below(title):
    """The cells of the table rows of one section of the page."""
    section = PAGE.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def sources(*apps):
    for app in apps:
        for path in sorted((ROOT / app).rglob("*.py")):
            if not (path.is_relative_to(ROOT / "fred" / "dev") or path.is_relative_to(ROOT / "fred" / "bench")):
                yield path, ast.parse(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def strings_and_names():
    """Names and texts in use outside of the two modules that declare metrics."""
    declaring = {ROOT / "fred" / "metrics.py", ROOT / "fred" / "gauges.py"}
    found = set()
    for path, tree in sources(*APPS):
        if path in declaring:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif isinstance(node, ast.Name):
                found.add(node.id)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.update(re.findall(r"fred_[a-z_]+", node.value))
    return found


def test_every_metric_has_its_row(strings_and_names):
    expected = set()
    for variable, metric in vars(metrics).items():
        if isinstance(metric, Counter | Histogram | Gauge):
            name = metric._name + ("_total" if isinstance(metric, Counter) else "")
            kind = type(metric).__name__.lower()
            expected.add(row(name, kind, metric._labelnames, metric._documentation, variable in strings_and_names))
    for gauge in SHARED_GAUGES.values():
        expected.add(row(gauge.name, "shared gauge", gauge.labels, gauge.help, gauge.name in strings_and_names))
    found = {tuple(cells) for cells in rows_below("Metrics")}
    assert found == expected, "\n" + "\n".join(f"| {' | '.join(one)} |" for one in sorted(expected))


def row(name, kind, labels, text, is_written):
    meaning = text if is_written else f"{text}; {NOT_WRITTEN}"
    return (f"`{name}`", kind, ", ".join(f"`{label}`" for label in labels) or "–", meaning)


def test_every_log_event_has_its_row():
    expected = set()
    for _, tree in sources(*APPS):
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS):
                continue
            if isinstance(node.func.value, ast.Name) and node.func.value.id in {"log", "logs"}:
                event = node.args[0]
                if isinstance(event, ast.Constant):  # the warnings about settings are texts of their own
                    expected.add((f"`{event.value}`", LEVELS[node.func.attr]))
    found = {(cells[0], cells[1]) for cells in rows_below("Log events")}
    assert found == expected, f"docs/operating.md lacks {expected - found} and has too much of {found - expected}"


def test_every_phase_and_reason_has_its_row():
    phases, reasons = {"observed"}, set()
    for path, tree in sources("reconciliation"):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Decision":
                named = {one.arg: one.value for one in node.keywords}
                phases |= texts(node.args[1] if len(node.args) > 1 else named.get("phase"))
                reasons |= texts(node.args[2] if len(node.args) > 2 else named.get("reason"))
            elif isinstance(node, ast.Assign) and path.name.startswith("rules_"):
                target = getattr(node.targets[0], "id", "")
                phases |= texts(node.value) if target == "phase" else set()
                reasons |= texts(node.value) if target == "reason" else set()
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "f.Unknown":
                reasons |= {text for text in texts(node.args[0]) if text.startswith("chain_")}
    reasons |= {"chain_foreign", "chain_unreadable", "facts_unread", "error"}
    reasons -= {"", "chain_"}
    assert {cells[0] for cells in rows_below("Phases")} == {f"`{one}`" for one in phases}
    assert {cells[0] for cells in rows_below("Why a lease waits")} == {f"`{one}`" for one in reasons}


def texts(node):
    """The texts that an expression can be: itself, or the arms of a choice."""
    if isinstance(node, ast.IfExp):
        return texts(node.body) | texts(node.orelse)
    if isinstance(node, ast.BoolOp):
        return set().union(*(texts(one) for one in node.values))
    return {node.value} if isinstance(node, ast.Constant) and isinstance(node.value, str) else set()


def test_every_check_has_its_row_with_what_it_says(monkeypatch):
    from fred import checks

    monkeypatch.setattr(checks, "_remote_results", checks.RemoteResults())
    failed = [finding for question in checks.prober().questions for finding in question.otherwise().findings]
    rows = {cells[0]: cells for cells in rows_below("Health")}
    named = {finding.name.replace(":mock-1", ":<name>"): finding for finding in failed}
    assert set(rows) == {f"`{name}`" for name in named}
    for name, finding in named.items():
        cells = rows[f"`{name}`"]
        assert ("unhealthy" if finding.local else "degraded") in cells[1]
        assert f"`{finding.message}`" in cells[2]
