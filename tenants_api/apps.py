"""Django's entry for this app."""

from django.apps import AppConfig


class TenantsApiConfig(AppConfig):
    """What tenants see: REST, WebSocket and server-sent events."""

    name = "tenants_api"
    label = "tenants_api"
    default_auto_field = "django.db.models.BigAutoField"
