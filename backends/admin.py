"""Backends and health, to look at."""

from django.contrib import admin

from backends.models import Backend, HealthCheck
from fred.admin import ReadOnlyAdmin


@admin.register(Backend)
class BackendAdmin(ReadOnlyAdmin):
    """Backends of the configuration, now and before."""

    list_display = (
        "name",
        "url",
        "contract",
        "dialect",
        "is_default",
        "configured",
        "fenced",
        "drained",
        "takes_calls",
        "key_id",
    )
    list_filter = ("configured", "fenced", "drained", "contract", "dialect")
    ordering = ("position", "name")


@admin.register(HealthCheck)
class HealthCheckAdmin(ReadOnlyAdmin):
    """The last probe of each source."""

    list_display = ("name", "healthy", "detail", "checked_at")
    list_filter = ("healthy",)
    ordering = ("name",)
