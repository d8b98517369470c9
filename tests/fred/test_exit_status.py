"""A process that a signal stopped has done what it was asked: supervisors see exit status 0."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest
from django.db import connection

from fred.dev.foreground import free_port
from tests.fred.served import connect, live
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]
ROOT = Path(__file__).resolve().parents[2]
_threads = ThreadPoolExecutor(1)


async def never_done(scope, receive, send):
    """An application that begins what no stop waits for: its thread never ends."""
    if scope["type"] == "lifespan":
        await live(receive, send)
        return
    _threads.submit(threading.Event().wait)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


@contextmanager
def started(*words, port=0):
    """`python -m` these words, on this test's database; killed at the latest at the end of the block."""
    parts = urlsplit(os.environ["DATABASE_URL"])
    given = {
        "DATABASE_URL": urlunsplit(parts._replace(path="/" + connection.settings_dict["NAME"])),
        "PROVIDER_API_LISTEN_ADDR": f"127.0.0.1:{port}",
        "FRED_ADMIN_LISTEN_ADDR": f"127.0.0.1:{port}",
    }
    with subprocess.Popen([sys.executable, "-m", *words], cwd=ROOT, env={**os.environ, **given}) as running:
        try:
            yield running
        finally:
            running.kill()


def is_seen(valkey, running):
    """Whether the process has a heartbeat."""
    return any(key.endswith(f":{running.pid}".encode()) for key in valkey.scan_iter("fred:up:*"))


def is_served(port, path):
    try:
        with connect(port) as line:
            line.send(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            return line.answer().status == 200
    except ConnectionRefusedError:
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
@pytest.mark.parametrize("process", ["web", "admin"])
def test_web_and_admin_end_with_0(process, number, valkey):
    port = free_port()
    with started("fred.serve", process, port=port) as running:
        wait_until(lambda: is_served(port, "/health") and is_seen(valkey, running))
        running.send_signal(number)
        assert running.wait(60) == 0
        assert not is_seen(valkey, running)  # nobody takes it for alive for another minute


def test_a_thread_that_never_ends_holds_nothing_up():
    port = free_port()
    with started("fred.server", "tests.fred.test_exit_status:never_done", port=port) as running:
        wait_until(lambda: is_served(port, "/"))
        running.terminate()
        assert running.wait(60) == 0


@pytest.mark.parametrize("process", ["worker", "beat"])
def test_a_worker_and_the_clock_end_with_0(process, valkey, tmp_path):
    more = ["--schedule", str(tmp_path / "schedule")] if process == "beat" else []
    with started("fred.serve", process, *more) as running:
        wait_until(lambda: is_seen(valkey, running))
        running.terminate()
        assert running.wait(60) == 0
