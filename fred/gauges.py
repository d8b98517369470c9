"""Gauges of shared state, read at scrape time, so that they cannot drift and are equal in all replicas.

A gauge's reader is called at most once per five seconds, whoever scrapes. A reader that fails leaves its gauges
out; the scrape still succeeds with the rest. No Django inside: an app registers its readers when it is ready.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import structlog
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

MAX_AGE_S = 5.0
LONGEST_S = 2.0
"""How long a scrape asks readers."""

Samples = Mapping[tuple[str, ...], float]
Reader = Callable[[], Mapping[str, Samples]]

log = structlog.get_logger("fred.gauges")


@dataclass(frozen=True, slots=True)
class SharedGauge:
    """A gauge of shared state: `labels` in order; read at scrape time, never held by a process."""

    name: str
    help: str
    labels: tuple[str, ...] = ()


SHARED_GAUGES: dict[str, SharedGauge] = {
    gauge.name: gauge
    for gauge in (
        SharedGauge("fred_provisioner_in_flight_provisions", "Operations that wait for their callback"),
        SharedGauge("fred_provisioner_deferred_closes_pending", "Closes that wait for another try"),
        SharedGauge("fred_provisioner_deferred_closes_oldest_age_seconds", "Age of the oldest such close"),
        SharedGauge("fred_maintenance_pending", "Restarts and updates whose answer is not decided", ("phase",)),
        SharedGauge("fred_maintenance_pending_bytes", "Their payloads", ("phase",)),
        SharedGauge("fred_maintenance_pending_oldest_age_seconds", "Age of the oldest of them", ("phase",)),
        SharedGauge("fred_reconciler_last_success_timestamp_seconds", "End of the last whole sweep"),
        SharedGauge("fred_reconciler_sweep_complete", "1 when the last sweep saw every backend"),
        SharedGauge(
            "fred_reconciler_backend_inventory_answered", "1 when the last sweep read both its lists", ("backend",)
        ),
        SharedGauge("fred_payload_stored_count", "Stored payloads"),
        SharedGauge("fred_payload_leases_awaiting", "Pending leases whose payload has not come yet"),
        SharedGauge("fred_backend_healthy", "1 when the last probe was answered", ("backend",)),
        SharedGauge("fred_backend_circuit_breaker_state", "0 closed, 1 half open, 2 open", ("backend",)),
        SharedGauge("fred_backend_fenced", "1 while fenced", ("backend",)),
        SharedGauge("fred_health_check_healthy", "1 while the check passes", ("check",)),
        SharedGauge("fred_api_callback_previous_key_configured", "1 while its previous key is accepted", ("backend",)),
        SharedGauge("fred_signer_pool_size", "Provider key and sub-signers"),
        SharedGauge("fred_signer_pool_lane_count", "Usable lanes"),
        SharedGauge("fred_signer_balance", "Balance of a signer", ("role", "address", "index", "denom")),
        SharedGauge("fred_build_info", "1", ("version", "python", "django")),
        SharedGauge("fred_config_mismatch", "1 while live processes run with different settings"),
        SharedGauge("fred_process_up", "Live processes", ("process",)),
        SharedGauge("fred_queue_depth", "Waiting tasks", ("queue",)),
        SharedGauge("fred_queue_oldest_age_seconds", "Age of the oldest waiting task", ("queue",)),
        SharedGauge("fred_lease_stuck_count", "Leases with eight failed looks or more"),
        SharedGauge("fred_outbox_pending", "Due rows nobody has taken", ("kind",)),
        SharedGauge("fred_outbox_oldest_age_seconds", "Age of the oldest of them", ("kind",)),
        SharedGauge("fred_chain_events_connected", "1 while subscribed"),
        SharedGauge("fred_chain_events_last_received_timestamp_seconds", "Last chain event or header"),
        SharedGauge("fred_chain_height", "Newest height seen"),
        SharedGauge("fred_lease_count", "Leases by chain state", ("state",)),
        SharedGauge("fred_lease_provision_count", "Provisions as listed", ("backend", "status")),
        SharedGauge("fred_websocket_connections", "Open event streams"),
        SharedGauge("fred_tls_certificate_not_after_seconds", "End of a certificate", ("use", "backend")),
        SharedGauge("fred_db_pool_in_use", "Connections of the scraped process's pool that are in use"),
    )
}


class SharedGauges(Collector):
    """Collects the gauges of all registered readers, from memory while they are fresh."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._readers: dict[str, Reader] = {}
        self._fresh: dict[str, tuple[float, Mapping[str, Samples]]] = {}
        self._took: dict[str, float] = {}

    def register(self, name: str, reader: Reader) -> None:
        """Ask this reader for some of the shared gauges; the same name again replaces it.

        A reader gives the samples of each gauge by label values in the gauge's order, `()` where it has none. It
        keeps its own time limit (2 s).
        """
        with self._lock:
            self._readers[name] = reader
            self._fresh.pop(name, None)

    def collect(self) -> Iterable[Metric]:
        """The gauges of every reader that answered; those that took long last time are asked last.

        Once a scrape has taken two seconds it asks no further reader: a database that is silent costs no scrape its
        own time limit, and not the gauges of others either.
        """
        with self._lock:
            until = self._clock() + LONGEST_S
            for name in sorted(self._readers, key=lambda name: self._took.get(name, 0.0)):
                yield from self._families(name, self._readers[name], until=until)

    def describe(self) -> Iterable[Metric]:
        """Nothing: registering must not read."""
        return ()

    def _families(self, name: str, reader: Reader, *, until: float) -> Iterator[Metric]:
        at, samples = self._fresh.get(name, (float("-inf"), {}))
        began = self._clock()
        if began - at >= MAX_AGE_S:
            if began >= until:
                return
            try:
                samples = reader()
            except Exception as error:  # noqa: BLE001 - a scrape never fails for one reader
                log.warning("gauges are left out", reader=name, error=str(error))
                samples = {}
            self._fresh[name] = (self._clock(), samples)
            self._took[name] = self._clock() - began
        for metric, values in samples.items():
            gauge = SHARED_GAUGES[metric]
            family = GaugeMetricFamily(gauge.name, gauge.help, labels=gauge.labels)
            for labels, value in values.items():
                family.add_metric(labels, value)
            yield family


shared_gauges = SharedGauges()
