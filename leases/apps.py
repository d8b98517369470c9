"""Django's entry for this app."""

from django.apps import AppConfig


class LeasesConfig(AppConfig):
    """What the chain says about leases and what is owed to it."""

    name = "leases"
    label = "leases"
    default_auto_field = "django.db.models.BigAutoField"
