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


def test_every_metric_has_its_row():
    expected = set()
    for metric in vars(metrics).values():
        if isinstance(metric, Counter | Histogram | Gauge):
            name = metric._name + ("_total" if isinstance(metric, Counter) else "")
            expected.add(row(name, type(metric).__name__.lower(), metric._labelnames, metric._documentation))
    for gauge in SHARED_GAUGES.values():
        expected.add(row(gauge.name, "shared gauge", gauge.labels, gauge.help))
    found = {tuple(cells) for cells in rows_below("Metrics")}
    assert found == expected, "\n" + "\n".join(f"| {' | '.join(one)} |" for one in sorted(expected))


def row(name, kind, labels, text):
    return (f"`{name}`", kind, ", ".join(f"`{label}`" for label in labels) or "–", text)


@pytest.fixture(scope="module")
def written():
    """Variables of metrics that the product adds to or sets somewhere, and names of shared gauges that it reads."""
    found = set()
    for path, tree in sources(*APPS):
        if path in {ROOT / "fred" / "metrics.py", ROOT / "fred" / "gauges.py"}:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                if node.func.attr in {"inc", "observe", "set", "labels"}:
                    found.add(innermost(node.func.value))
                elif ast.unparse(node.func) in {"counting.count", "counting.observe"}:
                    found.add(innermost(node.args[0]))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.update(re.findall(r"fred_[a-z_]+", node.value))
    return found


def innermost(node):
    """The variable of a metric in `metrics.NAME.labels("a")`, `metrics.NAME` or `NAME`."""
    while isinstance(node, ast.Call):
        node = node.func
        if isinstance(node, ast.Attribute) and node.attr == "labels":
            node = node.value
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def test_every_declared_metric_is_written_somewhere(written):
    declared = {name for name, metric in vars(metrics).items() if isinstance(metric, Counter | Histogram | Gauge)}
    assert declared - written == set()
    assert SHARED_GAUGES.keys() - written == set()


def test_a_metric_that_is_only_imported_or_named_is_not_written():
    tree = ast.parse("metrics.A.labels('x').inc(); counting.count(metrics.B.labels('y'), 2); metrics.C; D.observe(1)")
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    assert {innermost(node.func.value) for node in calls if node.func.attr in {"inc", "observe"}} == {"A", "D"}
    assert {innermost(node.args[0]) for node in calls if ast.unparse(node.func) == "counting.count"} == {"B"}


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
