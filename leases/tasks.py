"""Tasks of the chain queue. Each is a call; what there is to do stands in rows."""

from __future__ import annotations

from celery import shared_task

from fred.tasks import LANES, FredTask
from leases import lanes as lanes_


@shared_task(name=LANES, base=FredTask)
def lanes() -> None:
    """Decide open transactions and send what waits for the chain."""
    lanes_.run()
