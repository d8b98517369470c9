"""Leases and what the chain owes or says, to look at. A lease's page tells its whole story."""

from collections.abc import Iterator
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import display_for_value, label_for_field, lookup_field
from django.core.exceptions import ObjectDoesNotExist
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html

from fred.admin import DueFilter, ReadOnlyAdmin, hexadecimal, lease_link, link
from fred.decoding import DecodeError, decode_uuid
from leases.models import ChainAction, ChainEvent, ChainTx, Lease, Payload, Signer, StatusEvent
from leases.status import LeaseState

STORY_ROWS = 20
"""How many of each kind a lease's page shows; the link beside leads to all."""


class StateFilter(admin.SimpleListFilter):
    """The state on chain, by its name."""

    title = "chain state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:  # noqa: ARG002
        """The states, and leases that nobody has read yet."""
        return [*((str(int(state)), state.name) for state in LeaseState if state), ("stub", "never read")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:  # noqa: ARG002
        """Narrow the rows to the choice."""
        match self.value():
            case None:
                return queryset
            case "stub":
                return queryset.filter(chain_state=None)
            case number:
                return queryset.filter(chain_state=int(number)) if number.isdigit() else queryset.none()


@admin.register(Lease)
class LeaseAdmin(ReadOnlyAdmin):
    """Leases, newest first, and with each the rows of all tables that belong to it."""

    change_form_template = "admin/leases/lease/change_form.html"
    list_display = ("uuid", "state", "phase", "reason", "tenant", "due_at", "attempts", "chain_height", "looked_at")
    list_filter = (StateFilter, DueFilter, "phase")
    search_fields = ("uuid", "tenant")
    search_help_text = "A lease's uuid or a tenant's address, whole."
    show_hash = hexadecimal("meta_hash")

    @admin.display(description="chain state", ordering="chain_state")
    def state(self, lease: Lease) -> str:
        """The state's name, or its number where this build knows none."""
        if lease.chain_state is None:
            return "never read"
        known = LeaseState.parse(lease.chain_state)
        return known.name if known is not None else str(lease.chain_state)

    def get_fields(self, request: HttpRequest, obj: Lease | None = None) -> list[Any]:
        """How the lease stands and why it waits first; how its row is worked on last."""
        first = ("state", "phase", "reason", "last_error", "uuid", "tenant")
        last = ("due_at", "attempts", "epoch")
        columns = super().get_fields(request, obj)
        return [*first, *(column for column in columns if column not in {*first, *last}), *last]

    def get_readonly_fields(self, request: HttpRequest, obj: Lease | None = None) -> list[Any]:
        """All of them."""
        return [*super().get_readonly_fields(request, obj), "state", "show_hash"]

    def get_search_results(
        self,
        request: HttpRequest,  # noqa: ARG002 - Django's signature
        queryset: QuerySet[Lease],
        search_term: str,
    ) -> tuple[QuerySet[Lease], bool]:
        """Find by whole uuid or address: both have an index, a part of one has none."""
        term = search_term.strip()
        if not term:
            return queryset, False
        try:
            return queryset.filter(uuid=decode_uuid(term)), False
        except DecodeError:
            return queryset.filter(tenant=term), False

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the lease and its story."""
        lease = self.get_object(request, object_id)
        story = list(self._story(request, lease)) if lease is not None else []
        return super().change_view(request, object_id, form_url, {**(extra_context or {}), "story": story})

    def _story(self, request: HttpRequest, lease: Lease) -> Iterator[dict[str, Any]]:
        """Every table that points at the lease, as its own admin shows it, newest first."""
        for relation in Lease._meta.related_objects:
            if not self.admin_site.is_registered(relation.related_model):
                continue
            shown = self.admin_site.get_model_admin(relation.related_model)
            columns = [column for column in shown.get_list_display(request) if column is not lease_link]
            rows = shown.get_queryset(request).filter(**{relation.field.name: lease}).order_by("-pk")
            if not isinstance(shown.list_select_related, bool):
                rows = rows.select_related(*shown.list_select_related)
            found = list(rows[:STORY_ROWS])
            meta = relation.related_model._meta
            name = f"admin:{meta.app_label}_{meta.model_name}"
            yield {
                "title": f"{meta.verbose_name_plural} ({relation.field.name})",
                "url": f"{reverse(f'{name}_changelist')}?{relation.field.name}={lease.pk}",
                "columns": [label_for_field(column, relation.related_model, shown) for column in columns],
                "rows": [
                    {
                        "url": reverse(f"{name}_change", args=[row.pk]),
                        "cells": [_cell(column, row, shown) for column in columns],
                    }
                    for row in found
                ],
            }


def _cell(column: Any, row: Model, shown: Any) -> Any:
    try:
        _, _, value = lookup_field(column, row, shown)
    except ObjectDoesNotExist:
        return "-"
    return value if hasattr(value, "__html__") else display_for_value(value, "-")


@admin.register(Payload)
class PayloadAdmin(ReadOnlyAdmin):
    """Payloads by their hash; the bytes are the tenant's own."""

    list_display = ("id", lease_link, "state", "digest", "corrupt", "stored_at", "delete_after")
    list_filter = ("state", "corrupt", ("delete_after", admin.EmptyFieldListFilter))
    deferred = ("body",)
    digest = hexadecimal("sha256")


@admin.register(ChainEvent)
class ChainEventAdmin(ReadOnlyAdmin):
    """What the chain announced."""

    list_display = ("id", "type", lease_link, "height", "tx_hash", "seen_at")
    list_filter = ("type", "chain_id")
    search_fields = ("=tx_hash",)


@admin.register(Signer)
class SignerAdmin(ReadOnlyAdmin):
    """Keys that sign."""

    list_display = ("address", "role", "index", "usable", "last_error", "due_at", "attempts", "retired_at")
    list_filter = ("role", "usable", DueFilter)


@admin.register(ChainTx)
class ChainTxAdmin(ReadOnlyAdmin):
    """Signed transactions."""

    list_display = ("tx_hash", "kind", "state", "signer_id", "sequence", "height", "code", "created_at", "decided_at")
    list_filter = ("state", "kind", DueFilter, "signer")
    search_fields = ("=tx_hash",)
    deferred = ("tx_bytes",)
    readonly_fields = ("carried",)

    @admin.display(description="actions")
    def carried(self, tx: ChainTx) -> Any:
        """Link to what it carries."""
        return format_html('<a href="{}?tx={}">show</a>', reverse("admin:leases_chainaction_changelist"), tx.pk)


@admin.register(ChainAction)
class ChainActionAdmin(ReadOnlyAdmin):
    """What is or was wanted on chain."""

    list_display = ("id", "verb", "state", lease_link, "transaction", "reason", "due_at", "attempts", "created_at")
    list_filter = ("verb", "state", DueFilter)
    list_select_related = ("tx",)

    @admin.display(description="transaction")
    def transaction(self, action: ChainAction) -> Any:
        """Link to the transaction that carries it."""
        return link("leases.chaintx", action.tx_id)


@admin.register(StatusEvent)
class StatusEventAdmin(ReadOnlyAdmin):
    """What subscribers were told."""

    list_display = ("id", "status", lease_link, "error", "request_id", "at")
    list_filter = ("status",)
