"""Django's entry for the kit and the wiring."""

from django.apps import AppConfig


class FredConfig(AppConfig):
    """The kit below every app and the wiring above them."""

    name = "fred"
    label = "fred"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Make the Celery app the current one, so that tasks and hints of every process use our broker."""
        import fred.celery  # noqa: F401, PLC0415 - the registry must be ready before task modules load
