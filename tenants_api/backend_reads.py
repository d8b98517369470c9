"""Asking backends on behalf of a tenant: whom to ask, and what their answers come to."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Final, TypeVar
from uuid import UUID

import structlog
from django.conf import settings

from backends import targets
from backends.client import BackendClient, ask_each
from backends.contract import Absent, LeaseInfo, ProvisionInfo, ProvisionStatus, Unknown
from backends.releases import ReleaseInfo
from backends.requests import BackendTarget
from fred import breaker, http, loop_http, on_loop
from fred.budget import within
from fred.connections import let_go
from placements.models import Placement
from tenants_api.errors import ApiError
from tenants_api.lease_reads import LeaseFacts

DEADLINE_S: Final = 5.0
"""Time for all backends together; a request as a whole has 12 s."""
HEAD_START_S: Final = 2.0
"""How long the placed backend is asked alone; it is asked again with the others when it took longer."""
LOST_TEXT: Final = "the backend storage holding this lease was irrecoverably lost"

_LEAST_S: Final = 0.1
_T = TypeVar("_T")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Unresolved(Unknown):
    """Nobody who was asked has the lease, but it is not settled who should."""

    reason: str = "it is not settled which backend holds the lease"


def is_lost(facts: LeaseFacts) -> bool:
    """Whether the lease's backend was retired with its storage gone for good: our record answers, nobody is asked."""
    return facts.placement == Placement.Status.LOST


def refuse_lost(facts: LeaseFacts) -> None:
    """Raise the 410 of a lease whose storage is lost."""
    if is_lost(facts):
        raise ApiError(410, LOST_TEXT, reason="backend_storage_lost")


def owner(facts: LeaseFacts) -> BackendTarget:
    """The one backend that may answer for a lease.

    The placed one; without a placement the first that serves the lease's first SKU, else the default. Raises 410 for a
    lost lease, and 503 when the placed one is not configured or fenced, or when it is not settled which one it is:
    another one never answers for data it does not hold.
    """
    refuse_lost(facts)
    if facts.placement:
        target = targets.target(facts.backend) if _is_settled(facts) else None
    else:
        target = targets.target(next(iter(targets.serving(facts.sku)), settings.FRED.default_backend.name))
    if target is None or target.fenced:
        raise ApiError(503, "service unavailable", error_code="backend_unresolvable")
    return target


def info(target: BackendTarget, lease_uuid: UUID) -> LeaseInfo | Absent | Unknown:
    """Ask one backend how a lease is reached."""
    return _told(target, lease_uuid, client(target).info(lease_uuid))


def releases(target: BackendTarget, lease_uuid: UUID) -> tuple[ReleaseInfo, ...] | Absent | Unknown:
    """Ask one backend for a lease's releases, oldest first."""
    return _told(target, lease_uuid, client(target).releases(lease_uuid))


def logs(target: BackendTarget, lease_uuid: UUID, *, tail: int, seconds: float) -> dict[str, str] | Absent | Unknown:
    """Ask one backend for the last lines of a lease's instances."""
    return _told(target, lease_uuid, client(target, seconds).logs(lease_uuid, tail=tail))


def provision_of(facts: LeaseFacts) -> ProvisionInfo | Absent | Unknown:
    """Find the provision of a lease: at its placed backend, else at any that may have it, all within 5 s.

    A hit ends the search. Without one the first error of the search counts, then that of the placed backend; only if
    everybody who might hold it said no it is Absent. While the owner is fenced, or nobody has it and it is not settled
    who should, it is Unresolved.
    """
    began = monotonic()
    until = began + DEADLINE_S
    everybody = targets.configured()
    placed = everybody.get(facts.backend)
    fenced = placed is not None and placed.fenced
    others = {name: one for name, one in _candidates(facts, everybody).items() if placed is None or name != placed.name}
    doubt: Unknown | None = None
    if placed is not None and not fenced:
        found = _ask(placed, facts.uuid, HEAD_START_S if others else DEADLINE_S)
        if isinstance(found, ProvisionInfo):
            return found
        if isinstance(found, Unknown):
            doubt = found
            if others and monotonic() - began >= HEAD_START_S:
                others[placed.name] = placed
    found = search(others.values(), facts.uuid, until=until) if others else Absent()
    if isinstance(found, ProvisionInfo):
        return found
    if fenced:
        return Unresolved()
    if isinstance(found, Absent) and doubt is not None:
        return doubt
    if isinstance(found, Absent) and facts.placement and (placed is None or not _is_settled(facts)):
        return Unresolved()
    return found


def retained_by(tenant: str, lease_uuid: UUID) -> ProvisionInfo | None:
    """The retained data of a lease that the chain does not know any more, if a backend keeps it for this tenant.

    Anything else, a failing backend too, is None: nothing can be told apart from an unknown lease.
    """

    def is_theirs(found: ProvisionInfo) -> bool:
        return found.status is ProvisionStatus.RETAINED and bool(found.tenant) and found.tenant == tenant

    everybody = targets.configured().values()
    found = search(everybody, lease_uuid, until=monotonic() + DEADLINE_S, wanted=is_theirs)
    return found if isinstance(found, ProvisionInfo) else None


def search(
    asked: Iterable[BackendTarget],
    lease_uuid: UUID,
    *,
    until: float,
    wanted: Callable[[ProvisionInfo], bool] = lambda _: True,
) -> ProvisionInfo | Absent | Unknown:
    """Ask these backends for a lease's provision, all at once, until a `monotonic` time; fenced ones are passed over.

    The first hit that is wanted is the answer; without one an error is, and Absent only if all said no.
    """
    seconds = until - monotonic()
    clients = {one.name: (one, client(one, seconds)) for one in asked if not one.fenced}
    doubt: Unknown | None = None
    questions = {name: partial(reader.begin_provision_info, lease_uuid) for name, (_, reader) in clients.items()}
    answers = ask_each(questions, each=loop_http.fetch_each if on_loop.is_here() else http.fetch_each)
    with closing(answers):
        for name, found in answers:
            _told(clients[name][0], lease_uuid, found)
            if isinstance(found, ProvisionInfo) and wanted(found):
                return found
            if isinstance(found, Unknown) and doubt is None:
                doubt = found
    return doubt or Absent()


def client(target: BackendTarget, seconds: float = DEADLINE_S) -> BackendClient:
    """Reads from one backend through its breaker, each waiting so long at most, and no longer than its request may.

    Meanwhile the caller's thread holds no connection to the database.
    """
    let_go()
    fetch = loop_http.fetch if on_loop.is_here() else http.fetch
    return BackendClient(target, breaker.of(target.name), limit=max(_LEAST_S, within(seconds)), fetch=fetch)


def _ask(target: BackendTarget, lease_uuid: UUID, seconds: float) -> ProvisionInfo | Absent | Unknown:
    return _told(target, lease_uuid, client(target, seconds).provision_info(lease_uuid))


def _told(target: BackendTarget, lease_uuid: UUID, found: _T) -> _T:
    if isinstance(found, Unknown):
        log.warning("backend.no_answer", backend=target.name, lease_uuid=str(lease_uuid), reason=found.reason)
    return found


def _candidates(facts: LeaseFacts, everybody: Mapping[str, BackendTarget]) -> dict[str, BackendTarget]:
    """Who may hold the lease: who is named for it, then all that serve its SKU, or everybody if none does."""
    names = (facts.attempted, *facts.conflicting, *(targets.serving(facts.sku) or everybody))
    return {name: everybody[name] for name in names if name in everybody}


def _is_settled(facts: LeaseFacts) -> bool:
    """Whether one backend is known to hold what the lease has: confirmed, or attempted with the outcome in."""
    if facts.placement == Placement.Status.ATTEMPTED:
        return not facts.attempt_is_open
    return facts.placement == Placement.Status.CONFIRMED
