"""What must be remembered of tenants' requests: tokens that were used, keys of requests, and what was changed."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now


class UsedToken(models.Model):
    """One spent tenant token; the unique key decides which of two equal requests came first."""

    key = models.TextField(primary_key=True, help_text="Standard base64 of the 64 signature bytes in low-S form.")
    expires_at = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return self.key


class IdempotencyKey(models.Model):
    """A request that its tenant named: the one who runs it, or its stored answer.

    The unique scope decides who runs. ``attempt`` is the fence: it rises when another takes a stale claim over, and
    what the former holder writes then changes nothing. ``operation_id`` stays over take-overs, so that a backend sees
    one command.
    """

    class State(models.TextChoices):
        IN_PROGRESS = "in_progress"
        DONE = "done"

    tenant = models.TextField()
    method = models.TextField()
    path = models.TextField(help_text="With the lease in canonical form.")
    key = models.TextField()
    request_sha256 = models.BinaryField(help_text="Of the raw body.")
    operation_id = models.UUIDField()
    attempt = models.IntegerField(default=1)
    request_id = models.TextField(default="", blank=True)
    state = models.TextField(choices=State.choices, default=State.IN_PROGRESS)
    claimed_at = models.DateTimeField(db_default=Now())
    claim_expires_at = models.DateTimeField(help_text="From then on somebody else may run it.")
    status = models.SmallIntegerField(null=True, blank=True)
    content_type = models.TextField(default="", blank=True)
    body = models.BinaryField(default=b"")
    expires_at = models.DateTimeField(help_text="From then on nobody knows of it.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "path", "key", "method"], name="idempotency_scope"),
            models.CheckConstraint(
                condition=~Q(state="done") | Q(status__isnull=False), name="idempotency_done_answers"
            ),
        ]
        indexes = [models.Index(fields=["expires_at"], name="idempotency_expires")]

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class TenantRequest(models.Model):
    """A request of a tenant that changes something, as it was answered. No payloads, no tokens. Append-only."""

    at = models.DateTimeField(db_default=Now(), db_index=True)
    request_id = models.TextField(default="", blank=True)
    tenant = models.TextField()
    lease_uuid = models.UUIDField(db_index=True)
    route = models.TextField()
    status = models.SmallIntegerField()
    operation_id = models.UUIDField(null=True, blank=True)

    def __str__(self) -> str:
        return f"{self.route} of {self.lease_uuid}: {self.status}"
