"""Spent tokens, to look at."""

from django.contrib import admin

from fred.admin import ReadOnlyAdmin
from tenants_api.models import UsedToken


@admin.register(UsedToken)
class UsedTokenAdmin(ReadOnlyAdmin):
    """Tokens that are no good any more."""

    list_display = ("key", "expires_at")
    ordering = ("-expires_at",)
