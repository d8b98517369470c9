"""Django's entry for this app."""

from django.apps import AppConfig


class PlacementsConfig(AppConfig):
    """Which backend serves which lease."""

    name = "placements"
    label = "placements"
    default_auto_field = "django.db.models.BigAutoField"
