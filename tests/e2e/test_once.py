"""A lease lives and dies in the whole house: every process up, real HTTP, gRPC and WebSocket."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import psutil

from fred.dev.servers import PostgresServer, ValkeyServer
from tests.fred.test_servers import alive
from tests.waiting import wait_until

DEADLINE_S = 480.0
ROOT = Path(__file__).resolve().parent.parent.parent


def test_dev_once_ends_well_and_leaves_nothing(tmp_path):
    folder = tmp_path / "house"
    environment = {name: value for name, value in os.environ.items() if name not in {"DATABASE_URL", "REDIS_URL"}}
    house = subprocess.Popen(
        [sys.executable, "manage.py", "dev", "--once", "--free-ports", "--leases=3", f"--folder={folder}"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert house.stdout is not None
    deadline = threading.Timer(DEADLINE_S, house.kill)
    deadline.start()
    lines: list[str] = []
    family: set[int] = set()
    with house.stdout:
        for line in house.stdout:  # each line is the start of a step: whoever was started by then is seen
            lines.append(line)
            family |= {process.pid for process in psutil.Process(house.pid).children(recursive=True)}
    house.wait()
    deadline.cancel()
    output = "".join(lines)
    assert house.returncode == 0, output + logs(folder)
    assert "all 3 leases are ACTIVE" in output
    assert '"connection": {' in output
    assert "closed and torn down" in output
    assert len(family) > 10
    wait_until(lambda: not [pid for pid in family if alive(pid)], message="no process of it is left")
    PostgresServer(folder / "postgres", durable=True).wipe()
    ValkeyServer(folder / "valkey").wipe()


def logs(folder: Path) -> str:
    """The ends of all logs, for a failure's message."""
    return "".join(
        f"\n== {log.name}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        for log in sorted((folder / "logs").glob("*.log"))
    )
