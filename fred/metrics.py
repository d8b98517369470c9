"""Every metric, declared once. Names, labels and bounds are a contract with dashboards and alerts.

Counters and histograms live in the process that writes them and, with `PROMETHEUS_MULTIPROC_DIR` set, in one file
per process. Gauges describe shared state and are read at scrape time (`fred.gauges`). No lease, tenant or URL is
ever a label. No Django inside.
"""

import os
import socket
from collections.abc import Iterable
from functools import cache
from itertools import product

from prometheus_client import (
    REGISTRY,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    multiprocess,
    values,
)
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from fred.gauges import shared_gauges

disable_created_metrics()  # type: ignore[no-untyped-call]


class _Identity:
    """Names this process's file; process ids alone repeat among containers that share the directory.

    Asked at every count, so a fork makes the name anew, not the question.
    """

    def __init__(self) -> None:
        self._host = socket.gethostname().replace("_", "-")
        self._make()
        os.register_at_fork(after_in_child=self._make)

    def _make(self) -> None:
        self._name = f"{self._host}-{os.getpid()}"

    def __call__(self) -> str:
        return self._name


if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
    values.ValueClass = values.MultiProcessValue(_Identity())  # type: ignore[no-untyped-call]


def _doubling(first: float, count: int) -> tuple[float, ...]:
    return tuple(first * 2**power for power in range(count))


def _preset(counter: Counter, *values: Iterable[str]) -> Counter:
    """The counter with every combination of its closed sets of labels at zero, so that a first event is seen."""
    for combination in product(*values):
        counter.labels(*combination)
    return counter


_OUTCOME = ("success", "error")
_STATUS = ("success", "failed", "deprovisioned")

# Provisioning
PROVISIONINGS = Counter(
    "fred_provisioner_provisioning_total",
    "Finished operations, once each",
    ("outcome", "backend", "operation"),
)
PROVISIONING_SECONDS = Histogram(
    "fred_provisioner_provisioning_duration_seconds",
    "From the first push of an operation to its end",
    ("backend", "operation"),
    buckets=_doubling(0.1, 12),
)
CALLBACK_TIMEOUTS = Counter(
    "fred_provisioner_callback_timeouts_total", "Operations given up after the time limit of callbacks"
)
ACK_FEE_GAS_ERRORS = Counter(
    "fred_provisioner_ack_batch_fee_gas_errors_total",
    "Batches that failed for fee or gas and were not split",
    ("lane",),
)
ACK_FALLBACKS = Counter(
    "fred_provisioner_ack_batch_individual_fallbacks_total", "Batches split into smaller transactions", ("lane",)
)
LANE_RESTARTS = Counter(
    "fred_provisioner_ack_batcher_lane_restarts_total", "Lanes that went on after a crash of their work", ("lane",)
)
INFLIGHT_SKIPS = Counter(
    "fred_provisioner_reconciler_inflight_skips_total",
    "Leases listed as ready that a sweep left to the work already under way",
)
DEFERRED_LEASES = Counter(
    "fred_provisioner_reconciler_deferred_leases_total",
    "Live leases of which a sweep learnt nothing, because their backend did not report",
)
LOOK_CRASHES = _preset(
    Counter("fred_provisioner_reconciler_panics_total", "Unexpected exceptions contained in one unit", ("stage",)),
    ("process_lease", "process_orphan", "fetch_provisions", "fetch_retentions"),
)
DEFERRED_CLOSES = Counter(
    "fred_provisioner_deferred_closes_total", "Removals put aside and taken up again", ("outcome", "reason")
)
CALLBACK_OUTCOMES = Counter(
    "fred_provisioner_lifecycle_callback_outcomes_total",
    "Authenticated callbacks about leases rather than open operations, once each",
    ("outcome", "verdict", "status"),
)
_preset(CALLBACK_OUTCOMES, ("applied",), ("authorized", "legacy"), _STATUS)
_preset(CALLBACK_OUTCOMES, ("dropped",), ("authorized", "legacy", "invalid", "missing", "stale", "unknown"), _STATUS)
_preset(CALLBACK_OUTCOMES, ("retryable",), ("unknown",), _STATUS)
CALLBACK_CLAIM_TIMEOUTS = Counter(
    "fred_provisioner_callback_settlement_claim_wait_timeouts_total", "Callbacks that waited too long for their lease"
)
CALLBACK_CONFLICTS = Counter(
    "fred_provisioner_callback_placement_semantic_conflicts_total",
    "Success callbacks of another backend than the lease is placed at",
)
CALLBACK_AFTER_CLOSE = Counter(
    "fred_provisioner_callback_deprovision_owned_success_total", "Success callbacks of leases that are being closed"
)
BACKEND_INVOCATION_CRASHES = _preset(
    Counter(
        "fred_provisioner_backend_invocation_panics_total",
        "Unexpected exceptions around a pushed call: its request was not built, or its answer not understood",
        ("operation",),
    ),
    ("provision", "deprovision", "restart", "update", "restore", "get_provision"),
)
PLACEMENT_WRITE_FAILURES = Counter(
    "fred_placement_write_failures_total", "Transactions that could not write placements"
)

# Chain
TRANSACTIONS = _preset(
    Counter("fred_chain_transactions_total", "Transactions decided", ("type", "outcome")),
    ("acknowledge", "reject", "close"),
    _OUTCOME,
)
CHAIN_QUERY_SECONDS = Histogram("fred_chain_query_duration_seconds", "Whole chain queries, all pages", ("query",))
GAS_SIMULATIONS = _preset(
    Counter("fred_chain_gas_simulation_total", "Where the gas of a transaction came from", ("result",)),
    ("simulated", "fallback", "refused"),
)
GAS_SIMULATED = Histogram(
    "fred_chain_gas_simulated",
    "Gas declared",
    buckets=(100_000, 200_000, 300_000, 500_000, 1_000_000, 2_000_000, 4_000_000, 8_000_000),
)
OUT_OF_GAS_RETRIES = _preset(
    Counter("fred_chain_signer_oog_retries_total", "Decisions after a transaction ran out of gas", ("result",)),
    ("retried", "exhausted"),
)
GRANT_CHECKS = _preset(
    Counter("fred_signer_grant_check_total", "Looks at the grants of sub-signers", ("outcome",)), _OUTCOME
)
BALANCE_FAILURES = Counter(
    "fred_signer_balance_query_failures_total", "Balances that could not be read", ("role", "address", "denom")
)
CHAIN_RECONNECTS = _preset(
    Counter("fred_chain_events_reconnects_total", "New connections of the event stream", ("reason",)),
    ("error_frame", "no_confirmation", "silent", "closed"),
)
CHAIN_ENDPOINT_SWITCHES = Counter("fred_chain_endpoint_switches_total", "Nodes left for the next one")
CHAIN_STALE_READS = _preset(
    Counter("fred_chain_stale_reads_total", "Reads older than what is stored, and ignored", ("query",)),
    ("get_lease", "list_leases", "latest_block"),
)
CHAIN_FAULT_KINDS = (
    # calls
    *("unavailable", "timeout", "grpc_error", "slow", "rpc_unavailable", "rpc_error", "unknown_field"),
    # what queries say
    *("stale_read", "lease_unknown", "listing_cut", "empty_page", "index_lag"),
    # transactions
    *("sequence", "mempool_full", "fee_refused", "out_of_gas", "tx_refused", "tx_failed", "gas_unknown"),
    "not_included",
    # the node
    *("catching_up", "other_chain", "behind", "other_history"),
    # the event stream
    *("stream_connect", "stream_closed", "stream_error", "stream_unconfirmed", "stream_half_open"),
    *("frame_unreadable", "frame_missing", "frame_doubled", "frame_disordered", "frame_late"),
)
CHAIN_FAULTS = _preset(
    Counter("fred_chain_faults_total", "What a node was seen to do wrong", ("kind",)), CHAIN_FAULT_KINDS
)
EVENTS_DROPPED = _preset(
    Counter("fred_events_dropped_total", "Chain events lost before they were stored", ("event_type",)),
    ("lease_created", "lease_acknowledged", "lease_rejected", "lease_closed", "lease_expired", "lease_auto_closed"),
)
MESSAGES = _preset(
    Counter("fred_watermill_messages_total", "News handled", ("topic", "outcome")),
    (
        "events.lease.created",
        "events.lease.closed",
        "events.lease.expired",
        "events.backend.callback",
        "events.payload.received",
    ),
    _OUTCOME,
)
STUCK_LEASES = Counter("fred_watermill_poisoned_messages_total", "Leases that became stuck")
MALFORMED_MESSAGES = Counter("fred_messages_malformed_total", "News that could not be read", ("topic",))

# Reconciler
RECONCILER_RUNS = _preset(
    Counter("fred_reconciler_runs_total", "Sweeps, once each, by their worst outcome", ("outcome",)),
    ("success", "partial", "degraded", "error"),
)
RECONCILER_SECONDS = Histogram(
    "fred_reconciler_duration_seconds", "Length of sweeps, failed ones too", buckets=_doubling(0.5, 10)
)
RECONCILER_ACTIONS = _preset(
    Counter("fred_reconciler_actions_total", "What was decided for leases whose sides differed", ("action",)),
    ("provisioned", "acknowledged", "deprovisioned", "anomaly", "lease_error"),
)
RECONCILER_CONFLICTS = Counter(
    "fred_reconciler_conflicts_total",
    "PENDING leases missing in every list that a sweep left to the work already under way",
)
BACKEND_FETCHES = Counter("fred_reconciler_backend_fetch_total", "Inventory reads", ("backend", "outcome"))
BACKEND_INVENTORIES = Counter(
    "fred_reconciler_backend_inventory_total",
    "What became of a backend's two lists, once each sweep",
    ("backend", "outcome"),
)
CLEANUP_SKIPS = _preset(
    Counter("fred_reconciler_cleanup_skips_total", "Destructive steps not taken for lack of proof", ("pass", "reason")),
    ("orphan", "payload", "placement"),
    ("chain_live", "chain_unknown", "chain_unknown_state", "chain_error", "backend_silent", "attempt_pending"),
)

# Payload
PAYLOAD_UPLOADS = _preset(
    Counter("fred_payload_uploads_total", "Uploads", ("outcome",)),
    ("success", "invalid_auth", "hash_mismatch", "conflict", "error"),
)
PAYLOAD_BYTES = Histogram("fred_payload_size_bytes", "Size of stored uploads", buckets=_doubling(1024, 14))
PAYLOAD_PERSIST_FAILURES = _preset(
    Counter("fred_payload_persist_failures_total", "Payloads applied but not stored", ("operation",)), ("update",)
)

# Backends
BACKEND_REQUESTS = Counter("fred_backend_requests_total", "Requests to backends", ("backend", "operation", "status"))
BACKEND_REQUEST_SECONDS = Histogram(
    "fred_backend_request_duration_seconds", "Length of requests to backends", ("backend", "operation", "status")
)
BACKEND_CALL_OUTCOMES = Counter(
    "fred_backend_call_outcomes_total", "What a pushed operation met", ("backend", "operation", "outcome")
)
INSUFFICIENT_RESOURCES = Counter(
    "fred_backend_insufficient_resources_total", "Refusals for lack of room", ("backend", "verdict")
)
MALFORMED_ERROR_BODIES = Counter(
    "fred_backend_malformed_error_body_total", "Error answers without the error envelope", ("backend", "operation")
)
BACKEND_ALLOCATED_CPU_RATIO = Gauge(
    "fred_backend_allocated_cpu_ratio",
    "Allocated share of the CPUs, as seen at the last choice among candidates",
    ("backend",),
    multiprocess_mode="mostrecent",
)
ROUTING_FALLBACKS = Counter(
    "fred_backend_routing_fallback_total", "Choices by rotation because no candidate gave usable load figures"
)
HEALTH_PROBE_CRASHES = Counter("fred_backend_health_probe_panics_total", "Exceptions inside a backend's probe")
CHAIN_PROBE_CRASHES = Counter("fred_chain_health_probe_panics_total", "Exceptions inside the chain's probe")
HEALTH_CHECK_SECONDS = Histogram(
    "fred_health_check_duration_seconds", "Length of probes, also of those given up", ("check", "backend")
)

# API
API_REQUESTS = Counter("fred_api_requests_total", "HTTP requests", ("method", "path", "status"))
API_REQUEST_DURATION = Histogram(
    "fred_api_request_duration_seconds", "Length of HTTP requests", ("method", "path", "status")
)
RATE_LIMIT_REJECTIONS = _preset(
    Counter("fred_api_rate_limit_rejections_total", "Requests refused for rate", ("limiter",)),
    ("global", "tenant", "callback_ingress", "callback_storage"),
)
NON_IN_FLIGHT_CALLBACKS = Counter(
    "fred_api_non_in_flight_callbacks_total", "Callbacks for leases without an open operation", ("backend", "status")
)
CALLBACK_AUTH_FAILURES = _preset(
    Counter("fred_api_callback_auth_failures_total", "Refused callbacks", ("reason",)),
    ("missing", "format", "expired", "future", "mismatch", "unknown_storage", "fenced"),
)
CALLBACK_KEYS = Counter("fred_api_callback_signature_key_total", "Verified callbacks by key", ("backend", "slot"))
API_EVENTS_DROPPED = Counter("fred_api_events_dropped_total", "Live events a slow subscriber missed")
TOKEN_REPLAYS = Counter("fred_api_token_replays_total", "Tenant tokens that came a second time")
IDEMPOTENCY = _preset(
    Counter("fred_api_idempotency_total", "Requests named by an Idempotency-Key", ("outcome",)),
    ("claimed", "replayed", "mismatch", "in_progress", "taken_over", "conflict"),
)

MAINTENANCE_LEGACY_KEYS = Counter(
    "fred_api_maintenance_legacy_key_total", "Restarts and updates taken without a key while keys are required"
)
MAINTENANCE_REFUSALS = _preset(
    Counter("fred_maintenance_admission_refusals_total", "Restarts and updates beyond the shared budget", ("reason",)),
    ("count", "bytes", "reserved_count", "reserved_bytes"),
)
MAINTENANCE_EVICTED = Counter(
    "fred_provisioner_maintenance_receipts_evicted_total", "Answers to commands forgotten for newer ones of the lease"
)

# Tasks and background
TASK_SECONDS = Histogram("fred_task_duration_seconds", "Length of tasks", ("task",))
TASK_OUTCOMES = Counter("fred_task_outcomes_total", "Ended tasks", ("task", "outcome"))
HINTS = Counter("fred_hints_total", "Hints by what became of them", ("task", "outcome"))
THREAD_CRASHES = Counter(
    "fred_background_goroutine_panics_total", "Exceptions that a background thread survived", ("component",)
)
CLEANUP_CRASHES = _preset(
    Counter("fred_background_cleanup_panics_total", "Unexpected exceptions of cleaning", ("component",)),
    ("token", "request", "row"),
)
AUDIT_EVENTS = Counter("fred_audit_events_total", "Operators' actions", ("action", "source"))


@cache
def backend_series(backend: str, operation: str, status: str) -> tuple[Counter, Histogram]:
    """The count and the length of requests with these labels, looked up once: all three are of few values."""
    labels = (backend, operation, status)
    return BACKEND_REQUESTS.labels(*labels), BACKEND_REQUEST_SECONDS.labels(*labels)


def registry() -> CollectorRegistry:
    """What a scrape shows: this deployment's counters and histograms, the shared gauges, this process itself."""
    made = CollectorRegistry()
    if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        multiprocess.MultiProcessCollector(made)  # type: ignore[no-untyped-call]
        ProcessCollector(registry=made)
        PlatformCollector(registry=made)
    else:
        made.register(_OfThisProcess())
    made.register(shared_gauges)
    return made


class _OfThisProcess(Collector):
    """The metrics this process holds in memory."""

    def collect(self) -> Iterable[Metric]:
        return REGISTRY.collect()

    def describe(self) -> Iterable[Metric]:
        return ()
