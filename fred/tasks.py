"""The base of all tasks, and hints: "some work of this kind may be due", sent at most once a second per kind.

A hint is worth nothing but time. It passes a gate in Valkey; whatever fails on the way, nothing is raised and
nothing waits longer than two limits of 200 ms: what was not hinted is found by the two second task.
"""

import os
import threading
import time
from collections.abc import Callable
from typing import Any

import structlog
from celery import Celery, Task, current_app
from kombu import Connection, Producer
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from fred import logs, metrics

LOOK = "reconciliation.tasks.take_a_look"
DISPATCH = "placements.tasks.dispatch"
LANES = "leases.tasks.lanes"
SUB_SIGNERS = "leases.tasks.sub_signers"
SWEEP = "reconciliation.tasks.sweep"
TICK = "fred.tasks.tick"
PROBE = "reconciliation.tasks.probe_health"
DIALECTS = "reconciliation.tasks.settle_dialects"

GATE_MS = 1000
LIMIT_S = 0.2
EXPIRES_S = 10
_QUIET_AFTER_FAILURE_S = 1.0

log = structlog.get_logger("fred.tasks")


class FredTask(Task[..., Any]):
    """A task that binds its id and name to the log, counts how it ended and never comes back by itself."""

    abstract = True
    ignore_result = True
    acks_late = False
    max_retries = 0
    expires = EXPIRES_S

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it, inside its log context, and count the outcome."""
        started = time.monotonic()
        outcome = "failed"
        with logs.bound(task_id=self.request.id, task=self.name):
            try:
                result = super().__call__(*args, **kwargs)
                outcome = "complete"
                return result  # noqa: TRY300 - the outcome is set just before
            except Exception:
                log.exception("task failed")
                _give_up_broken_connections()
                raise
            finally:
                metrics.TASK_SECONDS.labels(self.name).observe(time.monotonic() - started)
                metrics.TASK_OUTCOMES.labels(self.name, outcome).inc()


def _give_up_broken_connections() -> None:
    """After a failure: a connection that the database has left is closed, and the next task makes a new one.

    Nobody else does it: connections outlive their tasks.
    """
    from django.db import connections  # noqa: PLC0415 - tasks are imported before settings are chosen

    for connection in connections.all(initialized_only=True):
        if connection.connection is not None and not connection.is_usable():
            connection.close()


class Hints:
    """Sends hints through their gate. One object per process; a fork starts with fresh connections.

    `limit_s` bounds each step: the wait for another thread's hint, the gate, the broker's connection and message.
    """

    def __init__(
        self, app: Callable[[], Celery], *, limit_s: float = LIMIT_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._app = app
        self._limit_s = limit_s
        self._clock = clock
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._pid = os.getpid()
        self._valkey: Redis | None = None
        self._producer: Producer | None = None
        self._quiet_until = float("-inf")

    def send(self, task: str, /) -> bool:
        """Hint that this task may have work; False when the gate is closed or anything failed. Never raises."""
        if not self._lock.acquire(timeout=self._limit_s):
            return self._count(task, "busy")
        try:
            if self._pid != os.getpid():
                self._forget()
            if self._clock() < self._quiet_until:
                return self._count(task, "quiet")
            if not self._gate().set(_key(task), "1", nx=True, px=GATE_MS):
                return self._count(task, "gated")
            self._publish(task)
            return self._count(task, "sent")
        except Exception as error:  # noqa: BLE001 - a hint never costs its sender anything
            self._quiet_until = self._clock() + _QUIET_AFTER_FAILURE_S
            self._drop_producer()
            log.debug("hint not sent", task=task, error=error)
            return self._count(task, "failed")
        finally:
            self._lock.release()

    def taken(self, task: str, /) -> None:
        """Open the gate: a task calls this before it claims, so that news after the claim hints again."""
        if not self._lock.acquire(timeout=self._limit_s):
            return
        try:
            if self._pid != os.getpid():
                self._forget()
            if self._clock() >= self._quiet_until:
                self._gate().delete(_key(task))
        except (RedisError, OSError) as error:
            self._quiet_until = self._clock() + _QUIET_AFTER_FAILURE_S
            log.debug("gate not opened", task=task, error=error)
        finally:
            self._lock.release()

    def _gate(self) -> Redis:
        if self._valkey is None:
            from django.conf import settings  # noqa: PLC0415 - tasks are imported before settings are chosen

            self._valkey = Redis.from_url(
                settings.HOUSE.redis_url.get_secret_value(),
                socket_connect_timeout=self._limit_s,
                socket_timeout=self._limit_s,
                retry=Retry(NoBackoff(), 0),
            )
        return self._valkey

    def _publish(self, task: str) -> None:
        app = self._app()
        if self._producer is None:
            connection: Connection = app.connection_for_write(
                connect_timeout=self._limit_s,
                transport_options={
                    "socket_connect_timeout": self._limit_s,
                    "socket_timeout": self._limit_s,
                    "retry_on_timeout": False,
                    "max_retries": 1,
                    "interval_start": 0,
                    "interval_step": 0,
                    "interval_max": 0,
                },
            )
            self._producer = app.amqp.Producer(connection.default_channel, auto_declare=False)
        headers = {"sent_at": time.time()}
        app.send_task(
            task, producer=self._producer, expires=EXPIRES_S, retry=False, ignore_result=True, headers=headers
        )

    def _drop_producer(self) -> None:
        producer, self._producer = self._producer, None
        connection = producer.connection if producer is not None else None
        if connection is not None:
            try:
                connection.release()
            except Exception as error:  # noqa: BLE001 - it is broken already
                log.debug("broken broker connection not closed", error=error)

    @staticmethod
    def _count(task: str, outcome: str) -> bool:
        metrics.HINTS.labels(task, outcome).inc()
        return outcome == "sent"


def _key(task: str) -> str:
    return f"fred:hint:{task}"


hint = Hints(lambda: current_app)
