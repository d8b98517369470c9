"""What the answer to a restore, restart, update or change of domains means: pure, like `backends.outcomes`.

Only an exact answer refuses. A code that means nothing for its status settles nothing, whatever its text says.
"""

from dataclasses import dataclass

from backends import envelope
from backends.contract import Absent, Dialect, ProvisionInfo, Unknown
from backends.envelope import Empty, Envelope, Malformed
from backends.outcomes import (
    Accepted,
    Ambiguous,
    CapacityClaimed,
    Category,
    NotSent,
    Pulse,
    RefusalKind,
    Refused,
    generic_text,
    invalid,
    malformed,
    resolve_provision,
    unanswered,
)
from fred.http import Response


@dataclass(frozen=True, slots=True)
class RouteMissing:
    """An older backend without the route; the target lease has to be read before that proves anything."""

    message: str
    pulse: Pulse = Pulse.FAILURE


RestoreOutcome = Accepted | Refused | NotSent | Ambiguous | CapacityClaimed | RouteMissing
MaintenanceOutcome = Accepted | Refused | NotSent | Ambiguous

_Body = Envelope | Empty | Malformed


def classify_restore(response: Response, *, dialect: Dialect = Dialect.V0_13) -> RestoreOutcome:  # noqa: PLR0911
    """The outcome of `POST /restore`."""
    if (nothing := unanswered("restore", response)) is not None:
        return nothing
    body = envelope.read(response.body, dialect=dialect)
    match response.status:
        case 202:
            return Accepted()
        case 400:
            return invalid(body)
        case 404 if dialect is Dialect.V0_13:
            return RouteMissing(generic_text("restore", response))
        case 409:
            return _restore_conflict(body)
        case 422:
            return _not_kept(body)
        case 503 if dialect is Dialect.V0_13:
            return CapacityClaimed(body.error if isinstance(body, Envelope) else Category.INSUFFICIENT_RESOURCES)
        case 503:
            return _unavailable(body)
    return Ambiguous(generic_text("restore", response))


def resolve_restore(
    outcome: CapacityClaimed | RouteMissing, *, read: ProvisionInfo | Absent | Unknown
) -> Refused | NotSent | Ambiguous:
    """Settle an unproven answer of an older backend by a point read of the target made after it."""
    if isinstance(outcome, CapacityClaimed):
        return resolve_provision(outcome, read=read)
    match read:
        case Absent():
            return NotSent(outcome.message, pulse=Pulse.NEUTRAL)
        case Unknown(reason=reason):
            return Ambiguous(f"{outcome.message}; not resolved: {reason}", pulse=Pulse.NEUTRAL)
    return Ambiguous(f"{outcome.message}; the backend holds the lease", pulse=Pulse.NEUTRAL)


def classify_maintenance(  # noqa: PLR0911 - a table
    response: Response, *, operation: str, dialect: Dialect = Dialect.V0_13
) -> MaintenanceOutcome:
    """The outcome of `POST /restart` or `POST /update`, whichever `operation` names."""
    if (nothing := unanswered(operation, response)) is not None:
        return nothing
    body = envelope.read(response.body, dialect=dialect)
    older = dialect is Dialect.V0_13
    match response.status, body:
        case 202, _:
            return Accepted()
        case 400, _ if not (older and operation == "restart"):
            return invalid(body)
        case 404, _:
            return Refused(RefusalKind.NOT_PROVISIONED, Category.NOT_PROVISIONED)
        case 409, Envelope(error=text, code="maintenance_expired", validation_code="") if not older:
            return Refused(RefusalKind.EXPIRED, text, "maintenance_expired")
        case 409, _:
            text = body.error if isinstance(body, Envelope) else Category.INVALID_STATE
            return Refused(RefusalKind.INVALID_STATE, text)
        case 503, _ if not older:
            return _unavailable(body)
    return Ambiguous(generic_text(operation, response))


def classify_domains(response: Response, *, dialect: Dialect = Dialect.V0_13) -> MaintenanceOutcome:
    """The outcome of `POST /reconcile_custom_domain`."""
    operation = "reconcile_custom_domain"
    if (nothing := unanswered(operation, response)) is not None:
        return nothing
    match response.status:
        case 202 | 204:
            return Accepted()
        case 404:
            return Refused(RefusalKind.NOT_PROVISIONED, Category.NOT_PROVISIONED)
        case 409:
            return Refused(RefusalKind.INVALID_STATE, Category.INVALID_STATE)
        case 503 if dialect is Dialect.CURRENT:
            return _unavailable(envelope.read(response.body, dialect=dialect))
    return Ambiguous(generic_text(operation, response))


def _restore_conflict(body: _Body) -> Refused | Ambiguous:
    match body:
        case Malformed():
            return malformed(body)
        case Empty():
            return Refused(RefusalKind.INVALID_STATE, Category.INVALID_STATE)
        case Envelope(error=text, code=""):
            return Refused(RefusalKind.INVALID_STATE, text)
        case Envelope(error=text, code="already_provisioned"):
            return Ambiguous(text, pulse=Pulse.SUCCESS, category=Category.ALREADY_PROVISIONED)
        case Envelope(error=text, code="operation_completion_pending"):
            return Ambiguous(text, pulse=Pulse.SUCCESS, category=Category.COMPLETION_PENDING)
    return Ambiguous(body.error, pulse=Pulse.SUCCESS, category=Category.INVALID_STATE, unknown_code=body.code)


def _not_kept(body: _Body) -> Refused | Ambiguous:
    match body:
        case Malformed():
            return malformed(body)
        case Empty():
            return Refused(RefusalKind.NOT_RETAINED, Category.NOT_RETAINED)
        case Envelope(error=text, code=""):
            return Refused(RefusalKind.NOT_RETAINED, text)
        case Envelope(error=text, code="demote_exceeds_tier"):
            return Refused(RefusalKind.DEMOTE_EXCEEDS_TIER, text, "demote_exceeds_tier")
    return Ambiguous(body.error, pulse=Pulse.SUCCESS, category=Category.RESTORE_REFUSED, unknown_code=body.code)


def _unavailable(body: _Body) -> Refused | Ambiguous:
    """A 503 of the current dialect."""
    match body:
        case Malformed():
            return malformed(body)
        case Envelope(error=text, code="insufficient_resources"):
            return Refused(RefusalKind.CAPACITY, text, "insufficient_resources")
        case Envelope(error=text, code="lifecycle_pending"):
            return Ambiguous(text, pulse=Pulse.SUCCESS, category=Category.LIFECYCLE_PENDING)
        case Envelope(error=text, code=code):
            return Ambiguous(text, pulse=Pulse.SUCCESS, category=Category.INSUFFICIENT_RESOURCES, unknown_code=code)
    return Ambiguous(Category.INSUFFICIENT_RESOURCES, pulse=Pulse.SUCCESS, category=Category.INSUFFICIENT_RESOURCES)
