"""What a tenant is told of its restart or update: one table for requests with a command key, one for those without."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from django.http import HttpResponse

from fred import metrics
from placements.command_status import MALFORMED, CommandKind, CommandState
from placements.command_waits import AwaitedCommand
from reconciliation.command_admission import NotAdmitted
from tenants_api.errors import ApiError, answer, internal, lease_inactive, unavailable, unusable
from tenants_api.idempotency import REPLAYED
from tenants_api.relay import relayed

_TOOK: Final = {CommandState.ACCEPTED, CommandState.SUCCEEDED}
_EXPIRED: Final = (
    "this command is older than the lease's retained maintenance history and was not run; send a new command"
)
_RESERVED: Final = (
    "maintenance capacity is reserved for tenants without pending work; retry after your pending work completes"
)


def keyed(found: AwaitedCommand | None, *, replayed: bool) -> HttpResponse:
    """The answer to a request with a command key. `replayed`: another request brought the command.

    While the command is open it may still run: the same key joins it. Raises ApiError.
    """
    headers = {REPLAYED: "true"} if replayed else {}
    if found is not None and (found.took or found.state in _TOOK):
        return answer({"status": found.kind.progress}, status=202, headers=headers)
    if found is None or found.is_open:
        raise internal() if found is not None and found.unwritten else unavailable()
    raise _refused(found, headers, is_replay=replayed)


def _refused(found: AwaitedCommand, headers: Mapping[str, str], *, is_replay: bool) -> ApiError:
    verb = found.kind.value
    if found.state is CommandState.ENDED:
        return ApiError(409, "lease is no longer active", error_code="lease_not_active", headers=headers)
    match found.refusal if found.state is CommandState.REFUSED else "":
        case "not_provisioned":
            return ApiError(404, "lease not yet provisioned", error_code="not_provisioned", headers=headers)
        case "expired":
            return ApiError(410, _EXPIRED, reason="maintenance_expired", headers=headers)
        case "validation":
            text = relayed(found.error, otherwise=f"the {verb} request was rejected as invalid")
            return ApiError(400, text, error_code="backend_rejected", headers=headers)
        case "capacity":
            reason = "capacity_refused" if is_replay else ""
            text = "service temporarily unavailable"
            return ApiError(503, text, reason=reason, error_code="insufficient_resources", headers=headers)
    return ApiError(409, f"invalid state for {verb}", headers=headers)


def keyless(found: AwaitedCommand | None) -> HttpResponse:
    """The answer to a request without a command key. What was or may be sent is never a 503. Raises ApiError."""
    if found is not None and (found.took or found.state in _TOOK):
        return answer({"status": found.kind.progress}, status=202)
    if found is None or found.is_open:
        raise internal()
    if found.state is CommandState.ENDED:
        raise lease_inactive()
    if found.state is CommandState.REFUSED:
        raise _refused_keyless(found)
    raise invalid_state(found.kind)


def _refused_keyless(found: AwaitedCommand) -> ApiError:
    is_update = found.kind is CommandKind.UPDATE
    if found.refusal == "not_provisioned":
        return ApiError(404, "lease not yet provisioned", error_code="not_provisioned")
    if found.refusal in {"invalid_state", "expired"}:
        return invalid_state(found.kind)
    if found.refusal == "validation" and is_update:
        text = relayed(found.error, otherwise="the update request was rejected as invalid")
        return ApiError(400, text, error_code="backend_rejected")
    if found.refusal == MALFORMED and is_update:
        return unusable()
    return internal()


def invalid_state(kind: CommandKind) -> ApiError:
    """The lease is not in a state in which this can be done."""
    return ApiError(409, f"invalid state for {kind.value}")


def conflict() -> ApiError:
    """The key names another command of this lease."""
    metrics.IDEMPOTENCY.labels("conflict").inc()
    text = "Idempotency-Key conflicts with a prior maintenance command"
    return ApiError(409, text, error_code="idempotency_key_mismatch")


def not_admitted(why: NotAdmitted, *, kind: CommandKind, is_keyed: bool) -> ApiError:
    """The answer when nothing was recorded, and nothing sent."""
    if why in {NotAdmitted.RESERVED_COUNT, NotAdmitted.RESERVED_BYTES}:
        return ApiError(429, _RESERVED, reason="maintenance_capacity_reserved", headers={"Retry-After": "1"})
    if is_keyed:
        return _KEYED.get(why, unavailable)()
    if why is NotAdmitted.BUSY:
        return invalid_state(kind)
    return _KEYLESS.get(why, unavailable)()


def ended() -> ApiError:
    """The lease is over, or not acknowledged yet."""
    return ApiError(409, "lease is no longer active", error_code="lease_not_active")


_KEYED: Final[Mapping[NotAdmitted, Callable[[], ApiError]]] = {
    NotAdmitted.LEASE_ENDED: ended,
    NotAdmitted.BUSY: partial(
        ApiError, 409, "lease is already undergoing a lifecycle operation", error_code="lifecycle_busy"
    ),
}
_KEYLESS: Final[Mapping[NotAdmitted, Callable[[], ApiError]]] = {
    NotAdmitted.LEASE_ENDED: lease_inactive,
    NotAdmitted.UNPLACED: partial(ApiError, 503, "service unavailable", error_code="backend_unresolvable"),
}
