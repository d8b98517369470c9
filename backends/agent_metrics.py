"""The agent's own metrics, served at `/metrics`. Counting is adding to a number; the rest happens when it is read."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

TLS_REASONS = (
    "no_certificate",
    "unknown_authority",
    "expired",
    "not_yet_valid",
    "name_not_allowed",
    "protocol_version",
    "other",
)
_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class AgentMetrics(Collector):
    """Requests by route and status, refused TLS handshakes, and how callbacks fare. One per agent."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.tls_refused: Counter[str] = Counter(dict.fromkeys(TLS_REASONS, 0))
        self.certificate_ends: Callable[[], Mapping[str, float]] = dict
        self.callback_attempts: Counter[str] = Counter({"success": 0, "failure": 0})
        self.outbox_rows: Callable[[], int] = lambda: 0
        self.busy = 0
        self._latency = [0] * (len(_BOUNDS) + 1)
        self._latency_sum = 0.0
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def delivered(self, seconds: float) -> None:
        """A callback was taken, so long after what it reports had happened."""
        self._latency_sum += seconds
        for index, bound in enumerate(_BOUNDS):
            if seconds <= bound:
                self._latency[index] += 1
                return
        self._latency[-1] += 1

    def text(self) -> bytes:
        """All of it in the text format of Prometheus."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """See `prometheus_client.registry.Collector`."""
        requests = CounterMetricFamily("fred_agent_requests", "Answered requests", labels=["route", "status"])
        for (route, status), count in sorted(self.requests.items()):
            requests.add_metric([route, str(status)], count)
        yield requests
        refused = CounterMetricFamily(
            "fred_backend_tls_refused", "TLS connections refused, by what was wrong with the client", labels=["reason"]
        )
        for reason, count in self.tls_refused.items():
            refused.add_metric([reason], count)
        yield refused
        ends = GaugeMetricFamily(
            "fred_tls_certificate_not_after_seconds", "Unix time at which a certificate ends", labels=["file"]
        )
        for name, moment in self.certificate_ends().items():
            ends.add_metric([name], moment)
        yield ends
        attempts = CounterMetricFamily("fred_agent_callback_attempts", "Callbacks sent, by result", labels=["result"])
        for result, count in self.callback_attempts.items():
            attempts.add_metric([result], count)
        yield attempts
        yield GaugeMetricFamily("fred_agent_outbox_rows", "Callbacks not yet taken", value=self.outbox_rows())
        yield GaugeMetricFamily("fred_agent_concurrent_requests", "Requests being answered", value=self.busy)
        total, buckets = 0, []
        for bound, count in zip((*map(str, _BOUNDS), "+Inf"), self._latency, strict=True):
            total += count
            buckets.append((bound, float(total)))
        yield HistogramMetricFamily(
            "fred_agent_callback_latency_seconds",
            "From what a callback reports to its acceptance",
            buckets=buckets,
            sum_value=self._latency_sum,
        )
