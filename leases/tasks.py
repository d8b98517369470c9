"""Tasks of the chain queue. Each is a call; what there is to do stands in rows."""

from __future__ import annotations

from typing import Any

from celery import shared_task
from celery.signals import worker_init

from fred.tasks import LANES, FredTask
from leases import lanes as lanes_
from leases import node
from leases.chain.errors import KeyUnusable

QUEUE = "chain"


@shared_task(name=LANES, base=FredTask)
def lanes() -> None:
    """Decide open transactions and send what waits for the chain."""
    lanes_.run()


@worker_init.connect
def check_keys(sender: Any = None, **_: Any) -> None:
    """A worker of the chain queue without the provider's key ends at its start and says why."""
    if sender is None or QUEUE not in sender.app.amqp.queues.consume_from:
        return
    try:
        node.signers()
    except KeyUnusable as error:
        raise SystemExit(f"the signing key cannot be used: {error}") from error
