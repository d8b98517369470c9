"""The one error body of the tenant API, and the errors that become it. Usable with and without Django's requests."""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import orjson
from django.http import HttpRequest, HttpResponse

from fred import request_ids

REQUEST_ID: Final = request_ids.REQUEST_ID

PROBLEM: Final = "application/problem+json"
RETRY_AFTER_S: Final = 1
"""What a caller is told to wait after a 503 of ours."""

_CODES: Final[Mapping[int, str]] = {
    400: "invalid_parameter",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    409: "invalid_state",
    422: "backend_rejected",
    429: "rate_limited_tenant",
    502: "backend_malformed",
    503: "store_unavailable",
    504: "timeout",
}
"""The stable name of an error that was given none of its own; any other status is `internal`."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """An answer as bytes, `Content-Type` among its headers."""

    status: int
    headers: dict[str, str]
    body: bytes


class ApiError(Exception):
    """Ends a request with this status and exactly this text; callers never see anything else of what went wrong.

    ``reason`` is a third member of the body that few answers have. ``error_code`` is the stable name for those who ask
    for problem details; a reason is its own name. A 503 tells callers when to come back, unless it was ``relayed``:
    then it is the word of a backend. Few bodies end without a ``line_feed``.
    """

    def __init__(
        self,
        status: int,
        text: str,
        *,
        reason: str = "",
        error_code: str = "",
        headers: Mapping[str, str] | None = None,
        relayed: bool = False,
        line_feed: bool = True,
    ) -> None:
        super().__init__(f"{status} {text}")
        self.status = status
        self.text = text
        self.reason = reason
        self.error_code = reason or error_code or _CODES.get(status, "internal")
        self.headers = dict(headers or {})
        self.options = orjson.OPT_APPEND_NEWLINE if line_feed else 0
        if status == 503 and not relayed:
            self.headers.setdefault("Retry-After", str(RETRY_AFTER_S))

    def rendered(self, *, accept: str | None = None, request_id: str = "") -> Rendered:
        """The error envelope: `{"error": text, "code": status}`, then `reason` if there is one.

        For who accepts problem details the members of RFC 9457 stand beside them.
        """
        body: dict[str, Any] = {"error": self.text, "code": self.status}
        if self.reason:
            body["reason"] = self.reason
        kind = "application/json"
        if wants_problem(accept):
            kind = PROBLEM
            body |= self._problem(request_id)
        content = orjson.dumps(body, option=self.options)
        return Rendered(self.status, {"Content-Type": kind, **self.headers}, content)

    def response(self, request: HttpRequest) -> HttpResponse:
        """The same as an answer to this request of Django's."""
        found = self.rendered(accept=request.META.get("HTTP_ACCEPT"), request_id=request_id_of(request))
        return HttpResponse(found.body, status=found.status, headers=found.headers)

    def _problem(self, request_id: str) -> dict[str, Any]:
        named = {"instance": f"urn:uuid:{request_id}", "request_id": request_id} if request_id else {}
        return {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.text,
            **named,
            "error_code": self.error_code,
        }


def wants_problem(accept: str | None) -> bool:
    """Whether an Accept header names problem details."""
    return accept is not None and names(accept, PROBLEM)


def names(accept: str, media_type: str) -> bool:
    """Whether an Accept header names this media type with a weight above zero; wildcards name nothing."""
    if media_type not in accept.lower():
        return False
    for part in accept.lower().split(","):
        kind, *parameters = (piece.strip() for piece in part.split(";"))
        if kind == media_type:
            weights = [piece[2:] for piece in parameters if piece.startswith("q=")]
            return not weights or _weight(weights[0]) > 0
    return False


def _weight(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def request_id_of(request: HttpRequest) -> str:
    """The id that the edge gave this request; empty without an edge."""
    scope: Mapping[str, Any] = getattr(request, "scope", {})
    found: str = scope.get(REQUEST_ID, "")
    return found


def answer(body: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> HttpResponse:
    """Compact JSON with one line feed."""
    content = orjson.dumps(body, option=orjson.OPT_APPEND_NEWLINE)
    return HttpResponse(content, status=status, headers={"Content-Type": "application/json", **(headers or {})})


def empty(status: int) -> HttpResponse:
    """A success without a body."""
    return HttpResponse(b"", status=status, headers={"Content-Type": "application/json", "Content-Length": "0"})


def unauthorized() -> ApiError:
    """Whoever it is, it is not shown why."""
    return ApiError(401, "unauthorized")


def forbidden() -> ApiError:
    """The lease is another tenant's, or another provider's."""
    return ApiError(403, "forbidden")


def lease_not_found() -> ApiError:
    """The chain has no such lease, or it is not the caller's to know."""
    return ApiError(404, "lease not found", error_code="lease_not_found")


def lease_inactive() -> ApiError:
    """Whoever asks about an inactive lease learns no more than that."""
    return ApiError(404, "lease not found or not active", error_code="lease_not_active")


def unusable() -> ApiError:
    """A backend declined with an error that nobody can read; nothing of it is shown."""
    text = "the provider backend returned an unusable error; the request was not applied"
    return ApiError(502, text, error_code="backend_malformed")


def internal() -> ApiError:
    """A source did not answer, or something of ours failed."""
    return ApiError(500, "internal server error")


def timed_out() -> ApiError:
    """The request's time ended, and nothing was done; its body has no line feed."""
    return ApiError(503, "request timeout", error_code="timeout", line_feed=False)


def unavailable(error_code: str = "store_unavailable") -> ApiError:
    """What must not be guessed can't be known now."""
    return ApiError(503, "service temporarily unavailable", error_code=error_code)
