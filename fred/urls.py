"""Every route. The admin server has the admin site; the other has all that tenants, backends and probes call."""

from __future__ import annotations

from django.conf import settings
from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path
from django.views.generic import RedirectView
from drf_spectacular.views import SpectacularRedocView, SpectacularSwaggerView

from fred import views
from tenants_api.schema import openapi

operator_routes: list[URLPattern | URLResolver] = [
    path("health", views.health),
    path("readyz", views.ready),
    path("metrics", views.exposition),
]
admin_routes: list[URLPattern | URLResolver] = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("admin", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/", admin.site.urls),
    path("api/openapi.json", openapi, name="openapi"),
    path("api/docs/", SpectacularSwaggerView.as_view(url_name="openapi")),
    path("api/redoc/", SpectacularRedocView.as_view(url_name="openapi", template_name="api/redoc.html")),
]
tenant_routes: list[URLPattern | URLResolver] = [path("", include("tenants_api.urls"))]

if settings.HOUSE.fred_role == "admin":
    urlpatterns = [*operator_routes, *admin_routes]
else:
    urlpatterns = [*operator_routes, *tenant_routes]
    handler400 = views.bad_request
    handler403 = views.forbidden
    handler404 = views.not_found
    handler500 = views.server_error
