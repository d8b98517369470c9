"""What a worker does about backends when it starts."""

import structlog
from celery import signals
from django.db import DatabaseError, connections

from backends import sync

log = structlog.get_logger("backends.tasks")


@signals.worker_init.connect
def sync_at_start(**_: object) -> None:
    """Bring the rows in line before the pool forks. A database that is away leaves the rows as they are."""
    try:
        sync.sync_backends()
    except DatabaseError as error:
        log.warning("backends not synced", error=str(error))
    finally:
        connections.close_all()  # what forks from here must not share a connection
