"""What `/health` and `/readyz` ask: the database with all it knows of others, the broker, Valkey with its heartbeats.

Nobody is probed for a caller: chain and backends were probed by a task, and its stored results are read here.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Final

import redis
from django.conf import settings
from django.db import connections
from django.db.models import Exists, OuterRef
from django.db.models.functions import Now
from redis.backoff import NoBackoff
from redis.retry import Retry

from backends.models import Backend, HealthCheck
from fred import heartbeat
from fred.health import Finding, Part, Prober, Question
from leases.models import ChainCursor, Payload
from placements.models import Operation, Placement
from reconciliation.models import SweepBackend
from tenants_api.models import UsedToken

STALE_AFTER: Final = timedelta(seconds=60)
"""A probe of chain or backend that is older says nothing any more."""
CHAIN: Final = "chain"
CHAIN_FAILED: Final = "chain connectivity failed"
SUSPECT: Final = "the chain is suspect: "
"""Followed by why, and since when. Then nothing is concluded from it, though its node may answer well."""
WATCHER: Final = "watcher"
"""Written by the watcher itself, with its own fixed words for what is wrong."""
STORES: Final = {
    "token_tracker": "token tracker unavailable",
    "placement_store": "placement store unavailable",
    "payload_store": "payload store unavailable",
}
HEARTBEATS: Final = (("workers", "worker", "no worker seen"), ("beat", "beat", "no beat seen"))
"""Check, process, and what is said when none of it has a heartbeat."""
INVENTORY: Final = "placement_inventory"
NO_INVENTORY: Final = "placement inventory not ready"
NOT_LISTED: Final = "never listed to the end: "
"""Followed by the names of those backends."""
NO_WATCHER: Final = "the watcher is not running"
_CLIENT_TIMEOUT_S: Final = 2.0


class RemoteResults:
    """The last stored probes of chain and backends, kept in the process for the time the database is away."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._lock = threading.Lock()
        self._healthy: dict[str, bool] = {}
        self._fenced: frozenset[str] = frozenset()
        self._watcher = NO_WATCHER
        self._chain = CHAIN_FAILED

    def keep(
        self,
        healthy: Mapping[str, bool],
        *,
        watcher: str,
        chain: str = CHAIN_FAILED,
        fenced: frozenset[str] = frozenset(),
    ) -> None:
        """Replace the copy by what was just read; `watcher` is its complaint, empty when it has none.

        `fenced` names backends that the configuration or an operator switched off. `chain` says what is wrong with the
        chain: of the probe's failure, or of a suspicion whatever the probe found.
        """
        with self._lock:
            self._healthy = dict(healthy)
            self._fenced = fenced
            self._watcher = watcher
            self._chain = chain

    def findings(self) -> list[Finding]:
        """One finding for the chain and one for each configured backend; unknown is unhealthy."""
        with self._lock:
            healthy, watcher, chain, fenced = dict(self._healthy), self._watcher, self._chain, self._fenced
        if chain.startswith(SUSPECT):
            healthy[CHAIN] = False
        backends = settings.FRED.backends
        return [
            _remote(CHAIN, chain, healthy=healthy.get(CHAIN, False)),
            *(
                Finding(f"backend:{backend.name}", local=False, message="backend is fenced")
                if backend.fenced or backend.name in fenced
                else _remote(
                    name := f"backend:{backend.name}",
                    "backend health check failed",
                    healthy=healthy.get(name, False),
                )
                for backend in backends
            ),
            Finding(WATCHER, local=False, message=watcher),
        ]


_remote_results = RemoteResults()


def ask_database() -> Part:
    """Read each store and the stored probes; the read is the check."""
    try:
        for store in (UsedToken, Placement, Payload):
            store.objects.exists()
        _remote_results.keep(
            dict(HealthCheck.objects.filter(checked_at__gt=Now() - STALE_AFTER).values_list("name", "healthy")),
            watcher=_watchers_complaint(),
            chain=_chains_complaint(),
            fenced=frozenset(Backend.objects.filter(fenced=True).values_list("name", flat=True)),
        )
        in_flight = Operation.objects.filter(settled_at__isnull=True).count()
        findings = [*_stores(broken=False), _inventory(), *_remote_results.findings()]
    finally:
        connections.close_all()
    return Part(findings, in_flight)


def _chains_complaint() -> str:
    """The suspicion, what a probe found that asked the node, or that it could not ask."""
    cursor = ChainCursor.objects.filter(chain_id=settings.FRED.chain_id).first()
    if cursor is not None and cursor.suspect_reason:
        return f"{SUSPECT}{cursor.suspect_reason} since {cursor.suspect_since:%Y-%m-%dT%H:%M:%SZ}"
    detail = HealthCheck.objects.filter(name=CHAIN).values_list("detail", flat=True).first() or ""
    return detail if detail.startswith("the node ") else CHAIN_FAILED


def _watchers_complaint() -> str:
    fresh = HealthCheck.objects.filter(name=WATCHER, checked_at__gt=Now() - STALE_AFTER)
    detail: str | None = fresh.values_list("detail", flat=True).first()
    return NO_WATCHER if detail is None else detail


def without_database() -> Part:
    """The database does not answer: neither do the stores in it."""
    return Part(
        [
            *_stores(broken=True),
            Finding(INVENTORY, local=True, message=NO_INVENTORY),
            *_remote_results.findings(),
        ]
    )


def ask_broker() -> Part:
    """Ping the broker of the tasks."""
    _ping(settings.CELERY_BROKER_URL)
    return Part([Finding("broker", local=True)])


def ask_cache() -> Part:
    """Ask Valkey which processes say that they live; its answer is the check of itself."""
    living = heartbeat.living(settings.HOUSE.redis_url.get_secret_value()).processes
    return Part(
        [
            Finding("cache", local=False),
            *(
                Finding(name, local=False, message="" if living.get(process) else message)
                for name, process, message in HEARTBEATS
            ),
        ]
    )


def without_cache() -> Part:
    """Valkey does not answer: who lives is unknown."""
    return Part(
        [
            Finding("cache", local=False, message="cache unavailable"),
            *(Finding(name, local=False, message=message) for name, _, message in HEARTBEATS),
        ]
    )


def prober() -> Prober:
    """A prober of everything here."""
    return Prober(
        [
            Question("database", ask_database, without_database),
            Question("broker", ask_broker, lambda: Part([Finding("broker", local=True, message="broker unavailable")])),
            Question("cache", ask_cache, without_cache),
        ]
    )


def _stores(*, broken: bool) -> Iterable[Finding]:
    yield Finding("database", local=True, message="database unavailable" if broken else "")
    for name, message in STORES.items():
        yield Finding(name, local=True, message=message if broken else "")


def _inventory() -> Finding:
    """Whether each backend was once listed to the end: before, its absence of a lease is no evidence.

    One that cannot be listed only degrades, since all others can be worked with. Backends that nobody lists do not
    count: fenced, retired, or out of the configuration.
    """
    walks = SweepBackend.objects.filter(complete=True)
    if not walks.exists():
        return Finding(INVENTORY, local=True, message=NO_INVENTORY)
    rows = Backend.objects.annotate(walked=Exists(walks.filter(backend=OuterRef("name"))))
    settled = {row.name for row in rows if row.walked or row.fenced or row.retired_at is not None or not row.configured}
    missing = [one.name for one in settings.FRED.backends if not one.fenced and one.name not in settled]
    return Finding(INVENTORY, local=False, message=NOT_LISTED + ", ".join(missing) if missing else "")


def _remote(name: str, message: str, *, healthy: bool) -> Finding:
    return Finding(name, local=False, message="" if healthy else message)


def _ping(url: str) -> None:
    client = redis.Redis.from_url(
        url,
        socket_connect_timeout=_CLIENT_TIMEOUT_S,
        socket_timeout=_CLIENT_TIMEOUT_S,
        retry=Retry(NoBackoff(), 0),
    )
    try:
        client.ping()
    finally:
        client.close()
