"""The tenant routes that stand: who calls, which lease, then one answer. Everything else is in the modules beside."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final
from uuid import UUID

import structlog
from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse, UnreadablePostError

from backends.contract import Absent, ProvisionInfo, Unknown
from fred import metrics
from fred.decoding import DecodeError, decode_uuid
from leases import payloads
from leases.status import LeaseState
from tenants_api import answers, auth, backend_reads, lease_reads
from tenants_api.errors import ApiError, answer, empty, internal, unauthorized, unavailable
from tenants_api.lease_reads import LeaseFacts
from tenants_api.tokens import TenantToken

ALLOW: Final = {"GET": "GET, HEAD", "POST": "POST"}

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Call:
    """A request whose token is right for the lease of its path. ``path`` is the lease as the caller wrote it."""

    request: HttpRequest
    token: TenantToken
    path: str
    lease_uuid: UUID

    @property
    def head(self) -> dict[str, Any]:
        """The fields that every answer begins with."""
        return {
            "lease_uuid": self.path,
            "tenant": self.token.tenant,
            "provider_uuid": str(settings.FRED.provider_uuid),
        }

    def lease(self) -> LeaseFacts | None:
        """The lease as it is now, None if the chain has none; 500 when that can't be known, 403 if it is another's."""
        facts = lease_reads.current(self.lease_uuid)
        if facts is not None:
            self._check_owner(facts)
        return facts

    def active_lease(self) -> LeaseFacts:
        """The lease, if it is ACTIVE; who asks about an inactive one learns no more than that."""
        facts = lease_reads.current(self.lease_uuid)
        if facts is None or facts.state != LeaseState.ACTIVE:
            raise ApiError(404, "lease not found or not active")
        self._check_owner(facts)
        return facts

    def _check_owner(self, facts: LeaseFacts) -> None:
        if facts.tenant != self.token.tenant or facts.provider_uuid != settings.FRED.provider_uuid:
            raise ApiError(403, "forbidden")


Route = Callable[[Call], HttpResponse]
View = Callable[[HttpRequest, str], HttpResponse]


def lease_route(method: str, *, kind: str = "access", once: bool = False) -> Callable[[Route], View]:
    """Make a view of a lease route: whoever is let in gets its answer, every ApiError becomes the error body."""

    def decorate(route: Route) -> View:
        @wraps(route)
        def view(request: HttpRequest, lease_uuid: str) -> HttpResponse:
            try:
                return route(_let_in(request, lease_uuid, method=method, kind=kind, once=once))
            except ApiError as error:
                return error.response()

        return view

    return decorate


def _let_in(request: HttpRequest, lease_uuid: str, *, method: str, kind: str, once: bool) -> Call:
    """Check method, token of this kind, form of the path, that both name the same lease, and (if `once`) replay.

    With the tenant limiter switched off the form of the path comes before the token.
    """
    if request.method != method and (request.method, method) != ("HEAD", "GET"):
        raise ApiError(405, "method not allowed", headers={"Allow": ALLOW[method]})
    if not settings.FRED.tenant_rate_limit_rps:
        _path_uuid(lease_uuid)
    token = auth.authenticate(request, kind=kind)
    uuid = _path_uuid(lease_uuid)
    if token.lease_uuid != lease_uuid:
        raise unauthorized()
    if once:
        auth.spend(token)
    return Call(request, token, lease_uuid, uuid)


def _path_uuid(text: str) -> UUID:
    try:
        return decode_uuid(text)
    except DecodeError:
        raise ApiError(400, "invalid lease UUID format") from None


@lease_route("GET")
def status(call: Call) -> HttpResponse:
    """What the chain says of a lease, what was done for it, and what a backend says, if one does."""
    facts = call.lease()
    found: ProvisionInfo | Absent | Unknown | None
    if facts is None:
        found = backend_reads.retained_by(call.token.tenant, call.lease_uuid)
        if found is None:
            raise ApiError(404, "lease not found")
        state, meta_hash = int(LeaseState.UNSPECIFIED), b""
    else:
        found = backend_reads.provision_of(facts)
        state, meta_hash = facts.state, facts.meta_hash
    body = {
        **call.head,
        "state": answers.state_name(state),
        "requires_payload": bool(meta_hash),
        **answers.present({"meta_hash_hex": meta_hash.hex()}),
        "payload_received": facts is not None and facts.payload_received,
        "provisioning_started": facts is not None and facts.is_in_flight,
    }
    if isinstance(found, ProvisionInfo):
        body |= answers.present({"provision_status": found.status, "fail_count": found.fail_count})
        body |= answers.provision_fields(found)
    return answer(body)


@lease_route("GET")
def provision(call: Call) -> HttpResponse:
    """What a backend says of a lease."""
    facts = call.lease()
    if facts is None:
        found = backend_reads.retained_by(call.token.tenant, call.lease_uuid)
        if found is None:
            raise ApiError(404, "lease not found")
    else:
        match backend_reads.provision_of(facts):
            case Absent():
                raise ApiError(404, "provision not found")
            case Unknown(reason=backend_reads.UNRESOLVED):
                raise unavailable()
            case Unknown():
                raise internal()
            case found:
                pass
    return answer(
        {
            **call.head,
            "status": found.status,
            "fail_count": found.fail_count,
            **answers.provision_fields(found),
        }
    )


@lease_route("GET", once=True)
def connection(call: Call) -> HttpResponse:
    """How a lease is reached; a token is good for one such call."""
    facts = call.active_lease()
    match backend_reads.info(backend_reads.owner(facts), call.lease_uuid):
        case Absent():
            raise ApiError(404, "lease not yet provisioned")
        case Unknown():
            raise internal()
        case info:
            return answer({**call.head, "connection": answers.connection(info)})


@lease_route("POST", kind="payload")
def data(call: Call) -> HttpResponse:
    """Take the payload that a PENDING lease announced by its hash; the first upload wins."""
    facts = call.lease()
    if facts is None:
        raise ApiError(404, "lease not found")
    if facts.state != LeaseState.PENDING:
        raise ApiError(404, "lease not pending")
    if not facts.meta_hash:
        raise ApiError(400, "lease does not expect payload")
    if call.token.meta_hash != facts.meta_hash:
        metrics.PAYLOAD_UPLOADS.labels(outcome="invalid_auth").inc()
        raise unauthorized()
    body = _body(call.request)
    if not body:
        raise ApiError(400, "payload is empty")
    try:
        is_first = payloads.store(call.lease_uuid, body, expected=facts.meta_hash)
    except payloads.HashMismatch:
        metrics.PAYLOAD_UPLOADS.labels(outcome="hash_mismatch").inc()
        raise ApiError(400, "payload hash does not match meta_hash") from None
    except payloads.NotStored:
        metrics.PAYLOAD_UPLOADS.labels(outcome="error").inc()
        raise internal() from None
    if not is_first:
        metrics.PAYLOAD_UPLOADS.labels(outcome="conflict").inc()
        raise ApiError(409, "payload already received")
    metrics.PAYLOAD_UPLOADS.labels(outcome="success").inc()
    metrics.PAYLOAD_BYTES.observe(len(body))
    return empty(202)


def _body(request: HttpRequest) -> bytes:
    """The whole body; 400 when it is over the cap or was cut."""
    try:
        body = request.body
    except (RequestDataTooBig, UnreadablePostError, OSError):
        raise ApiError(400, "failed to read request body") from None
    if len(body) > settings.FRED.max_request_body_size:
        raise ApiError(400, "failed to read request body", headers={"Connection": "close"})
    return body
