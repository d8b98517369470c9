"""Django's entry for this app."""

from django.apps import AppConfig


class LeasesConfig(AppConfig):
    """What the chain says about leases and what is owed to it."""

    name = "leases"
    label = "leases"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Offer the balances of the signers to whoever scrapes."""
        from fred.gauges import shared_gauges  # noqa: PLC0415 - models must be loaded first
        from leases import balances  # noqa: PLC0415

        shared_gauges.register("balances", balances.Balances().samples)
