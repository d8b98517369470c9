"""A test that fails in the middle leaves sockets open: none that comes later fails for them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = """
import gc
import socket

def test_one():
    here = socket.create_server(("127.0.0.1", 0))
    there = socket.create_connection(here.getsockname())
    assert here is there

def test_another():
    gc.collect()
"""


@pytest.mark.parametrize(("plugin", "told"), [((), "2 failed"), (("-p", "tests.leftovers"), "1 failed, 1 passed")])
def test_what_a_failed_test_left_open_fails_no_other(tmp_path, plugin, told):
    (tmp_path / "test_two.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", *plugin, str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=180,
        check=False,
    )
    assert told in done.stdout
