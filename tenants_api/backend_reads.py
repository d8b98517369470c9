"""Asking backends on behalf of a tenant: whom to ask, and what their answers come to."""

from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import lru_cache
from time import monotonic
from typing import Final
from uuid import UUID

import structlog
from django.conf import settings

from backends import targets
from backends.client import BackendClient
from backends.contract import Absent, LeaseInfo, ProvisionInfo, Unknown
from backends.requests import BackendTarget
from fred import breaker
from placements.models import Placement
from tenants_api.errors import ApiError
from tenants_api.lease_reads import LeaseFacts

DEADLINE_S: Final = 5.0
"""Time for all backends together; a request as a whole has 12 s."""
_PARALLEL: Final = 32
UNRESOLVED: Final = "it is not settled which backend holds the lease"

log = structlog.get_logger(__name__)


def owner(facts: LeaseFacts) -> BackendTarget:
    """The one backend that may answer for a lease.

    The placed one; without a placement the first that serves the lease's first SKU, else the default. Raises 503 when
    the placed one is not configured or fenced, or when it is not settled which one it is: another one never answers
    for data it does not hold.
    """
    if facts.placement:
        target = targets.target(facts.backend) if _is_settled(facts) else None
    else:
        target = targets.target(next(iter(_serving(facts.sku)), settings.FRED.default_backend.name))
    if target is None or target.fenced:
        raise ApiError(503, "service unavailable", error_code="backend_unresolvable")
    return target


def info(target: BackendTarget, lease_uuid: UUID) -> LeaseInfo | Absent | Unknown:
    """Ask one backend how a lease is reached."""
    found = _client(target).info(lease_uuid)
    if isinstance(found, Unknown):
        log.warning("backend.no_info", backend=target.name, lease_uuid=str(lease_uuid), reason=found.reason)
    return found


def provision_of(facts: LeaseFacts) -> ProvisionInfo | Absent | Unknown:
    """Find the provision of a lease: at its placed backend, else at any that may have it.

    A hit ends the search. Without one the first error counts, and also an owner that could not be asked; only if
    everybody who might hold it said no it is Absent.
    """
    placed = targets.target(facts.backend) if facts.backend else None
    unresolved = bool(facts.placement) and (placed is None or placed.fenced or not _is_settled(facts))
    doubt: Unknown | None = None
    if placed is not None and not placed.fenced:
        found = _ask(placed, facts.uuid, DEADLINE_S)
        if isinstance(found, ProvisionInfo):
            return found
        doubt = found if isinstance(found, Unknown) else None
    serving = _serving(facts.sku) or targets.configured().keys()
    rest = [one for name, one in targets.configured().items() if name in serving and name != facts.backend]
    found = search(rest, facts.uuid)
    if isinstance(found, Absent) and doubt is not None:
        return doubt
    if isinstance(found, Absent) and unresolved:
        return Unknown(UNRESOLVED)
    return found


def retained_by(tenant: str, lease_uuid: UUID) -> ProvisionInfo | None:
    """The retained data of a lease that the chain does not know any more, if a backend keeps it for this tenant.

    Anything else, a failing backend too, is None: nothing can be told apart from an unknown lease.
    """
    found = search(targets.configured().values(), lease_uuid)
    if isinstance(found, ProvisionInfo) and found.status == "retained" and found.tenant == tenant:
        return found
    return None


def search(asked: Iterable[BackendTarget], lease_uuid: UUID) -> ProvisionInfo | Absent | Unknown:
    """Ask these backends for a lease's provision, all at once and 5 s at the longest; fenced ones are passed over.

    The first hit is the answer; without one an error is, and Absent only if all said no.
    """
    asked = [target for target in asked if not target.fenced]
    if len(asked) == 1:
        return _ask(asked[0], lease_uuid, DEADLINE_S)
    doubt: Unknown | None = None
    deadline = monotonic() + DEADLINE_S
    pending: set[Future[ProvisionInfo | Absent | Unknown]] = {
        _threads().submit(_ask, target, lease_uuid, DEADLINE_S) for target in asked
    }
    while pending:
        done, pending = wait(pending, timeout=max(0.0, deadline - monotonic()), return_when=FIRST_COMPLETED)
        if not done:
            for future in pending:
                future.cancel()
            return Unknown("no answer in time")
        for future in done:
            found = future.result()
            if isinstance(found, ProvisionInfo):
                return found
            if isinstance(found, Unknown) and doubt is None:
                doubt = found
    return doubt or Absent()


def _ask(target: BackendTarget, lease_uuid: UUID, seconds: float) -> ProvisionInfo | Absent | Unknown:
    found = _client(target, seconds).provision_info(lease_uuid)
    if isinstance(found, Unknown):
        log.warning("backend.no_provision", backend=target.name, lease_uuid=str(lease_uuid), reason=found.reason)
    return found


def _client(target: BackendTarget, seconds: float = DEADLINE_S) -> BackendClient:
    return BackendClient(target, breaker.of(target.name), limit=seconds)


def _is_settled(facts: LeaseFacts) -> bool:
    """Whether one backend is known to hold what the lease has: confirmed, or attempted with the outcome in."""
    if facts.placement == Placement.Status.ATTEMPTED:
        return not facts.attempt_is_open
    return facts.placement == Placement.Status.CONFIRMED


def _serving(sku: str) -> list[str]:
    """Names of the configured backends that list this SKU, in their order."""
    return [backend.name for backend in settings.FRED.backends if any(str(own) == sku for own in backend.skus)]


@lru_cache(maxsize=1)
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_PARALLEL, thread_name_prefix="backend-reads")
