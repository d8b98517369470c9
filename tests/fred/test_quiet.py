"""What is logged while tests run: in a test it is captured, between two tests it is not shown."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONFTEST = """
import structlog
from fred import logs
from tests import quiet

def pytest_configure(config):
    logs.set_up(level="info", output="text", process="test")
    quiet.between_tests(config)

def pytest_runtest_logfinish():
    structlog.get_logger("server").warning("alone.between")
    logs.lines("many.between", [{"number": 1}])
"""
TESTS = """
import structlog
from fred import logs

def test_one(caplog):
    structlog.get_logger("server").warning("alone.inside")
    logs.lines("many.inside", [{"number": 1}])
    assert "alone.inside" in caplog.text
    raise AssertionError("so that it is shown")

def test_another():
    pass
"""


def run(folder: Path, *options: str) -> str:
    """All that a run of these two tests writes."""
    # Without the other plugins, which take longer to load than the rest of it.
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_two.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "xdist", "-p", "no:cacheprovider", *options, str(folder)],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    assert "1 failed, 1 passed" in done.stdout
    return done.stdout


@pytest.mark.parametrize("options", [("-n0",), ("-n2",), ("-n0", "--capture=sys")], ids=" ".join)
def test_the_log_between_two_tests_is_not_shown_and_that_of_a_test_is_kept(tmp_path, options):
    told = run(tmp_path, *options)
    for event in ("alone", "many"):
        assert f"msg={event}.inside" in told
        assert f"{event}.between" not in told


def test_without_capture_all_of_it_is_shown(tmp_path):
    told = run(tmp_path, "-n0", "-s")
    for event in ("alone", "many"):
        assert f"msg={event}.inside" in told
        assert f"msg={event}.between" in told
