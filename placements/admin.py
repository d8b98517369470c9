"""Placements, operations, callbacks and what backends listed, to look at."""

from django.contrib import admin

from fred.admin import DueFilter, ReadOnlyAdmin, hexadecimal, lease_link
from placements.models import Callback, MaintenanceCommand, Operation, Placement, Provision, Retention, Teardown


@admin.register(Placement)
class PlacementAdmin(ReadOnlyAdmin):
    """Which backend serves which lease."""

    list_display = (lease_link, "status", "backend_id", "lifecycle_id", "set_at", "revision")
    list_display_links = None
    list_filter = ("status", "backend")
    search_fields = ("=lease__uuid",)


@admin.register(Operation)
class OperationAdmin(ReadOnlyAdmin):
    """Attempts to have a workload made."""

    list_display = (
        "id",
        "state",
        lease_link,
        "backend_id",
        "kind",
        "refusal",
        "dispatch_count",
        "due_at",
        "created_at",
        "finished_at",
        "settled_at",
    )
    list_filter = ("state", ("settled_at", admin.EmptyFieldListFilter), DueFilter, "kind", "backend")
    search_fields = ("=id", "=lease__uuid")
    ordering = ("-created_at",)
    digest = hexadecimal("payload_sha256")
    readonly_fields = ("digest",)


@admin.register(MaintenanceCommand)
class MaintenanceCommandAdmin(ReadOnlyAdmin):
    """Restarts and updates that tenants asked for. Empty `settled at`: its answer is not decided yet."""

    list_display = (
        "maintenance_id",
        "kind",
        "state",
        lease_link,
        "backend_id",
        "refusal",
        "error",
        "due_at",
        "admitted_at",
        "settled_at",
        "finished_at",
    )
    list_filter = ("state", ("settled_at", admin.EmptyFieldListFilter), DueFilter, "kind", "keyed", "backend")
    search_fields = ("=maintenance_id", "=lease__uuid")
    ordering = ("-admitted_at",)
    digest = hexadecimal("payload_sha256")
    readonly_fields = ("digest",)


@admin.register(Callback)
class CallbackAdmin(ReadOnlyAdmin):
    """What backends reported. Empty `applied at`: a look has yet to use it."""

    list_display = (
        "id",
        "status",
        lease_link,
        "selector",
        "backend_label",
        "error",
        "received_at",
        "applied_at",
        "verdict",
    )
    list_filter = ("status", "selector", ("applied_at", admin.EmptyFieldListFilter), "verdict")
    search_fields = ("=selector_id", "=lease__uuid")


@admin.register(Teardown)
class TeardownAdmin(ReadOnlyAdmin):
    """What backends are told to remove."""

    list_display = ("id", "state", lease_link, "backend_id", "cause", "due_at", "attempts", "created_at", "done_at")
    list_filter = ("state", DueFilter, "backend")


@admin.register(Provision)
class ProvisionAdmin(ReadOnlyAdmin):
    """Workloads as last listed."""

    list_display = ("id", lease_link, "backend_id", "status", "fail_count", "walk_started_at")
    list_filter = ("status", "backend")
    search_fields = ("=lease_uuid",)


@admin.register(Retention)
class RetentionAdmin(ReadOnlyAdmin):
    """Kept data as last listed."""

    list_display = ("id", lease_link, "backend_id", "status", "tenant", "walk_started_at")
    list_filter = ("backend",)
    search_fields = ("=lease_uuid",)
