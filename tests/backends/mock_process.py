"""`backend_agent mock` as a process."""

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from fred.dev.foreground import free_port
from tests.backends.servers import SECRET


@contextmanager
def process(*arguments, **environment):
    """`backend_agent mock` as a process of its own, with nothing else configured."""
    port = free_port()
    root = Path(__file__).parents[2]
    command = [sys.executable, "manage.py", "backend_agent", "mock", "--listen", f"127.0.0.1:{port}", *arguments]
    variables = {"PATH": os.environ["PATH"], "MOCK_BACKEND_CALLBACK_SECRET": SECRET, **environment}
    variables = {name: value for name, value in variables.items() if value is not None}
    running = subprocess.Popen(
        command, cwd=root, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        yield running, f"http://127.0.0.1:{port}"
    finally:
        running.kill()
        running.wait()
        running.stdout.close()
