"""Pieces of the development house: supervised children, ports, secrets, options."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from fred.dev import children, foreground, ports, supervisor
from fred.dev.environment import Environments
from fred.dev.house import House
from fred.dev.options import Options, add_arguments
from fred.dev.supervisor import Child, ChildDiedError, Supervisor
from fred.dev.teller import Teller
from fred.dev.vault import Vault
from tests.fred.test_servers import alive
from tests.waiting import wait_until

SLEEPER = "import signal; print('up', flush=True); signal.pause()"
PARENT_OF_SLEEPER = (
    "import subprocess, sys, signal; child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()']);"
    "print(child.pid, flush=True); signal.pause()"
)
HOUSE = """
import signal, sys
from pathlib import Path
from fred.dev.supervisor import Child, Supervisor
folder = Path(sys.argv[1])
with Supervisor(folder) as house:
    child = house.start(Child("parent", [sys.executable, "-c", sys.argv[2]], {}, folder / "parent.log"))
    print(child.pid, flush=True)
    signal.pause()
"""


def child(tmp_path: Path, code: str, *, vital: bool = False) -> Child:
    return Child("child", [sys.executable, "-c", code], dict(os.environ), tmp_path / "child.log", vital=vital)


def test_a_child_that_dies_is_started_again_and_told_about(tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor, "BACKOFF_S", (0.0,))
    with Supervisor(tmp_path) as house:
        one = house.start(child(tmp_path, SLEEPER))
        first = one.pid
        os.kill(first, signal.SIGKILL)

        def started_again():
            house.poll()
            return one.pid not in {0, first}

        wait_until(started_again)
        assert one.restarts == 1
        assert house.notes == [f"child ended with -9; its log: {one.log}"]
        assert one.state == "running"
    assert not alive(first)


def test_restarts_wait_longer_each_time(tmp_path):
    with Supervisor(tmp_path) as house:
        one = house.start(child(tmp_path, "raise SystemExit(3)"))
        for wait in (*supervisor.BACKOFF_S, supervisor.BACKOFF_S[-1]):
            wait_until(lambda: one.process is not None and one.process.poll() is not None)
            before = time.monotonic()
            house.poll()
            assert one.again_at is not None
            assert before + wait <= one.again_at <= time.monotonic() + wait
            assert one.state.startswith("ended with 3, again in")
            one.again_at = before  # its time has come
            house.poll()


def test_the_end_of_a_vital_child_ends_all_and_shows_its_log(tmp_path):
    with Supervisor(tmp_path) as house:
        one = house.start(child(tmp_path, "print('last words'); raise SystemExit(4)", vital=True))
        wait_until(lambda: one.process is not None and one.process.poll() is not None)
        with pytest.raises(ChildDiedError, match=r"(?s)child ended with 4.*last words"):
            house.poll()


def test_a_one_off_that_fails_shows_its_log(tmp_path):
    with Supervisor(tmp_path) as house:
        house.run(child(tmp_path, "pass"), seconds=30)
        with pytest.raises(ChildDiedError, match=r"(?s)child ended with 1.*KeyError"):
            house.run(child(tmp_path, "raise KeyError('x')"), seconds=30)


DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "


def test_a_house_whose_starter_was_killed_waits_for_no_orderly_end(tmp_path):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    options = Options(folder=tmp_path, free_ports=True, plain=True, parent=gone.pid)
    with House(options, Teller(Console(force_terminal=False))) as house:
        one = house.supervisor.start(child(tmp_path, DEAF + PARENT_OF_SLEEPER))
        grandchild = int(wait_until(lambda: one.log.read_text().strip()))
        parent, began = one.pid, time.monotonic()
    assert time.monotonic() - began < supervisor.STOP_S
    wait_until(lambda: not alive(parent) and not alive(grandchild))


def test_a_house_whose_starter_lives_lets_its_children_end_by_themselves(tmp_path):
    options = Options(folder=tmp_path, free_ports=True, plain=True, parent=os.getppid())
    with House(options, Teller(Console(force_terminal=False))) as house:
        polite = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(print('bye'))); "
        one = house.supervisor.start(child(tmp_path, polite + SLEEPER))
        wait_until(lambda: one.log.read_text().strip())
    assert one.log.read_text().split() == ["up", "bye"]


def test_stopping_kills_a_child_that_does_not_listen_and_its_children(tmp_path):
    deaf = DEAF + PARENT_OF_SLEEPER
    with Supervisor(tmp_path, patience_s=0.1) as house:
        one = house.start(child(tmp_path, deaf))
        grandchild = int(wait_until(lambda: one.log.read_text().strip()))
        parent = one.pid
    wait_until(lambda: not alive(parent) and not alive(grandchild))


def test_sigkill_of_the_house_leaves_neither_children_nor_grandchildren(tmp_path):
    house = subprocess.Popen(
        [sys.executable, "-c", HOUSE, tmp_path, PARENT_OF_SLEEPER], stdout=subprocess.PIPE, text=True
    )
    assert house.stdout is not None
    with house.stdout:
        parent = int(house.stdout.readline())
        grandchild = int(wait_until(lambda: (tmp_path / "parent.log").read_text().strip()))
        family = psutil.Process(house.pid).children(recursive=True)
        assert {parent, grandchild} < {process.pid for process in family}
        house.kill()
        house.wait()
    wait_until(lambda: not any(alive(process.pid) for process in family), message="nothing is left")


def test_children_are_spawned_by_the_main_thread_only(tmp_path, run_in_threads):
    with pytest.raises(RuntimeError, match="main thread"):
        run_in_threads(1, lambda: children.spawn([sys.executable], tmp_path / "log"))


def test_a_free_port_is_none_that_an_outgoing_connection_could_take(monkeypatch, tmp_path):
    ports_of_connections = tmp_path / "range"
    monkeypatch.setattr(foreground, "OUTGOING_PORTS", ports_of_connections)
    ports_of_connections.write_text("32768\t60999\n")
    assert all(foreground.LOWEST_FREE_PORT <= foreground.free_port() < 32768 for _ in range(20))
    ports_of_connections.write_text("1024\t65535\n")
    assert foreground.free_port() > 1023


def test_secrets_are_made_once_and_readable_by_the_owner_only(tmp_path):
    path = tmp_path / "secrets.json"
    first = Vault.open(path)
    assert Vault.open(path) == first
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(first.callback_secret) >= 32
    path.write_text("{broken")
    assert Vault.open(path) != first


def test_options_come_from_the_command_line_and_services_from_the_environment(tmp_path):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    arguments = vars(parser.parse_args(["--once", "--leases", "3", "--api-port", "0", "--folder", str(tmp_path)]))
    options = Options.of(arguments, {"DATABASE_URL": "postgres://one"})
    assert (options.once, options.leases, options.fresh) == (True, 3, False)
    assert options.wanted == {"api": 0}
    assert (options.database_url, options.redis_url) == ("postgres://one", "")


def test_the_callers_settings_do_not_leak_into_children(tmp_path, monkeypatch):
    monkeypatch.setenv("PROVIDER_CHAIN_ID", "manifest-1")
    monkeypatch.setenv("DJANGO_SECRET_KEY", "mine")
    vault = Vault.open(tmp_path / "secrets.json")
    environments = Environments(tmp_path, ports.choose({}, free=True), vault, "postgres://a", "redis://b")
    assert "PROVIDER_CHAIN_ID" not in environments.plain()
    assert environments.services()["DJANGO_SECRET_KEY"] == vault.django_secret_key
    agent = environments.agent()
    assert "DATABASE_URL" not in agent
    assert agent["MOCK_BACKEND_RETENTION"] == "1h"
    assert not [name for name in agent if name.startswith("PROVIDER_")]
