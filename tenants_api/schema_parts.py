"""Pieces that operations of the OpenAPI document are put together from: parameters, headers, refusals, examples."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from tenants_api import serializers
from tenants_api.errors import PROBLEM

JSON: Final = "application/json"
TENANT_TOKEN: Final[dict[str, list[str]]] = {"tenantToken": []}
PAYLOAD_TOKEN: Final[dict[str, list[str]]] = {"payloadToken": []}
EVENTS_TOKEN: Final[dict[str, list[str]]] = {"eventsToken": []}
CALLBACK_SIGNATURE: Final[dict[str, list[str]]] = {"callbackSignature": []}
SECURITY_SCHEMES: Final[dict[str, Any]] = {
    "tenantToken": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "ADR-036 access token",
        "description": "Base64 of the JSON of `AccessToken`, signed by the lease's tenant; good for 30 s. On "
        "`connection`, `restart`, `update` and `restore` a token is good for one request.",
    },
    "payloadToken": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "ADR-036 payload token",
        "description": "Base64 of the JSON of `PayloadToken`, signed by the lease's tenant; good for 30 s.",
    },
    "eventsToken": {
        "type": "apiKey",
        "in": "query",
        "name": "token",
        "description": "An access token, for callers that can't set a header.",
    },
    "callbackSignature": {
        "type": "apiKey",
        "in": "header",
        "name": "X-Fred-Signature",
        "description": "`t=<unix seconds>,sha256=<hex>`: HMAC-SHA256 of a backend over time, method, target and body.",
    },
}

_LEASE: Final = "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b"
HEAD: Final = {
    "lease_uuid": _LEASE,
    "tenant": "manifest19rl4cm2hmr8afy4kldpxz3fka4jguq0aaz02ta",
    "provider_uuid": "0190a1b2-0000-7000-8000-00000000000a",
}


NOT_YET: Final = ("lease not yet provisioned", "not_provisioned")


def _query(name: str, schema: dict[str, Any], description: str) -> OpenApiParameter:
    return OpenApiParameter(name, schema, OpenApiParameter.QUERY, description=description)


LEASE_UUID: Final = OpenApiParameter(
    "lease_uuid",
    {"type": "string", "pattern": "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"},
    OpenApiParameter.PATH,
    description="The lease. Also understood: the same after `urn:uuid:`, inside two outer characters, or as 32 "
    "hexadecimal digits. The token must name it in the same spelling.",
    required=True,
)
TAIL: Final = _query(
    "tail",
    {"type": "integer", "minimum": 1, "maximum": 10_000, "default": 100},
    "How many lines of each instance, counted from the end.",
)
LIMIT: Final = _query(
    "limit", {"type": "integer", "minimum": 1, "maximum": 1000}, "Only the newest so many releases, oldest first."
)
BEFORE: Final = _query("before", {"type": "integer", "minimum": 1}, "Only releases with a lower version than this.")
SINCE: Final = _query(
    "since",
    {"type": "string"},
    "Where to go on: the id of the last event that was seen, `0` for all that are kept, empty or `now` for new ones "
    "with their ids. Without it events have no ids.",
)
TOKEN: Final = _query("token", {"type": "string"}, "An access token; an Authorization header wins over it.")
LAST_EVENT_ID: Final = OpenApiParameter(
    "Last-Event-ID",
    {"type": "string"},
    OpenApiParameter.HEADER,
    description="The same as `since` for server-sent events, and stronger.",
)
IDEMPOTENCY_KEY: Final = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
    OpenApiParameter.HEADER,
    description="Names this request: with the same name and the same body it has one effect and one answer, for 24 "
    "hours. On `restart` and `update` a canonical UUIDv4 names a command of the lease.",
)
LEASE_UUIDS: Final = OpenApiParameter(
    "lease_uuid",
    {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 100},
    OpenApiParameter.QUERY,
    description="Leases to look up.",
    required=True,
    explode=True,
)
OPERATION_ID: Final = _query("operation_id", {"type": "string"}, "As in the URL that the backend was given.")
LIFECYCLE_ID: Final = _query("lifecycle_id", {"type": "string"}, "As in the URL that the backend was given.")
HEADERS: Final = (
    OpenApiParameter(
        "X-Request-ID", str, OpenApiParameter.HEADER, response=True, description="The id of the request in our logs."
    ),
    OpenApiParameter(
        "Retry-After",
        int,
        OpenApiParameter.HEADER,
        response=[429, 503],
        description="Seconds after which the same request may succeed.",
    ),
)


def replayed(*statuses: int) -> OpenApiParameter:
    """The header of kept answers, on answers of these statuses."""
    return OpenApiParameter(
        "Idempotency-Replayed",
        {"type": "string", "enum": ["true"]},
        OpenApiParameter.HEADER,
        response=list(statuses),
        description="This is the kept answer of an earlier request with the same key.",
    )


_TEXTS: Final = {
    400: ("invalid lease UUID format", "", "invalid_lease_uuid"),
    401: ("unauthorized", "", "unauthorized"),
    403: ("forbidden", "", "forbidden"),
    404: ("lease not found", "", "lease_not_found"),
    409: ("invalid state for restart", "", "invalid_state"),
    410: (
        "the backend storage holding this lease was irrecoverably lost",
        "backend_storage_lost",
        "backend_storage_lost",
    ),
    422: ("idempotency key was used with a different request", "", "idempotency_key_mismatch"),
    426: ("Upgrade Required", "", "invalid_parameter"),
    429: ("rate limit exceeded", "", "rate_limited_tenant"),
    500: ("internal server error", "", "internal"),
    501: ("events not enabled", "", "not_configured"),
    502: (
        "the provider backend returned an unusable error; the request was not applied",
        "",
        "backend_malformed",
    ),
    503: ("service temporarily unavailable", "", "store_unavailable"),
    504: ("request timeout", "", "timeout"),
}
"""One example for each refusal: its text, its reason if it has one, its stable name."""


def refusals(*statuses: int, own: Mapping[int, tuple[str, str]] | None = None) -> dict[Any, OpenApiResponse]:
    """Responses of these statuses; `own` gives some a text of the route's own, with its stable name."""
    found: dict[Any, OpenApiResponse] = {}
    for status in statuses:
        text, reason, code = _TEXTS[status]
        if own and status in own:
            (text, code), reason = own[status], ""
        error: dict[str, Any] = {"error": text, "code": status, **({"reason": reason} if reason else {})}
        problem = {
            **error,
            "type": "about:blank",
            "title": HTTPStatus(status).phrase,
            "status": status,
            "detail": text,
            "error_code": code,
        }
        phrase = HTTPStatus(status).phrase
        found[status, JSON] = OpenApiResponse(serializers.ErrorSerializer, phrase, [_example(error, status, JSON)])
        found[status, PROBLEM] = OpenApiResponse(
            serializers.ProblemSerializer, phrase, [_example(problem, status, PROBLEM)]
        )
    return found


def answers(status: int, serializer: Any, description: str, *examples: dict[str, Any]) -> dict[Any, OpenApiResponse]:
    """The response of a status with a JSON body, and examples of it."""
    made = [_example(one, status, JSON, name=f"Example {number}") for number, one in enumerate(examples, 1)]
    return {(status, JSON): OpenApiResponse(serializer, description, made)}


def nothing(status: int, description: str) -> dict[Any, OpenApiResponse]:
    """The response of a status without a body."""
    return {status: OpenApiResponse(None, description)}


def text(status: int, kind: str, description: str) -> dict[Any, OpenApiResponse]:
    """The response of a status with a text of this media type."""
    return {(status, kind): OpenApiResponse(OpenApiTypes.STR, description)}


def _example(value: dict[str, Any], status: int, kind: str, *, name: str = "Refused") -> OpenApiExample:
    return OpenApiExample(name, value, response_only=True, status_codes=[str(status)], media_type=kind)


def request_example(value: dict[str, Any]) -> Sequence[OpenApiExample]:
    """An example of a request's body."""
    return [OpenApiExample("Request", value, request_only=True, media_type=JSON)]


class Operation(APIView):
    """A view for the document alone."""

    def answer(self, request: Request, **_: str) -> Response:
        """Never called: this view has no route."""
        raise TypeError(f"{request.path} is described here and served elsewhere")


def operation(method: str, name: str, *, tag: str, parameters: tuple[Any, ...] = (), **described: Any) -> type[APIView]:
    """A view with one operation of this method and id."""

    def handler(self: Operation, request: Request, **path: str) -> Response:
        return self.answer(request, **path)

    extended = extend_schema(operation_id=name, tags=[tag], parameters=[*parameters, *HEADERS], **described)(handler)
    return type(name, (Operation,), {method: extended})
