"""Django's entry for this app."""

from django.apps import AppConfig


class BackendsConfig(AppConfig):
    """What runs workloads."""

    name = "backends"
    label = "backends"
    default_auto_field = "django.db.models.BigAutoField"
