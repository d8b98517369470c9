"""Views of the lease routes: whoever is let in gets the route's answer, every ApiError becomes the error body."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse, UnreadablePostError

from tenants_api.admission import Admitted, Kind, admit
from tenants_api.errors import ApiError


@dataclass(frozen=True, slots=True)
class Call(Admitted):
    """A request that was let in."""

    request: HttpRequest

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


def lease_route(
    method: str,
    *,
    kind: Kind = "access",
    once: bool = False,
    early: Callable[[HttpRequest], None] | None = None,
) -> Callable[[Route], View]:
    """Make a view of a lease route that takes this method and a token of this kind, which `once` uses up.

    `early` is a check of the request that stands before the path is looked at and costs no token; see `admit`.
    """

    def decorate(route: Route) -> View:
        @wraps(route)
        def view(request: HttpRequest, lease_uuid: str) -> HttpResponse:
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
                return route(Call(admitted.token, admitted.path, admitted.lease_uuid, request))
            except ApiError as error:
                return error.response(request)

        return view

    return decorate
