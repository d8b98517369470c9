"""The hook `restart` of a served mock: kill the process, start it again on the same port and state.

Run as `python -m tests.contract.restart_mock PID_FILE PORT STATE SECRET LOG`; the file then names the new process.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

from tests.waiting import wait_until


def healthy(port: str) -> bool:
    """Whether the mock on this port answers."""
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1).close()
    except OSError:
        return False
    return True


def restart(pid_file: Path, port: str, *, state: str, secret: str, log: Path) -> None:
    """Return when the new process answers. A process that ends, say because the port is still taken, is replaced."""
    os.kill(int(pid_file.read_text()), signal.SIGKILL)
    environment = {"PATH": os.environ["PATH"], "MOCK_BACKEND_CALLBACK_SECRET": secret, "MOCK_BACKEND_STATE_PATH": state}
    command = [sys.executable, "manage.py", "backend_agent", "mock", "--listen", f"127.0.0.1:{port}"]
    running: subprocess.Popen[bytes] | None = None

    def answers() -> bool:
        nonlocal running
        if running is None or running.poll() is not None:
            with log.open("a") as output:
                running = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
            pid_file.write_text(str(running.pid))
        return healthy(port)

    wait_until(answers, timeout=50.0, message="the mock did not start again")


if __name__ == "__main__":
    pid_file, port, state, secret, log = sys.argv[1:]
    restart(Path(pid_file), port, state=state, secret=secret, log=Path(log))
