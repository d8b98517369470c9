"""Finding out which dialect backends speak, before anything is pushed to them.

A backend whose setting is `auto` is asked once, and keeps what was found. The older dialect is provisional: it is
tested again whenever a worker starts, and given up for the current one only while none of the backend's operations is
open. A backend that was seen to speak the current dialect is never taken for an older one again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor

import structlog
from django.db import transaction
from django.db.models.functions import Now

from backends import dialects, targets
from backends.contract import Dialect
from backends.models import Backend
from backends.requests import BackendTarget
from leases import wake
from leases.models import Lease
from placements.models import Operation

UNSET = "unset"
WAITING_FOR_A_BACKEND = ("no_backend", "backend_dialect")
"""Reasons of leases that a backend with a settled dialect may help."""

log = structlog.get_logger(__name__)

Probe = Callable[[BackendTarget], Dialect | None]


def discover(*, again: bool = False, probe: Probe = dialects.probe) -> dict[str, Dialect]:
    """Ask the `auto` backends whose dialect is not known, or (`again`) not certain; return what was found and stored.

    They are asked side by side, for three seconds at the longest. Leases that waited for a backend are looked at.
    """
    unsure = [UNSET, Dialect.V0_13.value] if again else [UNSET]
    rows = Backend.objects.filter(
        configured=True, fenced=False, retired_at__isnull=True, contract=Backend.Contract.AUTO, dialect__in=unsure
    )
    known = targets.configured()
    asked = [known[name] for name in rows.values_list("name", flat=True) if name in known]
    if not asked:
        return {}
    with ThreadPoolExecutor(max_workers=len(asked), thread_name_prefix="dialect") as pool:
        answers = dict(zip((one.name for one in asked), pool.map(probe, asked), strict=True))
    found = {name: dialect for name, dialect in answers.items() if dialect is not None}
    changed = {name: dialect for name, dialect in found.items() if _store(name, dialect)}
    if changed:
        targets.forget()
        wake_waiting()
    return changed


def unsettled() -> bool:
    """Whether a backend waits for its first contact."""
    return Backend.objects.filter(
        configured=True, fenced=False, retired_at__isnull=True, contract=Backend.Contract.AUTO, dialect=UNSET
    ).exists()


def wake_waiting(reasons: Collection[str] = WAITING_FOR_A_BACKEND) -> None:
    """Ask for a look at the leases that wait for one of these reasons."""
    wake.leases(Lease.objects.filter(reason__in=reasons).values_list("pk", flat=True))


def _store(name: str, dialect: Dialect) -> bool:
    """Write what a backend was found to speak; whether that was new."""
    with transaction.atomic():
        row = Backend.objects.select_for_update(no_key=True).get(pk=name)
        if row.dialect in {dialect, Dialect.CURRENT}:
            return False
        if row.dialect != UNSET and Operation.objects.filter(backend=row, settled_at__isnull=True).exists():
            log.warning("backend.dialect_kept", backend=name, dialect=row.dialect, seen=dialect)
            return False
        Backend.objects.filter(pk=name).update(dialect=dialect, updated_at=Now())
    if dialect is Dialect.CURRENT:
        log.error("backend.dialect_not_served", backend=name, dialect=dialect)
    else:
        log.info("backend.dialect", backend=name, dialect=dialect)
    return True
