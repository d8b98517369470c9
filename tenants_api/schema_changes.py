"""What changes a lease or is reported of it, as operations of the OpenAPI document."""

from typing import Any

from drf_spectacular.types import OpenApiTypes
from rest_framework.views import APIView

from tenants_api import schema_parts as parts
from tenants_api import serializers as types
from tenants_api.schema_parts import HEAD, LEASE_UUID, NOT_YET, answers, nothing, operation, refusals


def _change(
    name: str, summary: str, *, description: str, replays: tuple[int, ...], responses: dict[Any, Any], **more: Any
) -> type[APIView]:
    return operation(
        "post",
        name,
        tag="leases",
        summary=summary,
        description=description,
        parameters=(LEASE_UUID, parts.IDEMPOTENCY_KEY, parts.replayed(*replays)),
        responses=responses,
        **{"auth": [parts.TENANT_TOKEN], "request": None, **more},
    )


DATA_VIEW = _change(
    "uploadLeaseData",
    "Upload the payload that a pending lease announced",
    replays=(202,),
    description="The first upload wins. 409 means that these bytes are here already.",
    auth=[parts.PAYLOAD_TOKEN],
    request={"application/octet-stream": OpenApiTypes.BINARY},
    responses={
        **nothing(202, "The payload is kept; the lease is provisioned next."),
        **refusals(
            400,
            401,
            403,
            404,
            409,
            422,
            429,
            500,
            503,
            504,
            own={
                400: ("payload hash does not match meta_hash", "payload_hash_mismatch"),
                404: ("lease not pending", "lease_not_pending"),
                409: ("payload already received", "payload_exists"),
            },
        ),
    },
)
RESTART_VIEW = _change(
    "restartLease",
    "Restart a running lease",
    replays=(202, 400, 403, 404, 409, 410, 503),
    description="A 500 or 503 means that it may still happen: repeat it with the same key, or read the status.",
    responses={
        **answers(202, types.ActionAcceptedSerializer, "It is being restarted.", {"status": "restarting"}),
        **refusals(400, 401, 403, 404, 409, 410, 422, 429, 500, 503, own={404: NOT_YET}),
    },
)
UPDATE_VIEW = _change(
    "updateLease",
    "Run another manifest from now on",
    replays=(202, 400, 403, 404, 409, 410, 503),
    description="A 500 or 503 means that it may still happen: repeat it with the same key and the same bytes, or read "
    "the status and the releases.",
    request={parts.JSON: types.UpdateRequestSerializer},
    examples=parts.request_example({"payload": "e30="}),
    responses={
        **answers(202, types.ActionAcceptedSerializer, "It is being updated.", {"status": "updating"}),
        **refusals(
            400,
            401,
            403,
            404,
            409,
            410,
            422,
            429,
            500,
            502,
            503,
            own={
                400: ("invalid request body", "invalid_body"),
                404: NOT_YET,
                409: ("invalid state for update", "invalid_state"),
            },
        ),
    },
)
RESTORE_VIEW = _change(
    "restoreLease",
    "Take the data of an ended lease over into a pending one",
    replays=(202,),
    description="400, 401, 404, 409, 422, 429 and 503 mean that nothing was applied, with one exception: 409 "
    "`a request with this idempotency key is still being processed` (`error_code` `idempotency_in_progress`) says "
    "nothing about it. After any other refusal the outcome is unknown; leave the lease alone and read its status.",
    request={parts.JSON: types.RestoreRequestSerializer},
    examples=parts.request_example({"from_lease_uuid": HEAD["lease_uuid"]}),
    responses={
        **answers(202, types.ActionAcceptedSerializer, "It is being restored.", {"status": "provisioning"}),
        **refusals(
            400,
            401,
            403,
            404,
            409,
            410,
            422,
            429,
            500,
            502,
            503,
            own={
                400: ("from_lease_uuid is required", "invalid_body"),
                404: ("no retained data found for that lease", "no_retained_data"),
                409: ("lease not in a restorable state", "invalid_state"),
            },
        ),
    },
)
CALLBACK_VIEW = operation(
    "post",
    "postProvisionCallback",
    tag="callbacks",
    summary="What a backend reports",
    description="A report has one effect, however often it comes. 503 means: not stored, try again.",
    auth=[parts.CALLBACK_SIGNATURE],
    parameters=(parts.OPERATION_ID, parts.LIFECYCLE_ID),
    request={parts.JSON: types.ProvisionCallbackSerializer},
    examples=parts.request_example({"lease_uuid": HEAD["lease_uuid"], "status": "success"}),
    responses={
        **nothing(200, "It is stored."),
        **refusals(
            400,
            401,
            429,
            500,
            503,
            own={
                400: ("invalid request body", "invalid_body"),
                429: ("callback rate limit exceeded", "rate_limited_ip"),
            },
        ),
    },
)
