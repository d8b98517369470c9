"""The Celery app: four queues, a static clock table, and a broker connection that never waits long.

Entry points import this module. A task carries no work, only the hint that some may be there.
"""

import os
from collections.abc import Callable
from typing import Any

from celery import Celery
from celery.app.amqp import AMQP
from kombu import Connection, Exchange, Queue

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fred.settings")

QUEUES = ("lifecycle", "dispatch", "chain", "sweep")
_RECONNECT_MAX_S = 2.0


class PatientConnection(Connection):
    """Reconnects for ever, every two seconds at most: the broker's return is noticed at once."""

    def ensure_connection(
        self,
        errback: Callable[..., Any] | None = None,
        max_retries: int | None = None,
        interval_start: float = 0.2,
        interval_step: float = 0.2,
        interval_max: float = _RECONNECT_MAX_S,
        callback: Callable[[], Any] | None = None,
        reraise_as_library_errors: bool = True,
        timeout: float | None = None,
    ) -> "PatientConnection":
        """Connect, waiting 0.2 s to 2 s between the attempts."""
        super().ensure_connection(
            errback,
            max_retries,
            min(interval_start, _RECONNECT_MAX_S),
            interval_step,
            min(interval_max, _RECONNECT_MAX_S),
            callback,
            reraise_as_library_errors,
            timeout,
        )
        return self


class PatientAMQP(AMQP):
    """Celery's messaging with our connection."""

    Connection = PatientConnection


app = Celery("fred", amqp=PatientAMQP)
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.task_queues = [Queue(name, Exchange(name), routing_key=name) for name in QUEUES]
app.conf.task_routes = {
    "fred.tasks.*": {"queue": "lifecycle"},
    "reconciliation.tasks.take_a_look": {"queue": "lifecycle"},
    "backends.tasks.*": {"queue": "lifecycle"},
    "placements.tasks.*": {"queue": "dispatch"},
    "leases.tasks.*": {"queue": "chain"},
    "reconciliation.tasks.*": {"queue": "sweep"},
}
# Beat only ticks. Every task but the first claims a row, so that a second beat changes nothing.
app.conf.beat_schedule = {
    "due rows nobody took": {"task": "fred.tasks.tick", "schedule": 2.0, "options": {"expires": 2}},
    "sweep": {"task": "reconciliation.tasks.sweep", "schedule": 10.0, "options": {"expires": 10}},
    "health probes": {"task": "backends.tasks.probe_health", "schedule": 15.0, "options": {"expires": 15}},
}
app.autodiscover_tasks()
