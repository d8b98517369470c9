"""Routes of the tenant API; each path is one segment after the lease."""

from django.urls import path

from tenants_api import views

urlpatterns = [
    path("v1/leases/<str:lease_uuid>/connection", views.connection),
    path("v1/leases/<str:lease_uuid>/status", views.status),
    path("v1/leases/<str:lease_uuid>/provision", views.provision),
    path("v1/leases/<str:lease_uuid>/data", views.data),
]
