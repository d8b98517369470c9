"""Health of what is far away: every 15 s the chain and each backend are asked, and the answers stored.

Health routes and gauges read the rows; nobody is asked because somebody looked. An answer that does not come within
three seconds counts as unhealthy. A probe passes no breaker and decides nothing about leases.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final
from uuid import UUID

import structlog
from django.conf import settings
from django.db.models.functions import Now

from backends import targets
from backends.client import BackendClient, Health
from backends.models import HealthCheck
from fred import logs, metrics
from leases import node
from leases.chain.client import Absent
from leases.chain.errors import ChainError
from leases.models import ChainCursor, Lease
from leases.status import LeaseState

log = structlog.get_logger("reconciliation.probes")

LIMIT_S: Final = 3.0
MAY_LAG: Final = timedelta(seconds=30)
"""How far a node's newest block may lie behind the newest one that was seen."""
PANICKED: Final = "health probe panicked"
"""What is said of a probe that met a bug; what it was stands in the log."""
_THREADS: Final = 16

Probe = Callable[[], Health]


def probe_all() -> Mapping[str, Health]:
    """Ask chain and backends at once and store what they said."""
    found = ask(_probes())
    now = Now()
    rows = [
        HealthCheck(name=name, healthy=health.healthy, detail=logs.clean(health.error, 500), checked_at=now)
        for name, health in sorted(found.items())
    ]
    HealthCheck.objects.bulk_create(
        rows, update_conflicts=True, unique_fields=["name"], update_fields=["healthy", "detail", "checked_at"]
    )
    for name, health in found.items():
        if not health.healthy:
            _complain(name, health.error)
    return found


def ask(probes: Mapping[str, Probe], *, limit_s: float = LIMIT_S) -> dict[str, Health]:
    """Every probe's answer, asked side by side; who is not back within the limit is unhealthy."""
    if not probes:
        return {}
    pool = ThreadPoolExecutor(min(_THREADS, len(probes)), thread_name_prefix="probe")
    try:
        asked = {name: pool.submit(_contained, name, probe) for name, probe in probes.items()}
        wait(asked.values(), timeout=limit_s)
        return {name: _answer(future, limit_s) for name, future in asked.items()}
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True, slots=True)
class Known:
    """What the chain said before: the time of the newest block seen, and a lease that it had, with its height."""

    head_time: datetime | None = None
    lease: UUID | None = None
    height: int = 0


def known() -> Known:
    """Read it from the rows: the watcher's head, and a live lease that was not found since, else the newest ACTIVE."""
    head = ChainCursor.objects.filter(chain_id=settings.FRED.chain_id).values_list("head_time", flat=True).first()
    lost = Lease.objects.filter(chain_state__in=(LeaseState.PENDING, LeaseState.ACTIVE), absent_height__isnull=False)
    active = Lease.objects.filter(chain_state=LeaseState.ACTIVE)
    for which in (lost, active):
        for uuid, height in which.order_by("-uuid").values_list("uuid", "chain_height")[:1]:
            return Known(head, uuid, height)
    return Known(head)


def _probes() -> dict[str, Probe]:
    clients: Iterable[BackendClient] = [BackendClient(target) for target in targets.configured().values()]
    return {
        "chain": partial(probe_chain, known()),
        **{f"backend:{client.target.name}": client.health for client in clients},
    }


def probe_chain(before: Known) -> Health:
    """Ask the node for its state, not only whether it listens: an account, its head, a lease that it must know.

    A node behind what was seen, or of a chain on which none of it happened, answers every question, and wrongly. Such
    a finding begins with "the node": readiness shows it as it is.
    """
    chain = node.client()
    try:
        chain.account(settings.FRED.provider_address)
        head = chain.latest_height()
        if head.chain_id not in {"", settings.FRED.chain_id}:
            return Health(healthy=False, error=f"the node serves chain {head.chain_id}")
        if before.head_time is not None and head.time < before.head_time - MAY_LAG:
            return Health(healthy=False, error=f"the node is at height {head.height}, far behind what was seen before")
        if before.lease is not None:
            found = chain.lease(before.lease)
            if isinstance(found, Absent) and found.height >= before.height:
                return Health(healthy=False, error=f"the node does not know lease {before.lease}, which it had")
    except ChainError as error:
        return Health(healthy=False, error=logs.chain_of(error))
    return Health(healthy=True)


def _contained(name: str, probe: Probe) -> Health:
    kind, _, backend = name.partition(":")
    began = time.monotonic()
    try:
        return probe()
    except Exception:
        log.exception("health probe crashed", check=name)
        if backend:
            metrics.HEALTH_PROBE_CRASHES.inc()
        else:
            metrics.CHAIN_PROBE_CRASHES.inc()
        return Health(healthy=False, error=PANICKED)
    finally:
        metrics.HEALTH_CHECK_SECONDS.labels(kind, backend).observe(time.monotonic() - began)


def _answer(future: Future[Health], limit_s: float) -> Health:
    return future.result() if future.done() else Health(healthy=False, error=f"no answer within {limit_s:g} s")


def _complain(name: str, error: str) -> None:
    if name == "chain":
        log.warning("health check: chain unhealthy", error=error)
    else:
        log.warning("health check: backend unhealthy", backend=name.removeprefix("backend:"), error=error)
