"""Tasks of the chain queue. Each is a call; what there is to do stands in rows."""

from __future__ import annotations

from typing import Any

import structlog
from celery import shared_task
from celery.signals import worker_init
from django.conf import settings
from django.db import Error, connections

from fred.tasks import LANES, SUB_SIGNERS, FredTask, hint
from leases import lanes as lanes_
from leases import node, subsigner_sql, subsigners
from leases.chain.errors import KeyUnusable

QUEUE = "chain"

log = structlog.get_logger("leases.tasks")


@shared_task(name=LANES, base=FredTask)
def lanes() -> None:
    """Decide open transactions and send what waits for the chain."""
    lanes_.run()


@shared_task(name=SUB_SIGNERS, base=FredTask)
def sub_signers() -> None:
    """Look after the sub-signers, if that is due."""
    hint.taken(SUB_SIGNERS)
    subsigners.run_due()


@worker_init.connect
def check_keys(sender: Any = None, **_: Any) -> None:
    """A worker of the chain queue without the provider's key ends at its start and says why.

    Sub-signers that lack their key are left out. Grants and funds of the others are looked at soon.
    """
    if sender is None or QUEUE not in sender.app.amqp.queues.consume_from:
        return
    try:
        keys = node.sub_keys()
        missing = keys.missing()
    except KeyUnusable as error:
        raise SystemExit(f"the signing key cannot be used: {error}") from error
    if missing:
        log.warning(
            "signer.keys_missing", wanted=settings.FRED.sub_signer_count, missing=len(missing),
            why=list(keys.problems.values()),
        )  # fmt: skip
    if not keys.count:
        return
    try:
        subsigner_sql.ask_for_check()
    except Error as error:
        log.warning("signer.check_not_asked", error=str(error))
    finally:
        connections.close_all()  # what forks from here must not share a connection
