"""Readers of the shared gauges: what database and Valkey say at scrape time, each within two seconds."""

import json
import platform
import time
from collections.abc import Mapping
from typing import Any, Final

import django
from django.conf import settings
from django.db import connection, transaction
from psycopg_pool import ConnectionPool
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from fred import breaker, certificates, heartbeat, valkey
from fred.gauges import Samples, shared_gauges
from leases.status import LeaseState
from tenants_api.event_slots import open_streams

_STUCK_AFTER: Final = 8
_PHASES: Final = ("reserved", "in_doubt")
_OF_COMMANDS: Final = (
    "fred_maintenance_pending",
    "fred_maintenance_pending_bytes",
    "fred_maintenance_pending_oldest_age_seconds",
)
_PROCESSES: Final = ("web", "worker", "watcher", "beat")
_QUEUES: Final = ("lifecycle", "dispatch", "chain", "sweep")

# One row per gauge with two labels at most; a null value leaves the sample out.
_GAUGES: Final = """
SELECT 'fred_lease_count', chain_state::text, '', count(*)::float8
  FROM leases_lease WHERE chain_state IS NOT NULL GROUP BY chain_state
UNION ALL
SELECT 'fred_lease_stuck_count', '', '', count(*) FROM leases_lease WHERE attempts >= %(stuck)s
UNION ALL
SELECT 'fred_provisioner_in_flight_provisions', '', '', count(*)
  FROM placements_operation WHERE state IN ('reserved', 'in_doubt', 'accepted')
UNION ALL
SELECT 'fred_provisioner_deferred_closes_pending', '', '', count(*)
  FROM placements_teardown WHERE state <> 'done'
UNION ALL
SELECT 'fred_provisioner_deferred_closes_oldest_age_seconds', '', '',
       COALESCE(extract(epoch FROM now() - min(created_at)), 0)
  FROM placements_teardown WHERE state <> 'done'
UNION ALL
SELECT 'fred_maintenance_pending', state, '', count(*)
  FROM placements_maintenancecommand WHERE settled_at IS NULL GROUP BY state
UNION ALL
SELECT 'fred_maintenance_pending_bytes', state, '', sum(size_bytes)
  FROM placements_maintenancecommand WHERE settled_at IS NULL GROUP BY state
UNION ALL
SELECT 'fred_maintenance_pending_oldest_age_seconds', state, '', extract(epoch FROM now() - min(admitted_at))
  FROM placements_maintenancecommand WHERE settled_at IS NULL GROUP BY state
UNION ALL
SELECT 'fred_payload_stored_count', '', '', count(*) FROM leases_payload WHERE state = 'current'
UNION ALL
SELECT 'fred_payload_leases_awaiting', '', '', count(*)
  FROM leases_lease AS l
 WHERE l.chain_state = %(pending)s AND length(l.meta_hash) > 0
   AND NOT EXISTS (SELECT FROM leases_payload AS p WHERE p.lease_uuid = l.uuid)
UNION ALL
SELECT 'fred_outbox_pending', kind, '', count(*)
  FROM due GROUP BY kind
UNION ALL
SELECT 'fred_outbox_oldest_age_seconds', kind, '', extract(epoch FROM now() - min(due_at))
  FROM due GROUP BY kind
UNION ALL
SELECT 'fred_lease_provision_count', backend, status, count(*) FROM placements_provision GROUP BY backend, status
UNION ALL
SELECT 'fred_backend_fenced', name, '', fenced::int FROM backends_backend WHERE configured
UNION ALL
SELECT 'fred_backend_healthy', substr(name, 9), '', healthy::int
  FROM backends_healthcheck WHERE name LIKE 'backend:%%' AND checked_at > now() - interval '60 seconds'
UNION ALL
SELECT 'fred_health_check_healthy', name, '', healthy::int
  FROM backends_healthcheck WHERE name = 'chain' AND checked_at > now() - interval '60 seconds'
UNION ALL
SELECT 'fred_signer_pool_size', '', '', 1 + count(*) FILTER (WHERE role = 'sub_signer' AND usable)
  FROM leases_signer HAVING count(*) > 0
UNION ALL
SELECT 'fred_signer_pool_lane_count', '', '', GREATEST(count(*) FILTER (WHERE role = 'sub_signer' AND usable), 1)
  FROM leases_signer HAVING count(*) > 0
UNION ALL
SELECT 'fred_chain_events_connected', '', '',
       (detail NOT IN ('the event stream is not connected', 'the chain has not answered yet'))::int
  FROM backends_healthcheck WHERE name = 'watcher' AND checked_at > now() - interval '60 seconds'
UNION ALL
SELECT 'fred_chain_height', '', '', max(head_height) FROM leases_chaincursor
UNION ALL
SELECT 'fred_chain_events_last_received_timestamp_seconds', '', '', extract(epoch FROM max(head_seen_at))
  FROM leases_chaincursor
UNION ALL
SELECT 'fred_reconciler_last_success_timestamp_seconds', '', '', extract(epoch FROM max(finished_at))
  FROM reconciliation_sweep WHERE outcome = 'success'
UNION ALL
SELECT 'fred_reconciler_sweep_complete', '', '', complete::int
  FROM (SELECT complete FROM reconciliation_sweep WHERE state = 'done' ORDER BY id DESC LIMIT 1) AS last
UNION ALL
SELECT 'fred_reconciler_backend_inventory_answered', backend, '', complete::int
  FROM reconciliation_sweepbackend WHERE sweep_id = (SELECT max(id) FROM reconciliation_sweep WHERE state = 'done')
"""
_DUE: Final = """
WITH due AS (
    SELECT 'lease' AS kind, due_at FROM leases_lease WHERE due_at <= now()
    UNION ALL SELECT 'backend', due_at FROM placements_operation WHERE due_at <= now() AND settled_at IS NULL
    UNION ALL SELECT 'backend', due_at FROM placements_teardown WHERE due_at <= now()
    UNION ALL SELECT 'backend', due_at FROM placements_maintenancecommand WHERE due_at <= now() AND state = 'reserved'
    UNION ALL SELECT 'chain', due_at FROM leases_chainaction WHERE due_at <= now()
)
"""
_LABELS: Final = {
    "fred_lease_count": 1,
    "fred_maintenance_pending": 1,
    "fred_maintenance_pending_bytes": 1,
    "fred_maintenance_pending_oldest_age_seconds": 1,
    "fred_outbox_pending": 1,
    "fred_outbox_oldest_age_seconds": 1,
    "fred_lease_provision_count": 2,
    "fred_backend_fenced": 1,
    "fred_backend_healthy": 1,
    "fred_health_check_healthy": 1,
    "fred_reconciler_backend_inventory_answered": 1,
}


def register() -> None:
    """Let every scrape of this process ask the readers below."""
    shared_gauges.register("build", of_the_build)
    shared_gauges.register("keys", of_the_keys)
    shared_gauges.register("database", of_the_database)
    shared_gauges.register("processes", of_the_processes)
    shared_gauges.register("queues", of_the_queues)
    shared_gauges.register("breakers", of_the_breakers)
    shared_gauges.register("certificates", of_the_certificates)
    shared_gauges.register("streams", of_the_streams)
    shared_gauges.register("pool", of_the_pool)


def of_the_build() -> Mapping[str, Samples]:
    """What runs here."""
    return {"fred_build_info": {(settings.VERSION, platform.python_version(), django.get_version()): 1.0}}


def of_the_database() -> Mapping[str, Samples]:
    """Counts of rows. Kinds of due rows and chain states are there with zero when nothing is in them."""
    made: dict[str, dict[tuple[str, ...], float]] = {
        "fred_lease_count": {(state.name.lower(),): 0.0 for state in LeaseState if state},
        **{name: {(phase,): 0.0 for phase in _PHASES} for name in _OF_COMMANDS},
        "fred_outbox_pending": {(kind,): 0.0 for kind in ("lease", "backend", "chain")},
        "fred_outbox_oldest_age_seconds": {(kind,): 0.0 for kind in ("lease", "backend", "chain")},
    }
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL statement_timeout = 2000")
        cursor.execute(_DUE + _GAUGES, {"stuck": _STUCK_AFTER, "pending": LeaseState.PENDING})
        for name, first, second, value in cursor.fetchall():
            if value is not None:
                label = LeaseState(int(first)).name.lower() if name == "fred_lease_count" else first
                made.setdefault(name, {})[(label, second)[: _LABELS.get(name, 0)]] = float(value)
    return made


def of_the_breakers() -> Mapping[str, Samples]:
    """How the circuit breaker of each configured backend stands; closed until a call ever failed."""
    found = breaker.states(one.name for one in settings.FRED.backends)
    return {"fred_backend_circuit_breaker_state": {(name,): float(state.gauge) for name, state in found.items()}}


def of_the_keys() -> Mapping[str, Samples]:
    """Which configured backends may still sign with the key they had before; a fenced one may sign nothing."""
    accepted: Samples = {
        (one.name,): float(not one.fenced and settings.FRED.previous_hmac_key(one.name) is not None)
        for one in settings.FRED.backends
    }
    return {"fred_api_callback_previous_key_configured": accepted}


def of_the_certificates() -> Mapping[str, Samples]:
    """When the certificates in the files of the settings end; files of fenced backends are not opened."""
    files = {("api", ""): settings.FRED.tls_cert_file}
    for one in settings.FRED.backends:
        if not one.fenced:
            files["backend_ca", one.name] = one.tls_ca_file
            files["backend_client", one.name] = one.tls_client_cert_file
    ends = {labels: certificates.ends_of(path) for labels, path in files.items() if path}
    return {"fred_tls_certificate_not_after_seconds": {labels: end for labels, end in ends.items() if end is not None}}


def of_the_processes() -> Mapping[str, Samples]:
    """Who beats, and whether all run with the same settings."""
    found = heartbeat.living(settings.HOUSE.redis_url.get_secret_value())
    return {
        "fred_process_up": {(name,): float(found.processes.get(name, 0)) for name in _PROCESSES},
        "fred_config_mismatch": {(): float(found.mismatch)},
    }


def of_the_streams() -> Mapping[str, Samples]:
    """Open streams of events, of all processes."""
    return {"fred_websocket_connections": {(): float(open_streams(valkey.client()))}}


def of_the_pool() -> Mapping[str, Samples]:
    """Connections of this process's pool that somebody holds; nothing where processes keep connections of their own."""
    pool: ConnectionPool | None = getattr(connection, "pool", None)
    if pool is None:
        return {}
    found = pool.get_stats()
    return {"fred_db_pool_in_use": {(): float(found.get("pool_size", 0) - found.get("pool_available", 0))}}


def of_the_queues() -> Mapping[str, Samples]:
    """Hints that wait for a worker, and how long the oldest does."""
    client = Redis.from_url(
        settings.HOUSE.broker_url, socket_connect_timeout=2.0, socket_timeout=2.0, retry=Retry(NoBackoff(), 0)
    )
    try:
        depths: Samples = {(queue,): float(client.llen(queue)) for queue in _QUEUES}
        ages: Samples = {(queue,): _age(client.lindex(queue, -1)) for queue in _QUEUES}
    finally:
        client.close()
    return {"fred_queue_depth": depths, "fred_queue_oldest_age_seconds": ages}


def _age(message: Any) -> float:
    """Seconds since a message was sent, by the mark its sender put into its headers; 0 without one."""
    if message is None:
        return 0.0
    sent_at = json.loads(message).get("headers", {}).get("sent_at")
    return max(0.0, time.time() - sent_at) if isinstance(sent_at, int | float) else 0.0
