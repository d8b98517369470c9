"""What the instances of a lease wrote, as its backend keeps it."""

from time import monotonic
from typing import Final

from django.http import HttpResponse

from backends.contract import Absent, Busy, Unknown
from backends.requests import log_body_bytes
from fred.budget import within
from fred.connections import let_go
from fred.handler import SENT
from tenants_api import backend_reads, query
from tenants_api.errors import ApiError, answer, internal, timed_out
from tenants_api.lease_route import Call, lease_route
from tenants_api.log_slots import Full, LogSlots, Slot, TooLate

DEFAULT_TAIL: Final = 100
MAX_TAIL: Final = 10_000
BUDGET_S: Final = 10.0
"""For waiting and reading together; a request as a whole has 12 s."""

slots = LogSlots()


@lease_route("GET")
def logs(call: Call) -> HttpResponse:
    """The last lines of each instance; few such answers are made at once."""
    deadline = monotonic() + within(BUDGET_S)
    facts = call.known_lease()
    target = backend_reads.owner(facts)
    tail = _tail(call)
    with _slot(call, log_body_bytes(target), deadline - monotonic()) as slot:
        found = backend_reads.logs(target, call.lease_uuid, tail=tail, seconds=deadline - monotonic())
        response = answer({**call.head, "logs": dict(sorted(_known(found).items()))})
        slot.shrink(len(response.content))
        sent = getattr(call.request, "scope", {}).get(SENT)
        if sent is not None:
            sent.append(slot.keep())
    return response


def _known(found: dict[str, str] | Absent | Unknown) -> dict[str, str]:
    match found:
        case Absent():
            raise ApiError(404, "logs not found", error_code="not_provisioned")
        case Busy():
            raise _exhausted()
        case Unknown():
            raise internal()
    return found


def _tail(call: Call) -> int:
    try:
        tail = query.integer(call.request, "tail")
    except ValueError:
        tail = 0
    if tail is None:
        return DEFAULT_TAIL
    if tail < 1:
        raise query.refuse("tail must be a positive integer")
    if tail > MAX_TAIL:
        raise query.refuse(f"tail must not exceed {MAX_TAIL}")
    return tail


def _slot(call: Call, size: int, seconds: float) -> Slot:
    let_go()
    try:
        return slots.take(call.token.tenant, size=size, seconds=seconds)
    except Full:
        raise _exhausted() from None
    except TooLate:
        raise timed_out() from None


def _exhausted() -> ApiError:
    return ApiError(503, "log response capacity exhausted", error_code="insufficient_resources", line_feed=False)
