"""What the answer to a mutation means: the pure mapping from a response to an outcome.

Only these functions say "refused" or "not sent". Whatever they can't prove is `Ambiguous`: the work may have begun.
"""

from dataclasses import dataclass
from enum import StrEnum

from backends import envelope
from backends.contract import (
    CHAIN_REJECTIONS,
    VALIDATION_REJECTION,
    Absent,
    Dialect,
    ProvisionInfo,
    ProvisionStatus,
    Unknown,
)
from backends.envelope import MALFORMED_TEXT, Empty, Envelope, Malformed
from fred.http import Response


class Pulse(StrEnum):
    """What an answer tells the circuit breaker."""

    SUCCESS = "success"
    FAILURE = "failure"
    NEUTRAL = "neutral"


class RefusalKind(StrEnum):
    """Why a backend positively declined, before any effect."""

    VALIDATION = "validation"
    CAPACITY = "capacity"
    NOT_PROVISIONED = "not_provisioned"
    NOT_RETAINED = "not_retained"
    INVALID_STATE = "invalid_state"
    DEMOTE_EXCEEDS_TIER = "demote_exceeds_tier"
    RESTORE_REFUSED = "restore_refused"
    EXPIRED = "expired"


class Category(StrEnum):
    """What an error is called towards callers; the text is stable."""

    NOT_PROVISIONED = "lease not provisioned"
    ALREADY_PROVISIONED = "lease already provisioned"
    VALIDATION = "validation error"
    INSUFFICIENT_RESOURCES = "insufficient resources"
    CAPACITY_REFUSED = "insufficient resources: backend refused the request"
    INVALID_STATE = "invalid state for operation"
    NOT_RETAINED = "no retained data for lease"
    DEMOTE_EXCEEDS_TIER = "retained data exceeds the requested smaller tier"
    RESTORE_REFUSED = "backend refused the restore"
    MALFORMED = MALFORMED_TEXT
    MAINTENANCE_EXPIRED = "maintenance command is older than the lease's retained history"
    COMPLETION_PENDING = "an earlier operation completion is pending"
    LIFECYCLE_PENDING = "admitted lifecycle work remains pending"
    GENERIC = "backend error"


REFUSAL_CATEGORIES = {
    RefusalKind.VALIDATION: Category.VALIDATION,
    RefusalKind.CAPACITY: Category.CAPACITY_REFUSED,
    RefusalKind.NOT_PROVISIONED: Category.NOT_PROVISIONED,
    RefusalKind.NOT_RETAINED: Category.NOT_RETAINED,
    RefusalKind.INVALID_STATE: Category.INVALID_STATE,
    RefusalKind.DEMOTE_EXCEEDS_TIER: Category.DEMOTE_EXCEEDS_TIER,
    RefusalKind.RESTORE_REFUSED: Category.RESTORE_REFUSED,
    RefusalKind.EXPIRED: Category.MAINTENANCE_EXPIRED,
}


@dataclass(frozen=True, slots=True)
class Accepted:
    """The backend took the work; its result arrives as a callback."""

    pulse: Pulse = Pulse.SUCCESS


@dataclass(frozen=True, slots=True)
class Refused:
    """Declined before any effect. `message` is the backend's curated text, `code` its sub-category, if known.

    `unknown_code` is a code of a valid error body that means nothing for its status, for the log.
    """

    kind: RefusalKind
    message: str
    code: str = ""
    pulse: Pulse = Pulse.SUCCESS
    unknown_code: str = ""

    @property
    def category(self) -> Category:
        """What this is called towards callers."""
        return REFUSAL_CATEGORIES[self.kind]

    @property
    def chain_reason(self) -> str:
        """What a reject or close for this refusal says on chain; the backend's own text never does."""
        return CHAIN_REJECTIONS.get(self.code, VALIDATION_REJECTION)


@dataclass(frozen=True, slots=True)
class NotSent:
    """Proven: the backend began nothing for this call."""

    reason: str
    pulse: Pulse = Pulse.FAILURE


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """The work may have begun. `malformed` says why an error body could not be read, for the log and the counter.

    `unknown_code` is a code of a valid error body that means nothing for its status, for the log.
    """

    reason: str
    pulse: Pulse = Pulse.FAILURE
    malformed: str = ""
    category: Category = Category.GENERIC
    unknown_code: str = ""


@dataclass(frozen=True, slots=True)
class AlreadyProvisioned:
    """A 409: something is there, but not whose. A `v0_13` backend must be asked what it holds (`resolve_provision`)."""

    message: str
    pulse: Pulse = Pulse.SUCCESS


@dataclass(frozen=True, slots=True)
class CapacityClaimed:
    """A 503 without proof that nothing was begun; to be resolved like `AlreadyProvisioned`."""

    message: str
    pulse: Pulse = Pulse.SUCCESS


@dataclass(frozen=True, slots=True)
class Done:
    """A deprovision is complete, or recorded by the backend and going on by itself."""

    pulse: Pulse = Pulse.SUCCESS


@dataclass(frozen=True, slots=True)
class Deferred:
    """The backend will take the deprovision later: ask again."""

    reason: str
    pulse: Pulse = Pulse.SUCCESS


ProvisionOutcome = Accepted | Refused | NotSent | Ambiguous | AlreadyProvisioned | CapacityClaimed
Outcome = ProvisionOutcome
DeprovisionOutcome = Done | Deferred | NotSent | Ambiguous


def unanswered(operation: str, response: Response) -> NotSent | Ambiguous | None:
    """The outcome of a call that got no usable answer; None when it got one."""
    if response.error is None:
        return None
    reason = envelope.clean(f"{operation} request failed: {response.error.message}")
    return NotSent(reason) if response.error.sent_nothing else Ambiguous(reason)


def generic_text(operation: str, response: Response) -> str:
    """The operators' text for a status without a meaning of its own; holds the peer's words, so nobody else sees it."""
    body = envelope.clean(response.body[: envelope.MAX_BYTES].decode(errors="replace"))
    return f"{operation} failed with status {response.status}: {body}"


def malformed(why: Malformed | Empty) -> Ambiguous:
    """The outcome of an error body that is not the envelope."""
    reason = why.why if isinstance(why, Malformed) else "body is empty"
    return Ambiguous(MALFORMED_TEXT, malformed=reason, category=Category.MALFORMED)


def classify_provision(response: Response, *, dialect: Dialect = Dialect.V0_13) -> ProvisionOutcome:
    """The outcome of `POST /provision`."""
    if (nothing := unanswered("provision", response)) is not None:
        return nothing
    body = envelope.read(response.body, dialect=dialect)
    match response.status:
        case 202:
            return Accepted()
        case 400:
            return invalid(body)
        case 409:
            return _conflict(body, dialect)
        case 503:
            return _no_room(body, dialect)
    return Ambiguous(generic_text("provision", response))


def invalid(body: Envelope | Empty | Malformed) -> Refused | Ambiguous:
    """The outcome of a 400: a refusal only with an error body that can be read."""
    if isinstance(body, Envelope):
        known = body.validation_code if body.validation_code in CHAIN_REJECTIONS else ""
        return Refused(RefusalKind.VALIDATION, body.error, known)
    return malformed(body)


def _conflict(body: Envelope | Empty | Malformed, dialect: Dialect) -> ProvisionOutcome:
    if dialect is Dialect.V0_13:  # this dialect's body has no meaning; whatever it is, the lease is known there
        return AlreadyProvisioned(body.error if isinstance(body, Envelope) else "lease already provisioned")
    match body:
        case Malformed():
            return malformed(body)
        case Envelope(error=text, code="operation_completion_pending" | "invalid_state"):
            return Ambiguous(text, pulse=Pulse.SUCCESS)
        case Envelope(error=text):
            return Ambiguous(f"lease already provisioned: {text}", pulse=Pulse.SUCCESS)
    return Ambiguous("lease already provisioned", pulse=Pulse.SUCCESS)


def _no_room(body: Envelope | Empty | Malformed, dialect: Dialect) -> ProvisionOutcome:
    match body, dialect:
        case Envelope(error=text), Dialect.V0_13:
            return CapacityClaimed(text)
        case Envelope(error=text, code="insufficient_resources"), Dialect.CURRENT:
            return Refused(RefusalKind.CAPACITY, text, "insufficient_resources")
        case Malformed(), Dialect.CURRENT:
            return malformed(body)
    return Ambiguous("insufficient resources", pulse=Pulse.SUCCESS)


def resolve_provision(
    outcome: AlreadyProvisioned | CapacityClaimed,
    *,
    read: ProvisionInfo | Absent | Unknown,
    before: ProvisionInfo | None = None,
) -> Refused | NotSent | Ambiguous:
    """Settle an unproven answer of a `v0_13` backend by a point read made after it.

    `before` is the row as it was before the call, if it was read. Any row that may be this call's work keeps the
    attempt.
    """
    refused = Refused(RefusalKind.CAPACITY, outcome.message, "insufficient_resources")
    match read, outcome:
        case Absent(), CapacityClaimed():
            return refused
        case Absent(), AlreadyProvisioned():
            return NotSent(outcome.message, pulse=Pulse.NEUTRAL)
        case ProvisionInfo(status=ProvisionStatus.FAILED), CapacityClaimed() if before is not None and (
            (read.created_at, read.fail_count) == (before.created_at, before.fail_count)
        ):
            return refused
        case Unknown(reason=reason), _:
            return Ambiguous(f"{outcome.message}; not resolved: {reason}", pulse=Pulse.NEUTRAL)
    return Ambiguous(f"{outcome.message}; the backend holds the lease", pulse=Pulse.NEUTRAL)


def classify_deprovision(response: Response, *, dialect: Dialect = Dialect.V0_13) -> DeprovisionOutcome:
    """The outcome of `POST /deprovision`. Only an exact 200 is done; 204 and 404 are not."""
    if (nothing := unanswered("deprovision", response)) is not None:
        return nothing
    if response.status == 200:
        return Done()
    if dialect is Dialect.CURRENT and response.status in (409, 503):
        deferring = "close_deferred" if response.status == 409 else "lifecycle_pending"
        match envelope.read(response.body, dialect=dialect):
            case Envelope(error=text, code=code) if code == deferring:
                return Deferred(text)
            case Envelope(code=code):
                kind = "conflict" if response.status == 409 else "unavailable"
                return Ambiguous(f'deprovision returned unknown {kind} code "{code}"')
            case Empty() | Malformed() as body:
                return malformed(body)
    return Ambiguous(generic_text("deprovision", response))
