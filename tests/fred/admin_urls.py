"""The routes of the admin server."""

from fred.urls import admin_routes as urlpatterns

__all__ = ["urlpatterns"]
