"""Sweeps, decisions and cursors to look at, and what an operator may do to a chain."""

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ActionForm
from django.db.models import QuerySet
from django.http import HttpRequest

from fred.admin import ReadOnlyAdmin, lease_link
from leases.models import ChainCursor
from reconciliation import operators
from reconciliation.models import DecisionRecord, OperatorAction, Sweep, SweepBackend
from reconciliation.operators import Operator, Refused


class ReasonForm(ActionForm):
    """The choice of an action, with the reason for it."""

    reason = forms.CharField(required=False, max_length=500)


@admin.register(ChainCursor)
class ChainCursorAdmin(ReadOnlyAdmin):
    """How far each chain was read, and whether it is believed."""

    list_display = ("chain_id", "last_height", "head_height", "head_seen_at", "alive_at", "suspect_reason")
    action_form = ReasonForm
    actions = ("believe",)  # type: ignore[assignment]  # the base has none

    @admin.action(description="Believe the chain as its node shows it now", permissions=["operate"])
    def believe(self, request: HttpRequest, queryset: QuerySet[ChainCursor]) -> None:
        """End the suspicion, with a reason; the audit trail has who and why."""
        operator = Operator(actor=request.user.get_username(), source="admin")
        for cursor in queryset:
            try:
                ended = operators.believe_chain(
                    cursor.chain_id, reason=request.POST.get("reason", ""), operator=operator
                )
            except Refused as refusal:
                self.message_user(request, f"{cursor.chain_id}: {refusal}", messages.ERROR)
            else:
                self.message_user(request, f"{cursor.chain_id}: {'believed again' if ended else 'was not suspect'}")

    def has_operate_permission(self, request: HttpRequest) -> bool:
        """Who may: users with the permission to change cursors."""
        return bool(request.user.has_perm("leases.change_chaincursor"))


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
