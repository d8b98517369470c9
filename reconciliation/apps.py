"""Django's entry for this app."""

from django.apps import AppConfig


class ReconciliationConfig(AppConfig):
    """Making chain, rows and backends agree."""

    name = "reconciliation"
    label = "reconciliation"
    default_auto_field = "django.db.models.BigAutoField"
