"""Names and labels of metrics are a contract; shared gauges are read at scrape time."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from fred import exposition, gauges, metrics
from fred.gauges import SharedGauges

# Name without _total, then its labels.
EXPECTED = {
    "fred_api_callback_auth_failures": ("reason",),
    "fred_api_callback_signature_key": ("backend", "slot"),
    "fred_api_events_dropped": (),
    "fred_api_idempotency": ("outcome",),
    "fred_api_non_in_flight_callbacks": ("backend", "status"),
    "fred_api_rate_limit_rejections": ("limiter",),
    "fred_api_request_duration_seconds": ("method", "path", "status"),
    "fred_api_requests": ("method", "path", "status"),
    "fred_api_token_replays": (),
    "fred_audit_events": ("action", "source"),
    "fred_backend_allocated_cpu_ratio": ("backend",),
    "fred_backend_call_outcomes": ("backend", "operation", "outcome"),
    "fred_backend_health_probe_panics": (),
    "fred_backend_insufficient_resources": ("backend", "verdict"),
    "fred_backend_malformed_error_body": ("backend", "operation"),
    "fred_backend_request_duration_seconds": ("backend", "operation", "status"),
    "fred_backend_requests": ("backend", "operation", "status"),
    "fred_backend_routing_fallback": (),
    "fred_background_cleanup_panics": ("component",),
    "fred_background_goroutine_panics": ("component",),
    "fred_chain_endpoint_switches": (),
    "fred_chain_events_reconnects": ("reason",),
    "fred_chain_faults": ("kind",),
    "fred_chain_gas_simulated": (),
    "fred_chain_gas_simulation": ("result",),
    "fred_chain_health_probe_panics": (),
    "fred_chain_query_duration_seconds": ("query",),
    "fred_chain_signer_oog_retries": ("result",),
    "fred_chain_stale_reads": ("query",),
    "fred_chain_transactions": ("type", "outcome"),
    "fred_signer_balance_query_failures": ("role", "address", "denom"),
    "fred_signer_grant_check": ("outcome",),
    "fred_events_dropped": ("event_type",),
    "fred_health_check_duration_seconds": ("check", "backend"),
    "fred_hints": ("task", "outcome"),
    "fred_api_maintenance_legacy_key": (),
    "fred_maintenance_admission_refusals": ("reason",),
    "fred_provisioner_maintenance_receipts_evicted": (),
    "fred_messages_malformed": ("topic",),
    "fred_payload_persist_failures": ("operation",),
    "fred_payload_size_bytes": (),
    "fred_payload_uploads": ("outcome",),
    "fred_placement_write_failures": (),
    "fred_provisioner_deferred_closes": ("outcome", "reason"),
    "fred_provisioner_ack_batch_fee_gas_errors": ("lane",),
    "fred_provisioner_ack_batch_individual_fallbacks": ("lane",),
    "fred_provisioner_ack_batcher_lane_restarts": ("lane",),
    "fred_provisioner_backend_invocation_panics": ("operation",),
    "fred_provisioner_callback_deprovision_owned_success": (),
    "fred_provisioner_callback_placement_semantic_conflicts": (),
    "fred_provisioner_callback_settlement_claim_wait_timeouts": (),
    "fred_provisioner_callback_timeouts": (),
    "fred_provisioner_lifecycle_callback_outcomes": ("outcome", "verdict", "status"),
    "fred_provisioner_provisioning": ("outcome", "backend", "operation"),
    "fred_provisioner_provisioning_duration_seconds": ("backend", "operation"),
    "fred_provisioner_reconciler_deferred_leases": (),
    "fred_provisioner_reconciler_inflight_skips": (),
    "fred_provisioner_reconciler_panics": ("stage",),
    "fred_reconciler_actions": ("action",),
    "fred_reconciler_backend_fetch": ("backend", "outcome"),
    "fred_reconciler_backend_inventory": ("backend", "outcome"),
    "fred_reconciler_cleanup_skips": ("pass", "reason"),
    "fred_reconciler_conflicts": (),
    "fred_reconciler_duration_seconds": (),
    "fred_reconciler_runs": ("outcome",),
    "fred_task_duration_seconds": ("task",),
    "fred_task_outcomes": ("task", "outcome"),
    "fred_watermill_messages": ("topic", "outcome"),
    "fred_watermill_poisoned_messages": (),
}
EXPECTED_GAUGES = {
    "fred_api_callback_previous_key_configured": ("backend",),
    "fred_backend_circuit_breaker_state": ("backend",),
    "fred_backend_fenced": ("backend",),
    "fred_backend_healthy": ("backend",),
    "fred_build_info": ("version", "python", "django"),
    "fred_chain_events_connected": (),
    "fred_chain_events_last_received_timestamp_seconds": (),
    "fred_chain_height": (),
    "fred_config_mismatch": (),
    "fred_db_pool_in_use": (),
    "fred_health_check_healthy": ("check",),
    "fred_lease_count": ("state",),
    "fred_lease_provision_count": ("backend", "status"),
    "fred_lease_stuck_count": (),
    "fred_maintenance_pending": ("phase",),
    "fred_maintenance_pending_bytes": ("phase",),
    "fred_maintenance_pending_oldest_age_seconds": ("phase",),
    "fred_outbox_oldest_age_seconds": ("kind",),
    "fred_outbox_pending": ("kind",),
    "fred_payload_leases_awaiting": (),
    "fred_payload_stored_count": (),
    "fred_process_up": ("process",),
    "fred_provisioner_deferred_closes_oldest_age_seconds": (),
    "fred_provisioner_deferred_closes_pending": (),
    "fred_provisioner_in_flight_provisions": (),
    "fred_queue_depth": ("queue",),
    "fred_queue_oldest_age_seconds": ("queue",),
    "fred_reconciler_backend_inventory_answered": ("backend",),
    "fred_reconciler_last_success_timestamp_seconds": (),
    "fred_reconciler_sweep_complete": (),
    "fred_signer_balance": ("role", "address", "index", "denom"),
    "fred_signer_pool_lane_count": (),
    "fred_signer_pool_size": (),
    "fred_tls_certificate_not_after_seconds": ("use", "backend"),
    "fred_websocket_connections": (),
}


def declared():
    found = {value for value in vars(metrics).values() if hasattr(value, "_labelnames")}
    return {metric._name: tuple(metric._labelnames) for metric in found}


def test_every_metric_has_its_agreed_name_and_labels():
    assert declared() == EXPECTED


def test_every_shared_gauge_has_its_agreed_name_and_labels():
    assert {gauge.name: gauge.labels for gauge in gauges.SHARED_GAUGES.values()} == EXPECTED_GAUGES


def test_no_metric_is_named_like_one_of_a_backend():
    names = [*declared(), *gauges.SHARED_GAUGES]
    assert not [name for name in names if re.match(r"fred_(docker|k3s)_backend_", name)]


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("fred_reconciler_runs_total", {"outcome": "degraded"}),
        ("fred_chain_transactions_total", {"type": "reject", "outcome": "error"}),
        ("fred_api_callback_auth_failures_total", {"reason": "future"}),
        ("fred_reconciler_cleanup_skips_total", {"pass": "payload", "reason": "chain_unknown"}),
    ],
)
def test_closed_sets_of_labels_exist_before_their_first_event(name, labels):
    assert REGISTRY.get_sample_value(name, labels) is not None


@pytest.mark.parametrize(
    ("metric", "first", "last", "count"),
    [
        (metrics.PROVISIONING_SECONDS, 0.1, 204.8, 12),
        (metrics.RECONCILER_SECONDS, 0.5, 256.0, 10),
        (metrics.PAYLOAD_BYTES, 1024.0, 8388608.0, 14),
        (metrics.GAS_SIMULATED, 100_000.0, 8_000_000.0, 8),
    ],
)
def test_histograms_have_the_agreed_bounds(metric, first, last, count):
    bounds = metric._upper_bounds[:-1]
    assert (bounds[0], bounds[-1], len(bounds)) == (first, last, count)


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def values(collector):
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in collector.collect()
        for sample in family.samples
    }


def test_gauges_are_read_at_most_once_in_five_seconds():
    clock, calls = Clock(), []
    shared = SharedGauges(clock=clock)
    shared.register("leases", lambda: calls.append(1) or {"fred_lease_count": {("active",): len(calls)}})
    assert values(shared) == values(shared) == {("fred_lease_count", "active"): 1}
    clock.now += 5
    assert values(shared) == {("fred_lease_count", "active"): 2}


def test_a_reader_that_fails_leaves_only_its_own_gauges_out():
    shared = SharedGauges(clock=Clock())

    def fail():
        raise OSError("database is away")

    shared.register("broken", fail)
    shared.register("chain", lambda: {"fred_chain_height": {(): 7}})
    assert values(shared) == {("fred_chain_height",): 7}


def test_a_silent_source_costs_a_scrape_its_own_time_once_and_the_others_not_their_gauges():
    clock, asked = Clock(), []
    shared = SharedGauges(clock=clock)

    def silent(name):
        def read():
            asked.append(name)
            clock.now += 5
            raise OSError("database is away")

        return read

    shared.register("database", silent("database"))
    shared.register("balances", silent("balances"))
    shared.register("chain", lambda: {"fred_chain_height": {(): 7}})
    for scrape in range(1, 6):
        found = values(shared)
        assert len(asked) == scrape
        assert found == {("fred_chain_height",): 7} or scrape <= 2, "who is slow is known after a scrape"
        clock.now += 15


def test_a_scrape_is_prometheus_text_without_created_series():
    body, content_type = exposition.render("")
    text = body.decode()
    assert content_type.startswith("text/plain")
    families = list(text_string_to_metric_families(text))
    assert not [sample for family in families for sample in family.samples if sample.name.endswith("_created")]
    assert {"fred_reconciler_runs", "process_resident_memory_bytes"} <= {family.name for family in families}


def test_a_scrape_is_openmetrics_when_asked_for():
    body, content_type = exposition.render("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")


def test_processes_of_two_hosts_never_share_a_file():
    names = {path.name for path in Path(os.environ["PROMETHEUS_MULTIPROC_DIR"]).iterdir()}
    host = socket.gethostname().replace("_", "-")
    assert f"counter_{host}-{os.getpid()}.db" in names


def test_counters_of_all_processes_are_summed(tmp_path):
    code = """
from fred import metrics
metrics.CALLBACK_TIMEOUTS.inc({0})
if {1}:
    from prometheus_client import generate_latest
    print(generate_latest(metrics.registry()).decode())
"""
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    for amount, last in ((2, False), (3, True)):
        done = subprocess.run(
            [sys.executable, "-c", code.format(amount, last)],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
    assert "fred_provisioner_callback_timeouts_total 5.0" in done.stdout


def test_a_fork_counts_in_a_file_of_its_own(tmp_path):
    code = """
import os
from fred import metrics
metrics.CALLBACK_TIMEOUTS.inc(2)
pid = os.fork()
metrics.CALLBACK_TIMEOUTS.inc(3 if pid else 40)
if pid and os.waitpid(pid, 0)[1] == 0:
    from prometheus_client import generate_latest
    print(generate_latest(metrics.registry()).decode())
    print(os.getpid(), pid)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    host = socket.gethostname().replace("_", "-")
    *text, pids = done.stdout.splitlines()
    assert "fred_provisioner_callback_timeouts_total 45.0" in text
    assert {f"counter_{host}-{pid}.db" for pid in pids.split()} <= {path.name for path in tmp_path.iterdir()}


def test_the_series_of_a_backend_are_looked_up_once():
    count, seconds = metrics.backend_series("b9", "get_stats", "error")
    assert metrics.backend_series("b9", "get_stats", "error") == (count, seconds)
    count.inc()
    seconds.observe(0.5)
    labels = {"backend": "b9", "operation": "get_stats", "status": "error"}
    assert REGISTRY.get_sample_value("fred_backend_requests_total", labels) == 1
    assert REGISTRY.get_sample_value("fred_backend_request_duration_seconds_sum", labels) == 0.5
