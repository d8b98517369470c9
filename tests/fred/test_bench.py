"""Benches: the arithmetic of their reports, and one tiny run of the whole."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import orjson
import pytest

from fred.bench.report import Report, percentile, ratio
from fred.bench.timeline import Span
from fred.bench.usage import MEBIBYTE, Meter, Usage

ROOT = Path(__file__).resolve().parents[2]


def usage(cpu=1.5, peak=10 * MEBIBYTE, memory=8 * MEBIBYTE, processes=2):
    return Usage(cpu, peak, memory, processes)


def report(**changed):
    given = {
        "scenario": "burst",
        "settings": {"leases": 5, "blocks": "instant"},
        "ours": {"seconds": 2.0, "leases_per_second": 500.0, "settled": 1.0},
        "floor": {"seconds": 0.5, "leases_per_second": 2000.0},
        "processes": {"web": usage(), "postgres": usage(cpu=0.25)},
        "floor_processes": {"script": usage(cpu=0.5)},
        "steps": {"sent": Span(0.1, 0.2, 0.3)},
    }
    return Report(**{**given, **changed})


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [
        pytest.param([], 99, 0.0, id="nothing"),
        pytest.param([7.0], 50, 7.0, id="one"),
        pytest.param([4.0, 1.0, 3.0, 2.0], 50, 3.0, id="index floor of count times p"),
        pytest.param([float(number) for number in range(100)], 99, 99.0, id="the 99th of a hundred"),
        pytest.param([1.0, 2.0], 100, 2.0, id="at most the last"),
    ],
)
def test_percentile(values, percent, expected):
    assert percentile(values, percent) == expected


def test_a_ratio_says_how_many_times_the_floor_we_take():
    assert ratio(2.0, 0.5) == 4.0
    assert ratio(2.0, 0.0) is None


def test_ratios_cover_what_both_have():
    assert report().ratios() == {"seconds": 4.0, "leases_per_second": 0.25}
    assert report(floor={}).ratios() == {}


def test_the_document_holds_figures_floor_ratio_processes_and_the_machine(tmp_path):
    report().write(tmp_path / "report.json")
    read = orjson.loads((tmp_path / "report.json").read_bytes())
    assert read["scenario"] == "burst"
    assert read["settings"] == {"leases": 5, "blocks": "instant"}
    assert read["ratio"] == {"seconds": 4.0, "leases_per_second": 0.25}
    assert read["processes"]["web"] == {
        "cpu": 1.5, "peak": 10 * MEBIBYTE, "memory": 8 * MEBIBYTE, "processes": 2
    }  # fmt: skip
    assert read["floor_processes"].keys() == {"script"}
    assert read["steps"] == {"sent": {"first": 0.1, "middle": 0.2, "last": 0.3}}
    assert read["machine"]["cpus"] >= 1


def test_the_tables_show_every_figure_and_process():
    text = report().text()
    for word in ("ours", "floor", "ratio", "leases_per_second", "2,000", "web", "postgres", "script", "sent"):
        assert word in text


def test_a_report_without_a_floor_has_tables_too():
    assert "leases_per_second" in report(floor={}, floor_processes={}, steps={}).text()


def test_cpu_counts_from_where_the_meter_started():
    meter = Meter({"me": os.getpid(), "nobody": 0})
    before = meter.start()
    assert before.keys() == {"me"}
    assert before["me"].peak > MEBIBYTE
    while meter.since(before)["me"].cpu <= 0:
        sum(range(100_000))
    assert 0 < meter.since(before)["me"].cpu <= meter.read()["me"].cpu


def test_a_process_that_is_gone_counts_as_nothing():
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert Meter({"gone": child.pid}).read()["gone"] == Usage(0.0, 0, 0, 0)


@pytest.fixture
def open_folder():
    """A folder for temporary files that the account of the servers can enter, as the system's own."""
    with tempfile.TemporaryDirectory(prefix="bench-test-") as name:
        Path(name).chmod(0o711)
        yield Path(name)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "figure"),
    [
        pytest.param(["burst", "--leases", "5", "--warm-up", "5", "--idle", "1"], "leases_per_second", id="burst"),
        pytest.param(["callbacks", "--count", "200", "--connections", "4"], "callbacks_per_second", id="callbacks"),
        pytest.param(
            ["api", "--route", "connection", "--leases", "20", "--count", "40", "--connections", "2"],
            "calls_per_second_2",
            id="api",
        ),
        pytest.param(
            ["api", "--route", "status", "--way", "handler", "--leases", "20", "--count", "40", "--connections", "2"],
            "calls_per_second_2",
            id="api-handler",
        ),
    ],
)
def test_a_small_bench_runs_to_its_end_and_leaves_nothing(tmp_path, open_folder, words, figure):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("DATABASE", "REDIS"))}
    environment |= {"TMPDIR": str(open_folder)}
    path = tmp_path / "report.json"
    command = [sys.executable, "manage.py", "bench", *words, "--json", str(path)]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 0, run.stderr
    read = orjson.loads(path.read_bytes())
    assert read["ours"][figure] > 0
    assert read["floor"][figure] > 0
    assert read["ratio"][figure] == pytest.approx(read["ours"][figure] / read["floor"][figure])
    assert {"postgres", "valkey"} < read["processes"].keys()
    assert any(name.startswith("web") for name in read["processes"])
    assert list(open_folder.glob("fred-*")) == []
