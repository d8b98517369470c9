"""Periodic tasks: beat ticks, a row decides. Two beats, or none for a while, change nothing but the delay."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta

import structlog
from django.db import connection
from django.db.models.functions import Now

from fred import due
from fred.models import PeriodicTask

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Job:
    """What is run, how often, and how long one run may take at most.

    A run that returns a `timedelta` is run again after that time.
    """

    run: Callable[[], object]
    every: Callable[[], timedelta]
    limit: timedelta


def run_due(jobs: Mapping[str, Job]) -> list[str]:
    """Run those of these tasks that are due and that nobody else is running; return their names."""
    PeriodicTask.objects.bulk_create([PeriodicTask(name=name, due_at=Now()) for name in jobs], ignore_conflicts=True)
    ran = []
    for claim in due.claim(PeriodicTask, len(jobs), where="t.name = ANY(%s)", params=[list(jobs)]):
        _run(claim, jobs[claim.pk])
        ran.append(claim.pk)
    return ran


def _run(claim: due.Claim, job: Job) -> None:
    outcome, after = "error", min(job.every(), due.back_off(claim.attempts))
    PeriodicTask.objects.filter(name=claim.pk, epoch=claim.epoch).update(started_at=Now())
    try:
        with due.holding(PeriodicTask, {claim.pk: claim.epoch}, seconds=job.limit.total_seconds()):
            told = job.run()
        outcome, after = "ok", told if isinstance(told, timedelta) else job.every()
    except Exception:
        log.exception("periodic task failed", periodic=claim.pk)
    finally:
        with connection.cursor() as cursor:
            cursor.execute(
                """
                UPDATE fred_periodictask
                   SET due_at = now() + %s, epoch = epoch + 1, finished_at = now(), outcome = %s,
                       attempts = CASE WHEN %s THEN 0 ELSE attempts END
                 WHERE name = %s AND epoch = %s
                """,
                [after, outcome, outcome == "ok", claim.pk, claim.epoch],  # type: ignore[list-item]
            )
