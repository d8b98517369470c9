"""Views of the API: whoever is let in gets the route's answer, every ApiError becomes the error body."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Final
from uuid import UUID

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse, UnreadablePostError

from fred import budget
from fred.buckets import Draw
from tenants_api import audits, throttles
from tenants_api.admission import Admitted, Kind, admit, check_method
from tenants_api.errors import ApiError, request_id_of, timed_out
from tenants_api.throttles import RateLimited

WAIT_S: Final = 10.0
"""How long a request waits for what its backend answers: less than the time in which it must be answered."""
_SPARE_S: Final = 1.5
"""Of its time a request keeps so much for what comes after the wait."""
OPERATION: Final = "fred.operation_id"
"""Key in a request's META for what its audit row names."""


@dataclass(frozen=True, slots=True)
class Call(Admitted):
    """A request that was let in."""

    request: HttpRequest

    @property
    def name(self) -> str:
        """The route's own segment of the path."""
        return self.request.path.rpartition("/")[2]

    def note(self, operation_id: UUID) -> None:
        """Say which operation this request makes or asks about, for the audit."""
        self.request.META[OPERATION] = operation_id

    def waits_until(self) -> float:
        """Until when, by `time.monotonic()`, this request may wait for its backend."""
        return time.monotonic() + max(0.0, budget.within(WAIT_S + _SPARE_S) - _SPARE_S)

    def let_out(self) -> None:
        """From here on something may be changed or sent. Raises the 503 when the caller was told that nothing was."""
        try:
            budget.let_out()
        except budget.TimeIsUp:
            raise timed_out() from None

    def body(self, *, otherwise: str) -> bytes:
        """The whole body; 400 with the text `otherwise` when it is over the cap, was cut or came too slowly."""
        error = ApiError(400, otherwise, error_code="invalid_body")
        try:
            body = self.request.body
        except (RequestDataTooBig, UnreadablePostError, OSError):
            raise error from None
        if len(body) > settings.FRED.max_request_body_size:
            error.headers["Connection"] = "close"
            raise error
        return body


Route = Callable[[Call], HttpResponse]
View = Callable[[HttpRequest, str], HttpResponse]
OpenView = Callable[[HttpRequest], HttpResponse]


def lease_route(
    method: str,
    *,
    kind: Kind = "access",
    once: bool = False,
    early: Callable[[HttpRequest], None] | None = None,
) -> Callable[[Route], View]:
    """Make a view of a lease route that takes this method and a token of this kind, which `once` uses up.

    `early` is a check of the request that stands before the path is looked at and costs no token; see `admit`. What
    the route changes or sends it must let out (`Call.let_out`): until then its caller may be told that nothing was.
    """

    def decorate(route: Route) -> View:
        def answer(call: Call) -> HttpResponse:
            try:
                return route(call)
            except ApiError as error:
                return error.response(call.request)

        @wraps(route)
        def view(request: HttpRequest, lease_uuid: str) -> HttpResponse:
            budget.keep_in()
            informed = request.META.get("HTTP_X_RATELIMIT_INFO") == "1"
            try:
                admitted = admit(
                    method=request.method or "",
                    authorization=request.META.get("HTTP_AUTHORIZATION"),
                    path=lease_uuid,
                    kind=kind,
                    once=once,
                    expects=method,
                    early=early and (lambda: early(request)),
                )
            except RateLimited as error:
                return _informed(error.response(request), error.draw if informed else None)
            except ApiError as error:
                return error.response(request)
            call = Call(admitted.token, admitted.path, admitted.lease_uuid, request)
            response = _audited(call, answer) if method == "POST" else answer(call)
            return _informed(response, admitted.draw if informed else None)

        return view

    return decorate


def _informed(response: HttpResponse, draw: Draw | None) -> HttpResponse:
    """Say how the tenant's bucket stands, if that is asked."""
    for name, value in (throttles.info(draw) if draw else {}).items():
        response[name] = value
    return response


def _audited(call: Call, route: Route) -> HttpResponse:
    """Answer a request that may change something, and store what it was told."""
    status = 500  # of whatever else is raised
    try:
        response = route(call)
        status = response.status_code
        return response
    finally:
        audits.record(
            tenant=call.token.tenant,
            lease_uuid=call.lease_uuid,
            route=call.name,
            status=status,
            request_id=request_id_of(call.request),
            operation_id=call.request.META.get(OPERATION),
        )


def open_route(method: str) -> Callable[[OpenView], OpenView]:
    """Make a view of a route that anybody may call with this method."""

    def decorate(route: OpenView) -> OpenView:
        @wraps(route)
        def view(request: HttpRequest) -> HttpResponse:
            try:
                check_method(request.method or "", method)
                return route(request)
            except ApiError as error:
                return error.response(request)

        return view

    return decorate
