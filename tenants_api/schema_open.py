"""What everybody may read, as operations of the OpenAPI document."""

from typing import Any, Final

from drf_spectacular.types import OpenApiTypes
from rest_framework.views import APIView

from tenants_api import schema_parts as parts
from tenants_api import serializers as types
from tenants_api.schema_parts import HEAD, answers, operation, refusals, text

WORKLOAD: Final = {
    "status": "ready",
    "created_at": "2026-09-21T14:13:20.5Z",
    "backend_name": "docker-1",
    "items": [{"sku": "0190a1b2-0000-7000-8000-0000000000f1", "image": "nginx", "count": 1}],
}
HEALTH: Final = {
    "status": "healthy",
    "provider_uuid": HEAD["provider_uuid"],
    "checks": {"chain": {"status": "healthy"}, "backend:docker-1": {"status": "healthy"}},
    "stats": {"in_flight_provisions": 0},
}


def _open(
    name: str, summary: str, *, description: str, responses: dict[Any, Any], parameters: tuple[Any, ...] = ()
) -> type[APIView]:
    return operation(
        "get",
        name,
        tag="operations",
        summary=summary,
        description=description,
        auth=[],
        parameters=parameters,
        responses=responses,
    )


WORKLOADS_VIEW = _open(
    "lookupWorkloads",
    "What runs for some leases",
    description="For everybody. Whose a lease is, versions of images and addresses are no part of it.",
    parameters=(parts.LEASE_UUIDS,),
    responses={
        **answers(
            200,
            types.WorkloadLookupSerializer,
            "What was found; a backend that did not answer is a warning.",
            {"workloads": {HEAD["lease_uuid"]: WORKLOAD}, "warnings": []},
        ),
        **refusals(400, 429, own={400: ("lease_uuid query parameter required", "invalid_parameter")}),
    },
)
HEALTH_VIEW = _open(
    "getHealth",
    "Whether everything works; always 200",
    description="Looked into at most once a second. Other names of checks may appear.",
    responses=answers(200, types.HealthSerializer, "The verdict.", HEALTH),
)
READINESS_VIEW = _open(
    "getReadiness",
    "Whether this process can do its work",
    description="The same body; 503 when the verdict is `unhealthy`.",
    responses={
        **answers(200, types.HealthSerializer, "It can.", HEALTH),
        **refusals(429),
        **answers(503, types.HealthSerializer, "It can't.", {**HEALTH, "status": "unhealthy"}),
    },
)
METRICS_VIEW = _open(
    "getMetrics",
    "Prometheus metrics",
    description="OpenMetrics when `Accept` asks for it.",
    responses={**text(200, "text/plain", "All metrics of the processes here."), **refusals(429)},
)
OPENAPI_VIEW = _open(
    "getOpenApi",
    "This document",
    description="Made from the code of this version.",
    responses={**answers(200, OpenApiTypes.OBJECT, "OpenAPI 3.0.3."), **refusals(429)},
)
