"""Backends as rows, and the last health check of each source."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now


class Backend(models.Model):
    """A backend of the configuration. Rows are made at start and never deleted: placements point at them.

    A row whose name left the configuration stays with ``configured`` false and receives no request. A retired one never
    does again, whatever the configuration says.
    """

    BY_CONFIGURATION = "configuration"
    BY_OPERATOR = "operator"

    class Contract(models.TextChoices):
        AUTO = "auto"
        V0_13 = "v0_13"
        CURRENT = "current"

    name = models.TextField(primary_key=True)
    url = models.TextField()
    position = models.IntegerField(default=0, help_text="Order in the configuration; ties in routing follow it.")
    skus = models.JSONField(default=list)
    is_default = models.BooleanField(default=False)
    timeout_ms = models.IntegerField(default=30_000)
    contract = models.TextField(choices=Contract.choices, default=Contract.AUTO, help_text="As configured.")
    dialect = models.TextField(default="unset", help_text="As seen: unset, v0_13 or current.")
    key_id = models.TextField(default="", blank=True, help_text="First bytes of the HMAC key's digest; never the key.")
    storage_id = models.UUIDField(null=True, blank=True, unique=True)
    configured = models.BooleanField(default=True)
    fenced = models.BooleanField(default=False)
    fenced_by = models.TextField(
        default="", blank=True, help_text="Who fenced it: the configuration, which may take it back, or an operator."
    )
    drained = models.BooleanField(default=False)
    retired_at = models.DateTimeField(null=True, blank=True)
    updated_at = models.DateTimeField(db_default=Now())
    takes_calls = models.GeneratedField(
        expression=models.ExpressionWrapper(
            models.Q(configured=True, fenced=False, retired_at__isnull=True)
            & (models.Q(contract="v0_13") | models.Q(contract="auto", dialect="v0_13")),
            output_field=models.BooleanField(),
        ),
        output_field=models.BooleanField(),
        db_persist=True,
        help_text="Whether anything may be pushed to it: who claims a push reads only this.",
    )

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=models.Q(contract__in=["auto", "v0_13", "current"]), name="backend_contract"
            ),
            models.CheckConstraint(
                condition=models.Q(dialect__in=["unset", "v0_13", "current"]), name="backend_dialect"
            ),
        ]

    def __str__(self) -> str:
        return self.name


class HealthCheck(models.Model):
    """The last probe of one source (``chain``, ``backend:NAME``, …); health routes read rows and probe nothing."""

    name = models.TextField(primary_key=True)
    healthy = models.BooleanField()
    detail = models.TextField(default="", blank=True)
    checked_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return self.name
