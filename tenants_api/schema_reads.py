"""What a tenant reads of a lease, as operations of the OpenAPI document."""

from typing import Any, Final

from rest_framework.views import APIView

from tenants_api import schema_parts as parts
from tenants_api import serializers as types
from tenants_api.answers import RESTORE_HINT
from tenants_api.schema_parts import HEAD, LEASE_UUID, NOT_YET, answers, operation, refusals, text

RETAINED: Final = {
    "retained_until": "2026-10-01T10:00:00Z",
    "items": [{"sku": "0190a1b2-0000-7000-8000-0000000000f1", "quantity": 1}],
    "restore_hint": RESTORE_HINT,
}
STATUS: Final = {
    **HEAD,
    "state": "LEASE_STATE_ACTIVE",
    "requires_payload": True,
    "meta_hash_hex": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "payload_received": True,
    "provisioning_started": False,
    "provision_status": "ready",
}
CONNECTION: Final = {
    "host": "node7.example.net",
    "fqdn": "w0.example.net",
    "instances": [
        {
            "instance_index": 0,
            "container_id": "9f3",
            "image": "nginx:1.27",
            "status": "running",
            "fqdn": "w0.example.net",
            "ports": {"80/tcp": {"host_ip": "0.0.0.0", "host_port": 32768}},  # noqa: S104 - a container's address
        }
    ],
    "metadata": {"zone": "a"},
}
RELEASE: Final = {
    "version": 1,
    "image": "nginx:1.27",
    "status": "active",
    "created_at": "2026-09-21T14:13:20.5Z",
    "manifest": "e30=",
}


def _read(
    name: str, summary: str, *, description: str, responses: dict[Any, Any], parameters: tuple[Any, ...] = ()
) -> type[APIView]:
    return operation(
        "get",
        name,
        tag="leases",
        summary=summary,
        description=description,
        auth=[parts.TENANT_TOKEN],
        parameters=(LEASE_UUID, *parameters),
        responses=responses,
    )


CONNECTION_VIEW = _read(
    "getLeaseConnection",
    "How a running lease is reached",
    description="The lease must be ACTIVE. A token is good for one such request.",
    responses={
        **answers(200, types.LeaseConnectionSerializer, "How it is reached.", {**HEAD, "connection": CONNECTION}),
        **refusals(
            400, 401, 403, 404, 410, 429, 500, 503, own={404: ("lease not found or not active", "lease_not_active")}
        ),
    },
)
STATUS_VIEW = _read(
    "getLeaseStatus",
    "A lease on the chain and what its backend says",
    description="A lease in any state, also one that the chain has forgotten while its data is retained.",
    responses={
        **answers(
            200,
            types.LeaseStatusSerializer,
            "The lease. Without a backend's answer the fields from `provision_status` on are missing.",
            STATUS,
            {**STATUS, "state": "LEASE_STATE_CLOSED", "provision_status": "retained", **RETAINED},
        ),
        **refusals(400, 401, 403, 404, 429, 500, 503),
    },
)
PROVISION_VIEW = _read(
    "getLeaseProvision",
    "What a backend says of a lease",
    description="As the status, without the chain: a lease in any state, or retained data of the caller.",
    responses={
        **answers(
            200,
            types.LeaseProvisionSerializer,
            "The provision.",
            {**HEAD, "status": "failed", "fail_count": 1, "reason": "ImagePullFailed", "message": "image pull failed"},
            {**HEAD, "status": "retained", "fail_count": 0, **RETAINED},
        ),
        **refusals(400, 401, 403, 404, 410, 429, 500, 503, own={404: ("provision not found", "not_provisioned")}),
    },
)
LOGS_VIEW = _read(
    "getLeaseLogs",
    "The last lines that each instance wrote",
    description="Few such answers are made at once; a 503 with `Retry-After` costs nothing.",
    parameters=(parts.TAIL,),
    responses={
        **answers(200, types.LeaseLogsSerializer, "The lines.", {**HEAD, "logs": {"web/0": "listening on :80\n"}}),
        **refusals(
            400,
            401,
            403,
            404,
            410,
            429,
            500,
            503,
            own={
                400: ("tail must be a positive integer", "invalid_parameter"),
                404: ("logs not found", "not_provisioned"),
                503: ("log response capacity exhausted", "insufficient_resources"),
            },
        ),
    },
)
RELEASES_VIEW = _read(
    "listLeaseReleases",
    "The versions of a lease's workload",
    description="A long history is read in parts: the newest `limit`, then those `before` the oldest that was seen.",
    parameters=(parts.LIMIT, parts.BEFORE),
    responses={
        **answers(200, types.LeaseReleasesSerializer, "The releases, oldest first.", {**HEAD, "releases": [RELEASE]}),
        **refusals(400, 401, 403, 404, 410, 429, 500, 503, own={404: NOT_YET}),
    },
)
EVENTS_VIEW = operation(
    "get",
    "streamLeaseEvents",
    tag="leases",
    summary="What happens to a lease, as it happens",
    description="With `Upgrade: websocket` each event is a text frame with the JSON of `LeaseStatusEvent`. Without it "
    "and with `Accept: text/event-stream` the same events come as server-sent events. There is no first event: read "
    "the status once the stream is open.",
    auth=[parts.TENANT_TOKEN, parts.EVENTS_TOKEN],
    parameters=(LEASE_UUID, parts.TOKEN, parts.SINCE, parts.LAST_EVENT_ID),
    responses={
        **answers(
            101,
            types.LeaseStatusEventSerializer,
            "A WebSocket. Each of its text frames is one event.",
            {"lease_uuid": HEAD["lease_uuid"], "status": "ready", "timestamp": "2026-09-21T14:13:20.123456Z"},
        ),
        **text(200, "text/event-stream", "Server-sent events; `data` is the JSON of `LeaseStatusEvent`."),
        **refusals(
            400,
            401,
            403,
            404,
            426,
            429,
            500,
            501,
            503,
            own={
                400: ("invalid since cursor", "invalid_parameter"),
                503: ("too many connections", "too_many_connections"),
            },
        ),
        **text(400, "text/plain", "The upgrade is malformed."),
        **text(426, "text/plain", "There is no upgrade."),
    },
)
