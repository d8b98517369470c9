"""What is remembered of tenants' requests, to look at."""

from django.contrib import admin

from fred.admin import ReadOnlyAdmin
from tenants_api.models import IdempotencyKey, TenantRequest, UsedToken


@admin.register(UsedToken)
class UsedTokenAdmin(ReadOnlyAdmin):
    """Tokens that are no good any more."""

    list_display = ("key", "expires_at")
    ordering = ("-expires_at",)


@admin.register(IdempotencyKey)
class IdempotencyKeyAdmin(ReadOnlyAdmin):
    """Requests that their tenants named, and how they were answered."""

    list_display = ("path", "tenant", "key", "state", "status", "attempt", "claimed_at", "expires_at")
    list_filter = ("state",)
    search_fields = ("path", "tenant")
    deferred = ("request_sha256", "body")


@admin.register(TenantRequest)
class TenantRequestAdmin(ReadOnlyAdmin):
    """What tenants asked to have changed, and what they were told."""

    list_display = ("at", "route", "lease_uuid", "tenant", "status", "operation_id", "request_id")
    list_filter = ("route", "status")
    search_fields = ("=lease_uuid", "=tenant", "=request_id")
