"""Sweeps and decisions, to look at."""

from django.contrib import admin

from fred.admin import ReadOnlyAdmin, lease_link
from reconciliation.models import DecisionRecord, OperatorAction, Sweep, SweepBackend


class SweepBackendInline(admin.TabularInline):  # type: ignore[type-arg]  # subscripted only by the type checker's plugin
    """What each backend gave to a sweep."""

    model = SweepBackend
    extra = 0
    can_delete = False


@admin.register(Sweep)
class SweepAdmin(ReadOnlyAdmin):
    """Comparisons of chain and backends."""

    list_display = ("id", "state", "started_at", "finished_at", "complete", "outcome", "chain_height")
    list_filter = ("state", "complete")
    inlines = (SweepBackendInline,)


@admin.register(DecisionRecord)
class DecisionRecordAdmin(ReadOnlyAdmin):
    """What was decided for leases, and why."""

    list_display = ("id", "decision", lease_link, "phase", "reason", "at")
    list_filter = ("decision", "phase")


@admin.register(OperatorAction)
class OperatorActionAdmin(ReadOnlyAdmin):
    """Who did what to which backend, and why."""

    list_display = ("id", "at", "actor", "source", "action", "target", "result", "reason")
    list_filter = ("action", "result", "source")
    search_fields = ("target", "actor")
