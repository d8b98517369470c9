"""The one table of the kit: periodic tasks, each run by whoever claims its row."""

from __future__ import annotations

from django.db import models

from fred.due import Due


class PeriodicTask(Due):
    """A task that runs every so often, once at a time, whichever worker claims it.

    Beat only ticks; the row decides. ``due_at`` of a new row is now, so a new task runs at once.
    """

    name = models.TextField(primary_key=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    outcome = models.TextField(default="", blank=True)

    class Meta(Due.Meta):
        abstract = False
        indexes = [models.Index(fields=["due_at"], name="periodic_due", condition=models.Q(due_at__isnull=False))]

    def __str__(self) -> str:
        return self.name
