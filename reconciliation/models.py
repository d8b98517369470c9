"""Sweeps over chain and backends, and the record of what was decided."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from leases.models import Lease


class Sweep(models.Model):
    """One comparison of all that the chain lists with all that the backends list."""

    class State(models.TextChoices):
        RUNNING = "running"
        DONE = "done"
        ABANDONED = "abandoned"

    state = models.TextField(choices=State.choices, default=State.RUNNING)
    started_at = models.DateTimeField(db_default=Now())
    heartbeat_at = models.DateTimeField(db_default=Now())
    finished_at = models.DateTimeField(null=True, blank=True)
    outcome = models.TextField(default="", blank=True)
    complete = models.BooleanField(null=True, blank=True)
    chain_height = models.BigIntegerField(null=True, blank=True)
    counts = models.JSONField(default=dict, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["state"], condition=Q(state="running"), name="sweep_one_running"),
        ]

    def __str__(self) -> str:
        return f"sweep {self.pk}"


class SweepBackend(models.Model):
    """One backend's part of a sweep: whether its lists were read to the end, and when the reading began."""

    sweep = models.ForeignKey(Sweep, models.CASCADE)
    backend = models.TextField()
    started_at = models.DateTimeField(db_default=Now())
    provisions = models.TextField(default="", blank=True, help_text="ok, or why the list is not complete.")
    retentions = models.TextField(default="", blank=True)
    complete = models.BooleanField(default=False)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["sweep", "backend"], name="sweep_backend_once")]
        indexes = [
            models.Index(fields=["backend", "-started_at"], name="sweep_backend_newest", condition=Q(complete=True))
        ]

    def __str__(self) -> str:
        return f"{self.backend} in sweep {self.sweep_id}"


class DecisionRecord(models.Model):
    """A decision other than "nothing new": what was decided for a lease, and on which grounds."""

    # The index below begins with the lease: one of its own would only cost.
    lease = models.ForeignKey(Lease, models.CASCADE, db_column="lease_uuid", db_index=False)
    decision = models.TextField()
    phase = models.TextField(default="", blank=True)
    reason = models.TextField(default="", blank=True)
    detail = models.JSONField(default=dict, blank=True)
    at = models.DateTimeField(db_default=Now(), db_index=True)

    class Meta:
        indexes = [models.Index(fields=["lease", "id"], name="decision_lease")]

    def __str__(self) -> str:
        return f"{self.decision} {self.lease_id}"


class OperatorAction(models.Model):
    """What an operator did, or was refused: written with its effect, never changed and never deleted."""

    at = models.DateTimeField(db_default=Now())
    actor = models.TextField(help_text="Who: the admin site's user, or user@host of a command.")
    source = models.TextField(help_text="command or admin")
    action = models.TextField()
    target = models.TextField()
    reason = models.TextField()
    before = models.JSONField(default=dict, blank=True)
    after = models.JSONField(default=dict, blank=True)
    result = models.TextField(help_text="done, unchanged or refused")
    error = models.TextField(default="", blank=True, help_text="Why it was refused.")

    class Meta:
        indexes = [models.Index(fields=["target", "-id"], name="operator_action_target")]

    def __str__(self) -> str:
        return f"{self.action} {self.target}: {self.result}"
