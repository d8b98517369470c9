"""What the answer to a restore, restart, update or change of domains means: pure, like `backends.outcomes`.

Only an exact answer refuses. A code that means nothing for its status settles nothing, whatever its text says.
"""

from dataclasses import dataclass

from backends import envelope
from backends.contract import Absent, Dialect, ProvisionInfo, Unknown
from backends.envelope import Empty, Envelope, Malformed
from backends.outcomes import (
    Accepted,
    AlreadyProvisioned,
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


@dataclass(frozen=True, slots=True)
class Conflict:
    """A 409 of an older backend that may be about this very restore, sent before: the target lease has to be read."""

    message: str
    category: Category
    pulse: Pulse = Pulse.SUCCESS


RestoreOutcome = Accepted | Refused | NotSent | Ambiguous | CapacityClaimed | RouteMissing | Conflict
MaintenanceOutcome = Accepted | Refused | NotSent | Ambiguous

_Body = Envelope | Empty | Malformed


def classify_restore(  # noqa: PLR0911 - a table
    response: Response, *, dialect: Dialect = Dialect.V0_13, repeated: bool = False
) -> RestoreOutcome:
    """The outcome of `POST /restore`. `repeated`: an earlier one with the same id may have arrived.

    An older backend answers before it begins, so there every readable refusal is one, whatever its code.
    """
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
            return _restore_conflict(body, older=dialect is Dialect.V0_13, repeated=repeated)
        case 422:
            return _not_kept(body, older=dialect is Dialect.V0_13)
        case 503 if dialect is Dialect.V0_13:
            return CapacityClaimed(_text(body, Category.INSUFFICIENT_RESOURCES))
        case 503:
            return _unavailable(body)
    return Ambiguous(generic_text("restore", response))


def resolve_restore(
    outcome: AlreadyProvisioned | CapacityClaimed | RouteMissing | Conflict, *, read: ProvisionInfo | Absent | Unknown
) -> Refused | NotSent | Ambiguous:
    """Settle an unproven answer of an older backend by a point read of the target made after it."""
    if isinstance(outcome, AlreadyProvisioned | CapacityClaimed):
        return resolve_provision(outcome, read=read)
    if isinstance(outcome, Conflict):
        if isinstance(read, Absent):
            known = "already_provisioned" if outcome.category is Category.ALREADY_PROVISIONED else ""
            return Refused(RefusalKind.INVALID_STATE, outcome.message, known, pulse=Pulse.NEUTRAL)
        return Ambiguous(outcome.message, pulse=Pulse.NEUTRAL, category=outcome.category)
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


def _restore_conflict(body: _Body, *, older: bool, repeated: bool) -> Refused | Ambiguous | Conflict:  # noqa: PLR0911
    match body:
        case Malformed():
            return malformed(body)
        case Envelope(error=text, code="already_provisioned") if older:
            return Conflict(text, Category.ALREADY_PROVISIONED)
        case _ if older and repeated:
            return Conflict(_text(body, Category.INVALID_STATE), Category.INVALID_STATE)
        case Envelope(error=text, code=code) if older:
            return Refused(RefusalKind.INVALID_STATE, text, unknown_code=code)
        case Empty():
            return Refused(RefusalKind.INVALID_STATE, Category.INVALID_STATE)
        case Envelope(error=text, code=""):
            return Refused(RefusalKind.INVALID_STATE, text)
        case Envelope(error=text, code="already_provisioned"):
            return Ambiguous(text, pulse=Pulse.SUCCESS, category=Category.ALREADY_PROVISIONED)
        case Envelope(error=text, code="operation_completion_pending"):
            return Ambiguous(text, pulse=Pulse.SUCCESS, category=Category.COMPLETION_PENDING)
    return Ambiguous(body.error, pulse=Pulse.SUCCESS, category=Category.INVALID_STATE, unknown_code=body.code)


def _text(body: _Body, otherwise: str) -> str:
    return body.error if isinstance(body, Envelope) else otherwise


def _not_kept(body: _Body, *, older: bool) -> Refused | Ambiguous:
    match body:
        case Malformed():
            return malformed(body)
        case Empty():
            return Refused(RefusalKind.NOT_RETAINED, Category.NOT_RETAINED)
        case Envelope(error=text, code=""):
            return Refused(RefusalKind.NOT_RETAINED, text)
        case Envelope(error=text, code="demote_exceeds_tier"):
            return Refused(RefusalKind.DEMOTE_EXCEEDS_TIER, text, "demote_exceeds_tier")
        case Envelope(error=text, code=code) if older:
            return Refused(RefusalKind.RESTORE_REFUSED, text, unknown_code=code)
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
