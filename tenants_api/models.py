"""Tokens that were used, so that none is used twice where the route forbids it."""

from __future__ import annotations

from django.db import models


class UsedToken(models.Model):
    """One spent tenant token; the unique key decides which of two equal requests came first."""

    key = models.TextField(primary_key=True, help_text="Standard base64 of the 64 signature bytes in low-S form.")
    expires_at = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return self.key
