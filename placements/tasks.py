"""Tasks that push to backends. They carry hints: the sender does the work."""

from __future__ import annotations

from celery import shared_task
from celery.signals import worker_process_shutdown

from fred.tasks import DISPATCH, EXPIRES_S, FredTask
from placements import dispatch


@shared_task(name=DISPATCH, base=FredTask, ignore_result=True, expires=EXPIRES_S)
def push_what_is_due() -> None:
    """Let this process's sender claim what is due for the backends."""
    dispatch.pull()


@worker_process_shutdown.connect(dispatch_uid="placements.drain")
def drain(**_: object) -> None:
    """A child ends, also by recycling: running calls get five seconds, the rest goes back."""
    dispatch.drain()
