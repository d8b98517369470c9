"""The Celery app: four queues, a static clock table, and a broker connection that never waits long.

Entry points import this module. A task carries no work, only the hint that some may be there.
"""

import os
from typing import Any

from celery import Celery, signals
from celery.app.amqp import AMQP
from kombu import Connection, Exchange, Queue

from fred import tasks

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fred.settings")

QUEUES = ("lifecycle", "dispatch", "chain", "sweep")
_PATIENCE = {"interval_start": 0.2, "interval_step": 0.2, "interval_max": 2.0}


class PatientConnection(Connection):
    """Reconnects for ever, every two seconds at most: the broker's return is noticed at once."""

    def ensure_connection(self, *args: Any, **kwargs: Any) -> "PatientConnection":
        """Connect, waiting 0.2 s to 2 s between the attempts."""
        super().ensure_connection(*args, **{**_PATIENCE, **kwargs})
        return self


class PatientAMQP(AMQP):
    """Celery's messaging with our connection."""

    Connection = PatientConnection


app = Celery("fred", amqp=PatientAMQP)
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.task_queues = [Queue(name, Exchange(name), routing_key=name) for name in QUEUES]
app.conf.task_routes = {
    tasks.TICK: {"queue": "lifecycle"},
    tasks.LOOK: {"queue": "lifecycle"},
    tasks.PROBE: {"queue": "lifecycle"},
    tasks.DIALECTS: {"queue": "lifecycle"},
    "placements.tasks.*": {"queue": "dispatch"},
    "leases.tasks.*": {"queue": "chain"},
    "reconciliation.tasks.*": {"queue": "sweep"},
}
# Beat only ticks. Every task but the first claims a row, so that a second beat changes nothing.
app.conf.beat_schedule = {
    "due rows nobody took": {"task": tasks.TICK, "schedule": 2.0, "options": {"expires": 2}},
    "sweep": {"task": tasks.SWEEP, "schedule": 10.0, "options": {"expires": 10}},
    "sub-signers": {"task": tasks.SUB_SIGNERS, "schedule": 10.0, "options": {"expires": 10}},
    "health probes": {"task": tasks.PROBE, "schedule": 15.0, "options": {"expires": 15}},
}
app.autodiscover_tasks()


@signals.setup_logging.connect
def _leave_logging_alone(**_: object) -> None:
    """Being connected is enough: Celery then configures no logging of its own."""


@signals.worker_ready.connect
@signals.beat_init.connect
def _start_heartbeat(**_: object) -> None:
    """The main process beats; its children come and go."""
    from django.apps import apps  # noqa: PLC0415 - settings are read when the process is up

    apps.get_app_config("fred").start_heartbeat()  # type: ignore[attr-defined]
