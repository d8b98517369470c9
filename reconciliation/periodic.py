"""The periodic tasks of the queue `sweep`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import partial

from django.conf import settings

from fred import periodic
from fred.periodic import Job
from reconciliation import cleaning
from reconciliation.sweep import sweep

JOBS: Mapping[str, Job] = {
    "sweep": Job(partial(sweep, take_over=True), lambda: settings.FRED.reconciliation_interval, timedelta(minutes=10)),
    "spent-tokens": Job(cleaning.spent_tokens, lambda: timedelta(minutes=1), timedelta(minutes=1)),
    "request-rows": Job(cleaning.request_rows, lambda: timedelta(minutes=1), timedelta(minutes=1)),
    "row-retention": Job(cleaning.old_rows, lambda: timedelta(days=1), timedelta(minutes=30)),
}


def run_due() -> list[str]:
    """Run those that are due and that nobody else is running; return their names."""
    return periodic.run_due(JOBS)
