"""Tasks of the lifecycle and sweep queues. They carry hints: rows decide what is done."""

from __future__ import annotations

from celery import shared_task

from fred.tasks import EXPIRES_S, LOOK, PROBE, SWEEP, TICK, FredTask
from reconciliation import look, periodic, probes, tick


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
