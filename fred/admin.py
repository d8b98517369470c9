"""The admin site: it looks at everything and changes nothing."""

from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar
from uuid import UUID

from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.core.paginator import Paginator
from django.db import connections, models
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from fred.due import STUCK_AFTER
from fred.models import PeriodicTask

admin.site.site_header = "Fred"
admin.site.site_title = "Fred"
admin.site.index_title = "What the control plane knows"

_COUNT_EXACTLY_BELOW = 20_000


class EstimatingPaginator(Paginator):  # type: ignore[type-arg]  # Django's class is not generic at run time
    """Counts small tables, and takes PostgreSQL's estimate of a large one that is listed without a filter."""

    @cached_property
    def count(self) -> int:
        """The number of rows, or about that many."""
        rows = self.object_list
        if isinstance(rows, QuerySet) and not rows.query.where:
            with connections[rows.db].cursor() as cursor:
                cursor.execute(
                    "SELECT reltuples::bigint FROM pg_class WHERE oid = %s::regclass", [rows.model._meta.db_table]
                )
                estimate = int(cursor.fetchone()[0])
            if estimate >= _COUNT_EXACTLY_BELOW:
                return estimate
        return int(super().count)


class ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # subscripted only by the type checker's plugin
    """A table to look at: newest first, nothing to add, change or delete.

    ``deferred`` names columns with bulk that no page shows.
    """

    ordering: ClassVar[tuple[str, ...]] = ("-pk",)
    paginator = EstimatingPaginator
    show_full_result_count = False
    list_per_page = 50
    actions = None
    deferred: ClassVar[tuple[str, ...]] = ()

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Leave the bulk in the database."""
        return super().get_queryset(request).defer(*self.deferred)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        """Rows are made by the product alone."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        """Rows are changed by the product alone."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        """Rows end by their age."""
        return False


def link(model: str, key: object) -> SafeString | str:
    """Link to the page of a row; ``model`` as `app.model`."""
    if key is None or key == "":
        return "-"
    app, name = model.split(".")
    return format_html('<a href="{}">{}</a>', reverse(f"admin:{app}_{name}_change", args=[key]), key)


def hexadecimal(column: str, *, description: str = "") -> Callable[[ReadOnlyAdmin, models.Model], str]:
    """Make a display method that shows a column of bytes as hexadecimal digits."""

    @admin.display(description=description or column.replace("_", " "))
    def show(_: ReadOnlyAdmin, row: models.Model) -> str:
        value = getattr(row, column)
        return bytes(value).hex() if value else "-"

    return show


@admin.display(description="lease", ordering="lease_id")
def lease_link(row: models.Model) -> SafeString | str:
    """Link from any row of a lease to the lease."""
    uuid: UUID | None = getattr(row, "lease_id", None) or getattr(row, "lease_uuid", None)
    return link("leases.lease", uuid)


class DueFilter(admin.SimpleListFilter):
    """Whether anything is to be done with a row, and whether that keeps failing."""

    title = "due"
    parameter_name = "due"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:  # noqa: ARG002
        """What can be chosen."""
        return [("rest", "at rest"), ("waiting", "waiting"), ("now", "due now"), ("stuck", "stuck")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:  # noqa: ARG002
        """Narrow the rows to the choice."""
        match self.value():
            case "rest":
                return queryset.filter(due_at=None)
            case "waiting":
                return queryset.filter(due_at__gt=Now())
            case "now":
                return queryset.filter(due_at__lte=Now())
            case "stuck":
                return queryset.filter(attempts__gte=STUCK_AFTER)
        return queryset


# `manage.py createsuperuser` and `changepassword` make and change them. Their app stands before ours in INSTALLED_APPS.
admin.site.unregister([User, Group])


@admin.register(User)
class ReadOnlyUserAdmin(ReadOnlyAdmin):
    """Who may look at all this."""

    list_display = ("username", "email", "is_staff", "is_superuser", "last_login")
    search_fields = ("username", "email")
    exclude = ("password",)


@admin.register(Group)
class ReadOnlyGroupAdmin(ReadOnlyAdmin):
    """Groups of users."""

    search_fields = ("name",)


@admin.register(PeriodicTask)
class PeriodicTaskAdmin(ReadOnlyAdmin):
    """Tasks that run every so often."""

    list_display = ("name", "due_at", "started_at", "finished_at", "outcome", "attempts")
    list_filter = (DueFilter,)
    ordering = ("name",)
