"""Tasks of the chain queue. Each is a call; what there is to do stands in rows."""

from __future__ import annotations

import os
from functools import cache

from celery import shared_task

from fred.tasks import LANES, FredTask
from leases import lanes as lanes_


@shared_task(name=LANES, base=FredTask)
def lanes() -> None:
    """Decide open transactions and send what waits for the chain."""
    _know_signers(os.getpid())
    lanes_.run()


@cache
def _know_signers(_pid: int) -> None:
    """Give this process's keys their rows before its first work: only who signs needs the key and knows it."""
    lanes_.ensure_signers()
