"""The paths of the OpenAPI document; nothing is served by them."""

from django.urls import path

from tenants_api import schema_changes as changes
from tenants_api import schema_open as opened
from tenants_api import schema_reads as reads

_LEASE = "v1/leases/<str:lease_uuid>/"

urlpatterns = [
    path(_LEASE + "connection", reads.CONNECTION_VIEW.as_view()),
    path(_LEASE + "status", reads.STATUS_VIEW.as_view()),
    path(_LEASE + "provision", reads.PROVISION_VIEW.as_view()),
    path(_LEASE + "logs", reads.LOGS_VIEW.as_view()),
    path(_LEASE + "releases", reads.RELEASES_VIEW.as_view()),
    path(_LEASE + "events", reads.EVENTS_VIEW.as_view()),
    path(_LEASE + "data", changes.DATA_VIEW.as_view()),
    path(_LEASE + "restart", changes.RESTART_VIEW.as_view()),
    path(_LEASE + "update", changes.UPDATE_VIEW.as_view()),
    path(_LEASE + "restore", changes.RESTORE_VIEW.as_view()),
    path("callbacks/provision", changes.CALLBACK_VIEW.as_view()),
    path("workloads", opened.WORKLOADS_VIEW.as_view()),
    path("health", opened.HEALTH_VIEW.as_view()),
    path("readyz", opened.READINESS_VIEW.as_view()),
    path("metrics", opened.METRICS_VIEW.as_view()),
    path("openapi.json", opened.OPENAPI_VIEW.as_view()),
]
