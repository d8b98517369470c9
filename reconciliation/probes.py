"""Health of what is far away: every 15 s the chain and each backend are asked, and the answers stored.

Health routes and gauges read the rows; nobody is asked because somebody looked. An answer that does not come within
three seconds counts as unhealthy. A probe passes no breaker and decides nothing about leases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final

import structlog
from django.conf import settings
from django.db.models.functions import Now

from backends import targets
from backends.client import BackendClient, Health
from backends.models import HealthCheck
from fred import logs, metrics
from leases import node
from leases.chain.errors import ChainError

log = structlog.get_logger("reconciliation.probes")

LIMIT_S: Final = 3.0
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


def _probes() -> dict[str, Probe]:
    clients: Iterable[BackendClient] = [BackendClient(target) for target in targets.configured().values()]
    return {"chain": _chain, **{f"backend:{client.target.name}": client.health for client in clients}}


def _chain() -> Health:
    """An account read of the provider: it needs the node's state, not only its ear."""
    try:
        node.client().account(settings.FRED.provider_address)
    except ChainError as error:
        return Health(healthy=False, error=logs.chain_of(error))
    return Health(healthy=True)


def _contained(name: str, probe: Probe) -> Health:
    try:
        return probe()
    except Exception as error:
        log.exception("health probe crashed", check=name)
        metrics.HEALTH_PROBE_CRASHES.inc()
        return Health(healthy=False, error=logs.chain_of(error))


def _answer(future: Future[Health], limit_s: float) -> Health:
    return future.result() if future.done() else Health(healthy=False, error=f"no answer within {limit_s:g} s")


def _complain(name: str, error: str) -> None:
    if name == "chain":
        log.warning("health check: chain unhealthy", error=error)
    else:
        log.warning("health check: backend unhealthy", backend=name.removeprefix("backend:"), error=error)
