"""The periodic tasks of the queue `sweep`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial

from django.conf import settings
from django.db import InterfaceError, OperationalError

from fred import metrics, periodic
from fred.periodic import Job
from reconciliation import cleaning
from reconciliation.sweep import sweep


def cleaned(component: str, clean: Callable[[], object]) -> object:
    """Clean, and count what it raises, unless the database is only away; it is raised all the same."""
    try:
        return clean()
    except (OperationalError, InterfaceError):
        raise
    except Exception:
        metrics.CLEANUP_CRASHES.labels(component).inc()
        raise


JOBS: Mapping[str, Job] = {
    "sweep": Job(partial(sweep, take_over=True), lambda: settings.FRED.reconciliation_interval, timedelta(minutes=10)),
    "spent-tokens": Job(
        partial(cleaned, "token", cleaning.spent_tokens), lambda: timedelta(minutes=1), timedelta(minutes=1)
    ),
    "request-rows": Job(
        partial(cleaned, "request", cleaning.request_rows), lambda: timedelta(minutes=1), timedelta(minutes=1)
    ),
    "row-retention": Job(partial(cleaned, "row", cleaning.old_rows), lambda: timedelta(days=1), timedelta(minutes=30)),
}


def run_due() -> list[str]:
    """Run those that are due and that nobody else is running; return their names."""
    return periodic.run_due(JOBS)
