"""POST restore: have what a backend keeps of an ended lease put under a new, PENDING one."""

from __future__ import annotations

import time
from typing import Final
from uuid import UUID

import structlog
from django.conf import settings
from django.db import Error as DatabaseFailure
from django.http import HttpResponse

from backends.client import Accepted, Ambiguous, NotSent, RefusalKind, Refused
from backends.outcomes import Category
from fred import crash
from fred.connections import let_go
from fred.decoding import DecodeError, decode_object, decode_uuid
from leases.chain.client import Absent, ExactLease
from leases.status import TERMINAL, LeaseState
from placements import dispatch
from placements.dispatch import Met, Silent
from placements.status import NOT_SENT, OperationState
from reconciliation import restores
from reconciliation.facts_types import Unknown
from reconciliation.restores import Earlier, Obstacle, Wish
from tenants_api import idempotency, lease_reads
from tenants_api.backend_reads import LOST_TEXT
from tenants_api.errors import ApiError, answer, internal, request_id_of, timed_out, unavailable, unusable
from tenants_api.idempotency import Attempt
from tenants_api.lease_route import Call, lease_route
from tenants_api.relay import relayed

_POLL_S: Final = 0.25
_ENDED: Final = frozenset({LeaseState.CLOSED, LeaseState.EXPIRED})
_BODY: Final = "invalid request body"

S = OperationState
log = structlog.get_logger(__name__)


@lease_route("POST", once=True)
def restore(call: Call) -> HttpResponse:
    """Ask the backend that kept the data of another lease of the caller's to put it under this one."""
    until = call.waits_until()
    return idempotency.answered(call, lambda attempt: _restore(call, attempt, until=until), otherwise=_BODY)


def _restore(call: Call, attempt: Attempt, *, until: float) -> HttpResponse:
    facts = call.known_lease()
    call.note(attempt.operation_id)
    if attempt.is_repeat and (before := restores.earlier(attempt.operation_id)) is not None:
        return _resume(before, attempt.operation_id, call.lease_uuid, until=until)
    if facts.state != LeaseState.PENDING:
        raise _not_pending()
    source = _source_named(call)
    _check_source(call, source)
    wish = Wish(
        operation=attempt.operation_id,
        target=call.lease_uuid,
        source=source,
        tenant=call.token.tenant,
        request_id=request_id_of(call.request),
    )
    call.let_out()
    try:
        admitted = restores.admit_restore(wish)
    except DatabaseFailure as error:
        log.error("restore.not_admitted", lease_uuid=str(wish.target), error=type(error).__name__)  # noqa: TRY400
        raise internal() from None  # a commit that was not answered may have been one
    if isinstance(admitted, Obstacle):
        raise _obstacle(admitted)
    if isinstance(admitted, Earlier):
        return _resume(admitted, wish.operation, wish.target, until=until)
    crash.point("restore.admitted")
    return _outcome(dispatch.push_and_wait(admitted, until=until), wish.operation, wish.target)


def _source_named(call: Call) -> UUID:
    try:
        text = decode_object(call.body(otherwise=_BODY), {"from_lease_uuid": str}, more=True)["from_lease_uuid"]
    except DecodeError:
        raise ApiError(400, _BODY, error_code="invalid_body") from None
    if not text:
        raise ApiError(400, "from_lease_uuid is required", error_code="invalid_body")
    try:
        source = decode_uuid(text)
    except DecodeError:
        raise ApiError(400, "from_lease_uuid is not a valid UUID", error_code="invalid_body") from None
    if source == call.lease_uuid:
        text = "from_lease_uuid must differ from the restore target UUID"
        raise ApiError(400, text, error_code="invalid_body")
    return source


def _check_source(call: Call, source: UUID) -> None:
    """Raise unless the chain says that the source was the caller's, and ours, and has ended.

    One that the chain does not know any more passes: its placement and its backend know whose it was.
    """
    stored = lease_reads.load(source)
    if stored is not None and stored.state in TERMINAL:
        owner, state = (stored.tenant, stored.provider_uuid), stored.state
    else:
        match lease_reads.exactly(source):
            case ExactLease(lease=lease):
                owner, state = (lease.tenant, lease.provider_uuid), lease.state
            case Absent():
                return
            case Unknown(reason=lease_reads.FOREIGN):
                raise _not_kept()
            case _:
                raise unavailable()
    if owner != (call.token.tenant, settings.FRED.provider_uuid) or state not in _ENDED:
        raise _not_kept()


def _obstacle(obstacle: Obstacle) -> ApiError:
    match obstacle:
        case Obstacle.NOT_PENDING:
            return _not_pending()
        case Obstacle.NOT_KEPT:
            return _not_kept()
        case Obstacle.LOST:
            return ApiError(410, LOST_TEXT, reason="backend_storage_lost")
        case Obstacle.UNCLEAR:
            return unavailable("backend_unresolvable")
        case Obstacle.SOURCE_BUSY | Obstacle.TARGET_BUSY:
            return ApiError(409, "lease is already being provisioned or restored", reason=obstacle.value)


def _outcome(told: Met | Silent, operation: UUID, target: UUID) -> HttpResponse:
    """The answer to what the push met. Only what the backend itself said, or what never left, may mean "no"."""
    match told:
        case Silent(sent=True):
            raise internal()
        case Silent():
            _free(operation, target)
            raise timed_out()
        case Met(answer=met):
            pass
    match met.result:
        case Accepted():
            return _taken()
        case Refused() as refused:
            _free(operation, target)
            raise _refusal(refused)
        case NotSent():
            _free(operation, target)
            raise internal() if met.push.posted else _silent()
        case Ambiguous(category=Category.ALREADY_PROVISIONED):
            raise _already()
        case Ambiguous(category=Category.MALFORMED):
            raise unusable()
    raise internal()


def _resume(found: Earlier, operation: UUID, target: UUID, *, until: float) -> HttpResponse:
    """The answer to a restore that an earlier run of this request admitted: as that would have been answered."""
    while found.state in {S.RESERVED, S.IN_DOUBT}:
        if time.monotonic() + _POLL_S > until:
            raise internal()
        let_go()
        time.sleep(_POLL_S)
        found = restores.earlier(operation) or found
    match found.state:
        case S.ACCEPTED | S.SUCCEEDED:
            return _taken()
        case S.FAILED if not found.refusal:  # its backend took it, and reported a failure since
            return _taken()
        case S.REFUSED:
            _free(operation, target)
            kind, code = _kind_of(found.refusal)
            raise _refusal(Refused(kind, found.error, code))
        case S.ENDED if found.refusal == NOT_SENT:
            _free(operation, target)
            raise _silent()
        case S.ENDED:
            raise _not_pending()
    raise internal()


def _free(operation: UUID, target: UUID) -> None:
    """Let go of the new lease at once; if that can't be written now, a look does it."""
    try:
        restores.settle_unmade(operation, target)
    except DatabaseFailure as error:
        log.warning("restore.not_settled", lease_uuid=str(target), error=type(error).__name__)


def _refusal(refused: Refused) -> ApiError:  # noqa: PLR0911 - a table
    match refused.kind:
        case RefusalKind.NOT_RETAINED:
            return _not_kept()
        case RefusalKind.INVALID_STATE if refused.code == "already_provisioned":
            return _already()
        case RefusalKind.INVALID_STATE:
            return ApiError(409, "lease not in a restorable state", error_code="invalid_state")
        case RefusalKind.CAPACITY:
            return ApiError(503, "insufficient resources to restore", error_code="insufficient_resources")
        case RefusalKind.DEMOTE_EXCEEDS_TIER:
            otherwise = "retained data exceeds the requested smaller tier"
            return ApiError(422, relayed(refused.message, otherwise=otherwise), error_code="demote_exceeds_tier")
        case RefusalKind.RESTORE_REFUSED:
            text = relayed(refused.message, otherwise="the provider backend refused the restore")
            return ApiError(422, text, error_code="backend_rejected")
    text = relayed(refused.message, otherwise="the restore request was rejected as invalid")
    return ApiError(400, text, error_code="backend_rejected")


def _kind_of(refusal: str) -> tuple[RefusalKind, str]:
    """Kind and code of a refusal, from the one word that is stored of it."""
    match refusal:
        case "insufficient_resources":
            return RefusalKind.CAPACITY, refusal
        case "already_provisioned":
            return RefusalKind.INVALID_STATE, refusal
    try:
        return RefusalKind(refusal), ""
    except ValueError:
        return RefusalKind.VALIDATION, refusal


def _taken() -> HttpResponse:
    return answer({"status": "provisioning"}, status=202)


def _not_pending() -> ApiError:
    text = "lease is not pending; only a fresh lease can be restored into"
    return ApiError(409, text, reason="target_not_pending")


def _not_kept() -> ApiError:
    return ApiError(404, "no retained data found for that lease", error_code="no_retained_data")


def _already() -> ApiError:
    return ApiError(409, "lease already provisioned", error_code="already_provisioned")


def _silent() -> ApiError:
    return ApiError(503, "restore backend is temporarily unavailable", error_code="store_unavailable")
