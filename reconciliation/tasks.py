"""Tasks of the lifecycle and sweep queues. They carry hints: rows decide what is done."""

from __future__ import annotations

import structlog
from celery import shared_task, signals
from django.db import Error, connections

from fred.tasks import DIALECTS, EXPIRES_S, LOOK, PROBE, SWEEP, TICK, FredTask
from reconciliation import dialects, look, periodic, probes, tick

log = structlog.get_logger("reconciliation.tasks")


@shared_task(name=LOOK, base=FredTask, ignore_result=True, expires=EXPIRES_S)
def take_a_look() -> None:
    """Look at what is due."""
    look.at_due_leases()


@shared_task(name=SWEEP, base=FredTask, ignore_result=True, expires=EXPIRES_S)
def run_periodic_tasks() -> None:
    """Run the periodic tasks whose rows are due."""
    periodic.run_due()


@shared_task(name=TICK, base=FredTask, ignore_result=True, expires=EXPIRES_S)
def hint_what_nobody_took() -> None:
    """Hint again what is due and was not taken."""
    tick.hint_overdue()


@shared_task(name=PROBE, base=FredTask, ignore_result=True, expires=EXPIRES_S)
def probe_health() -> None:
    """Ask chain and backends whether they are well."""
    probes.probe_all()


@shared_task(name=DIALECTS, base=FredTask, ignore_result=True, expires=EXPIRES_S)
def settle_dialects() -> None:
    """Ask the backends that nobody has asked yet which dialect they speak."""
    dialects.discover()


@signals.worker_ready.connect
def test_dialects_at_start(**_: object) -> None:
    """What was found so far may have been an older program of the same backend: ask again."""
    try:
        dialects.discover(again=True)
    except Error as error:
        log.warning("dialects not tested", error=str(error))
    finally:
        connections.close_all()
