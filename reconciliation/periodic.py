"""Periodic tasks: beat ticks, a row decides. Two beats, or none for a while, change nothing but the delay."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta

import structlog
from django.conf import settings
from django.db import connection
from django.db.models.functions import Now

from fred import due
from fred.models import PeriodicTask
from reconciliation import cleaning
from reconciliation.sweep import sweep

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Job:
    """What is run, how often, and how long one run may take at most."""

    run: Callable[[], object]
    every: Callable[[], timedelta]
    limit: timedelta


JOBS: Mapping[str, Job] = {
    "sweep": Job(sweep, lambda: settings.FRED.reconciliation_interval, timedelta(minutes=10)),
    "spent-tokens": Job(cleaning.spent_tokens, lambda: timedelta(minutes=1), timedelta(minutes=1)),
    "row-retention": Job(cleaning.old_rows, lambda: timedelta(days=1), timedelta(minutes=30)),
}


def run_due() -> list[str]:
    """Run the periodic tasks that are due and that nobody else is running; return their names."""
    PeriodicTask.objects.bulk_create([PeriodicTask(name=name, due_at=Now()) for name in JOBS], ignore_conflicts=True)
    ran = []
    for claim in due.claim(PeriodicTask, len(JOBS), where="t.name = ANY(%s)", params=[list(JOBS)]):
        _run(claim)
        ran.append(claim.pk)
    return ran


def _run(claim: due.Claim) -> None:
    job, outcome = JOBS[claim.pk], "error"
    PeriodicTask.objects.filter(name=claim.pk, epoch=claim.epoch).update(started_at=Now())
    try:
        with due.holding(PeriodicTask, {claim.pk: claim.epoch}, seconds=job.limit.total_seconds()):
            job.run()
        outcome = "ok"
    except Exception:
        log.exception("periodic task failed", periodic=claim.pk)
    finally:
        with connection.cursor() as cursor:
            cursor.execute(
                """
                UPDATE fred_periodictask SET due_at = now() + %s, epoch = epoch + 1, attempts = 0,
                       finished_at = now(), outcome = %s WHERE name = %s AND epoch = %s
                """,
                [
                    job.every() if outcome == "ok" else min(job.every(), due.back_off(claim.attempts)),  # type: ignore[list-item]
                    outcome,
                    claim.pk,
                    claim.epoch,
                ],
            )
