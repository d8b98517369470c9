"""A worker whose broker dies and comes back goes on by itself, soon."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fred.celery import PatientAMQP
from fred.dev.servers import ValkeyServer
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
QUEUE = "sweep"


@pytest.fixture
def broker(tmp_path):
    with ValkeyServer(tmp_path / "valkey") as server:
        yield server


@pytest.fixture
def worker(broker, tmp_path):
    log = tmp_path / "worker.log"
    command = [sys.executable, "-m", "celery", "-A", "fred", "worker", "-Q", QUEUE, "-P", "solo", "--without-mingle"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "REDIS_URL": broker.url, "CELERY_BROKER_URL": broker.url},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until(lambda: "ready." in log.read_text(encoding="utf-8"), timeout=30)
        yield log
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(10)


def publish(url):
    """Put a message into the worker's queue, of a task that it does not know and so only drops."""
    from celery import Celery

    app = Celery("publisher", amqp=PatientAMQP, set_as_current=False)
    app.conf.broker_write_url = url
    app.conf.task_default_queue = QUEUE
    app.send_task("tests.unknown", queue=QUEUE, ignore_result=True)


def test_a_worker_takes_messages_within_seconds_of_its_brokers_return(broker, worker):
    def lines(text):
        return sum(text in line for line in worker.read_text(encoding="utf-8").splitlines())

    def dropped():
        return lines("Received unregistered task")

    publish(broker.url)
    wait_until(lambda: dropped() == 1, timeout=20)

    os.kill(broker.pid, signal.SIGKILL)
    wait_until(lambda: lines("Cannot connect to") >= 12, timeout=40)

    broker.restart()
    publish(broker.url)
    # Left to itself the library would wait for over twenty seconds by now.
    wait_until(lambda: dropped() == 2, timeout=10)
