"""Tasks of the lifecycle and sweep queues. They carry hints: rows decide what is done."""

from __future__ import annotations

from celery import shared_task

from fred.tasks import EXPIRES_S, LOOK, FredTask
from reconciliation import look


@shared_task(name=LOOK, base=FredTask, ignore_result=True, expires=EXPIRES_S)
def take_a_look() -> None:
    """Look at what is due."""
    look.at_due_leases()
