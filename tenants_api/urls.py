"""Routes of the tenant API; each path is one segment after the lease."""

from django.urls import path

from tenants_api import commands, views
from tenants_api.logs import logs
from tenants_api.releases import releases
from tenants_api.restore import restore
from tenants_api.schema import openapi
from tenants_api.workloads import workloads

urlpatterns = [
    path("v1/leases/<str:lease_uuid>/connection", views.connection),
    path("v1/leases/<str:lease_uuid>/status", views.status),
    path("v1/leases/<str:lease_uuid>/provision", views.provision),
    path("v1/leases/<str:lease_uuid>/logs", logs),
    path("v1/leases/<str:lease_uuid>/releases", releases),
    path("v1/leases/<str:lease_uuid>/data", views.data),
    path("v1/leases/<str:lease_uuid>/restore", restore),
    path("v1/leases/<str:lease_uuid>/restart", commands.restart),
    path("v1/leases/<str:lease_uuid>/update", commands.update),
    path("workloads", workloads),
    path("openapi.json", openapi),
]
