"""Hints: at most one a second and kind through the gate, bounded in time, never an error, none of it needed."""

import os
import socket
import threading
import time
from contextlib import suppress

import pytest
from celery import Celery

from fred import tasks
from fred.celery import app
from fred.tasks import FredTask, Hints

TASK = "placements.tasks.dispatch"
QUEUE = "dispatch"
BOUNDED_S = 5.0
"""More than all steps may take, with what a busy machine adds, and less than waiting or trying for ever."""


@pytest.fixture
def clock():
    class Clock:
        now = 0.0

        def __call__(self):
            return self.now

    return Clock()


@pytest.fixture
def hints(valkey, clock, monkeypatch):
    monkeypatch.setattr(tasks, "GATE_MS", 60_000)
    return Hints(lambda: app, limit_s=10.0, clock=clock)  # a busy machine must not decide these tests


def broker_at(url):
    """An app whose messages go to this address, whatever the environment says."""
    lost = Celery("lost", set_as_current=False)
    lost.conf.broker_write_url = url
    return lost


def at(url, clock=time.monotonic):
    """Hints whose Valkey and broker are at this address."""
    hints = Hints(lambda: broker_at(url), clock=clock)
    from redis import Redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    hints._valkey = Redis.from_url(url, socket_connect_timeout=0.2, socket_timeout=0.2, retry=Retry(NoBackoff(), 0))
    return hints


class Silent:
    """A server that takes connections and never answers."""

    def __init__(self, server):
        self._server = server
        self.url = f"redis://127.0.0.1:{server.getsockname()[1]}/0"
        server.setblocking(False)

    def connections(self):
        """How many were made since this was last asked."""
        number = 0
        with suppress(BlockingIOError):
            while True:
                self._server.accept()[0].close()
                number += 1
        return number


@pytest.fixture
def silent():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield Silent(server)


def test_a_hint_becomes_one_message_in_its_queue(valkey, hints):
    assert hints.send(TASK)
    assert valkey.llen(QUEUE) == 1
    message = valkey.lindex(QUEUE, 0)
    assert TASK.encode() in message


def test_the_gate_opens_after_a_second():
    assert tasks.GATE_MS == 1000


def test_the_gate_lets_one_hint_through_for_each_kind_until_it_opens(valkey, hints):
    assert hints.send(TASK)
    assert not hints.send(TASK)
    assert hints.send("leases.tasks.lanes")
    assert valkey.llen(QUEUE) == 1
    assert 0 < valkey.pttl("fred:hint:placements.tasks.dispatch") <= 60_000
    valkey.delete("fred:hint:placements.tasks.dispatch")  # it opens
    assert hints.send(TASK)


def test_a_task_that_begins_opens_the_gate_again(valkey, hints):
    assert hints.send(TASK)
    hints.taken(TASK)
    assert hints.send(TASK)
    assert valkey.llen(QUEUE) == 2


def test_many_threads_send_one_hint(valkey, hints, run_in_threads):
    assert sum(run_in_threads(8, lambda: hints.send(TASK))) == 1
    assert valkey.llen(QUEUE) == 1


def test_a_silent_valkey_is_asked_once_and_not_for_long(silent, clock):
    hints = at(silent.url, clock)
    started = time.monotonic()
    assert not hints.send(TASK)
    assert time.monotonic() - started < BOUNDED_S
    assert silent.connections() == 1


def test_after_a_failure_nothing_is_tried_for_a_second(silent, clock):
    hints = at(silent.url, clock)
    assert not hints.send(TASK)
    assert silent.connections() == 1
    clock.now = 0.99
    assert not hints.send(TASK)
    hints.taken(TASK)
    assert silent.connections() == 0
    clock.now = 1.0
    assert not hints.send(TASK)
    assert silent.connections() == 1


def test_a_refused_connection_is_no_error():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    hints = at(f"redis://127.0.0.1:{port}/0")
    assert not hints.send(TASK)
    hints.taken(TASK)


def test_a_broker_that_refuses_after_the_gate_is_no_error(valkey, clock):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    hints = Hints(lambda: broker_at(f"redis://127.0.0.1:{port}/0"), clock=clock)
    started = time.monotonic()
    assert not hints.send(TASK)
    assert time.monotonic() - started < BOUNDED_S


def test_a_broker_that_is_silent_after_the_gate_is_not_waited_for_long(valkey, silent, clock):
    hints = Hints(lambda: broker_at(silent.url), limit_s=1.0, clock=clock)  # enough for the gate
    started = time.monotonic()
    assert not hints.send(TASK)
    assert time.monotonic() - started < BOUNDED_S
    assert 1 <= silent.connections() <= 2


def test_each_step_has_a_fifth_of_a_second():
    assert Hints(lambda: app)._limit_s == 0.2


def test_hints_go_on_when_valkey_is_back(valkey, hints, clock):
    hints._valkey = at("redis://127.0.0.1:1/0")._valkey
    assert not hints.send(TASK)
    hints._valkey = None
    clock.now = 1.5
    assert hints.send(TASK)


def test_a_flushed_valkey_gets_the_next_hint(valkey, hints):
    assert hints.send(TASK)
    valkey.flushdb()
    assert hints.send(TASK)
    assert valkey.llen(QUEUE) == 1


def test_a_fork_uses_connections_of_its_own(valkey, hints):
    assert hints.send(TASK)
    hints.taken(TASK)
    before = hints._valkey
    hints._pid = -1
    assert hints.send(TASK)
    assert hints._pid == os.getpid()
    assert hints._valkey is not before
    assert valkey.llen(QUEUE) == 2


def test_a_busy_sender_is_not_waited_for_long(valkey):
    busy = Hints(lambda: app)
    held, done = threading.Event(), threading.Event()

    def hold():
        with busy._lock:
            held.set()
            done.wait(10)

    holder = threading.Thread(target=hold, daemon=True)
    holder.start()
    assert held.wait(10)
    assert not busy.send(TASK)
    done.set()
    holder.join(10)


def test_a_hint_expires_and_has_no_arguments(valkey, hints):
    import base64
    import json

    hints.send(TASK)
    message = json.loads(valkey.lindex(QUEUE, 0))
    assert message["headers"]["expires"]
    arguments, options, _ = json.loads(base64.b64decode(message["body"]))
    assert (arguments, options) == ([], {})


def test_a_task_counts_how_it_ended_and_raises_on():
    from prometheus_client import REGISTRY

    own = Celery("own", broker="memory://", set_as_current=False)

    @own.task(name="tests.good", base=FredTask)
    def good():
        return 1

    @own.task(name="tests.bad", base=FredTask)
    def bad():
        raise ValueError("no")

    def count(task, outcome):
        return REGISTRY.get_sample_value("fred_task_outcomes_total", {"task": task, "outcome": outcome}) or 0

    assert good() == 1
    with pytest.raises(ValueError, match="no"):
        bad()
    assert (count("tests.good", "complete"), count("tests.bad", "failed")) == (1, 1)


def test_a_task_binds_its_name_to_the_log():
    from structlog.contextvars import get_contextvars

    own = Celery("own", broker="memory://", set_as_current=False)
    seen = {}

    @own.task(name="tests.seen", base=FredTask)
    def look():
        seen.update(get_contextvars())

    look.apply()
    assert seen["task"] == "tests.seen"
    assert seen["task_id"]
    assert "task" not in get_contextvars()


def test_the_names_of_tasks_have_queues():
    queues = {
        name: app.amqp.router.route({}, name)["queue"].name
        for name in (tasks.LOOK, tasks.DISPATCH, tasks.LANES, tasks.SWEEP, tasks.TICK, tasks.PROBE, tasks.DIALECTS)
    }
    assert queues == {
        "reconciliation.tasks.take_a_look": "lifecycle",
        "placements.tasks.dispatch": "dispatch",
        "leases.tasks.lanes": "chain",
        "reconciliation.tasks.sweep": "sweep",
        "fred.tasks.tick": "lifecycle",
        "reconciliation.tasks.probe_health": "lifecycle",
        "reconciliation.tasks.settle_dialects": "lifecycle",
    }
