"""What becomes of `dev` when whoever started it is killed: with make it ends, by itself it stays."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.fred.test_servers import alive
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
STAND_IN = """
import argparse, os, signal, sys
from pathlib import Path
from fred.dev import run
from fred.dev.options import Options, add_arguments

class House:
    def __init__(self, options, teller):
        self.folder = options.folder

    def __enter__(self):
        return self

    def __exit__(self, *error):
        (self.folder / "ended").write_text(error[0].__name__)

    def start(self):
        signal.signal(signal.SIGUSR1, self.answer)
        (self.folder / "partial").write_text(f"{os.getpid()}")
        (self.folder / "partial").rename(self.folder / "up")
        while True:
            signal.pause()

    def answer(self, *_):
        with (self.folder / "answers").open("a") as answers:
            answers.write("x")

run.House = House
parser = argparse.ArgumentParser()
add_arguments(parser)
words = sys.argv[1:]
assert words[:2] == ["manage.py", "dev"]
sys.exit(run.run(Options.of(vars(parser.parse_args(words[2:])))))
"""
"""Python as the Makefile calls it: all of `dev` but the house, which only notes that it is up, and how it ended."""
MAKE = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")


def up(folder: Path) -> int:
    """Wait until it is up; its process id."""
    return int(wait_until(lambda: (folder / "up").exists() and (folder / "up").read_text(), timeout=60))


def ended(folder: Path) -> str:
    """Wait until it ended; by what."""
    return str(wait_until(lambda: (folder / "ended").exists() and (folder / "ended").read_text(), timeout=60))


@pytest.fixture
def stand_in(tmp_path: Path) -> list[str]:
    """An environment for make, with a stand-in for its Python; the command line of make that uses it."""
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    python = tmp_path / "venv" / "bin" / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" "{tmp_path}/stand_in.py" "$@"\n')
    python.chmod(0o755)
    venv = f"VENV={tmp_path}/venv"
    # Of `-o` it does not ask whether it is up to date: nothing is installed here.
    return ["make", "-C", str(ROOT), "-o", f"{tmp_path}/venv/made-from.lock", venv]


@MAKE
@pytest.mark.parametrize("target", ["run", "once"])
def test_what_make_started_ends_when_make_is_killed(tmp_path, stand_in, target):
    folder = tmp_path / "house"
    make = subprocess.Popen([*stand_in, target, f"ARGS=--plain --folder {folder}"], stdout=subprocess.DEVNULL)
    pid = up(folder)
    assert psutil.Process(pid).ppid() == make.pid
    make.kill()
    make.wait()
    assert ended(folder) == "Stopped"
    wait_until(lambda: not alive(pid))


@MAKE
def test_make_may_stand_behind_a_pipe(tmp_path, stand_in):
    folder = tmp_path / "house"
    with subprocess.Popen([*stand_in, "run", f"ARGS=--plain --folder {folder} | cat"], stdout=subprocess.DEVNULL):
        os.kill(up(folder), signal.SIGTERM)
    assert ended(folder) == "Stopped"


def test_started_by_itself_it_outlives_whoever_started_it(tmp_path):
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    folder = tmp_path / "house"
    command = [sys.executable, str(tmp_path / "stand_in.py"), "manage.py", "dev", "--plain", f"--folder={folder}"]
    shell = subprocess.Popen(
        ["/bin/sh", "-c", '"$@" & wait', "sh", *command],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
    )
    pid = up(folder)
    assert psutil.Process(pid).ppid() == shell.pid
    shell.kill()
    shell.wait()
    wait_until(lambda: psutil.Process(pid).ppid() != shell.pid)
    for number in (1, 2):  # what the kernel had sent at the shell's end would have stopped it before the second
        os.kill(pid, signal.SIGUSR1)
        wait_until(
            lambda wanted=number: (folder / "answers").exists() and len((folder / "answers").read_text()) == wanted
        )
    assert not (folder / "ended").exists()
    os.kill(pid, signal.SIGTERM)
    assert ended(folder) == "Stopped"


def test_a_parent_that_is_gone_already_is_told(tmp_path):
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    words = ["manage.py", "dev", "--plain", f"--folder={tmp_path}/house", f"--parent={gone.pid}"]
    done = subprocess.run(
        [sys.executable, str(tmp_path / "stand_in.py"), *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == f"dev: process {gone.pid}, named by --parent, did not start this one, or has ended\n"
    assert not (tmp_path / "house").exists(), "nothing is made, wiped or claimed for one that is refused"
