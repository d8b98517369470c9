"""What `/metrics` answers: the counters of all processes and the gauges read from shared state.

A gauge's reader is called at most once per five seconds, whoever scrapes. A reader that fails leaves its gauges
out; the scrape still succeeds with the rest. No Django inside: an app registers its readers when it is ready.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

import structlog
from prometheus_client import REGISTRY, CollectorRegistry, PlatformCollector, ProcessCollector, exposition, multiprocess
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fred.metrics import SHARED_GAUGES

MAX_AGE_S = 5.0

Samples = Mapping[tuple[str, ...], float]
Reader = Callable[[], Mapping[str, Samples]]

log = structlog.get_logger("fred.exposition")


class SharedGauges(Collector):
    """Collects the gauges of all registered readers, from memory while they are fresh."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._readers: dict[str, Reader] = {}
        self._fresh: dict[str, tuple[float, Mapping[str, Samples]]] = {}

    def register(self, name: str, reader: Reader) -> None:
        """Ask this reader for some of the shared gauges; the same name again replaces it.

        A reader gives the samples of each gauge by label values in the gauge's order, `()` where it has none. It
        keeps its own time limit (2 s).
        """
        with self._lock:
            self._readers[name] = reader
            self._fresh.pop(name, None)

    def collect(self) -> Iterable[Metric]:
        """The gauges of every reader that answered."""
        with self._lock:
            for name, reader in self._readers.items():
                yield from self._families(name, reader)

    def describe(self) -> Iterable[Metric]:
        """Nothing: registering must not read."""
        return ()

    def _families(self, name: str, reader: Reader) -> Iterator[Metric]:
        at, samples = self._fresh.get(name, (float("-inf"), {}))
        if self._clock() - at >= MAX_AGE_S:
            try:
                samples = reader()
            except Exception as error:  # noqa: BLE001 - a scrape never fails for one reader
                log.warning("gauges are left out", reader=name, error=str(error))
                samples = {}
            self._fresh[name] = (self._clock(), samples)
        for metric, values in samples.items():
            gauge = SHARED_GAUGES[metric]
            family = GaugeMetricFamily(gauge.name, gauge.help, labels=gauge.labels)
            for labels, value in values.items():
                family.add_metric(labels, value)
            yield family


shared_gauges = SharedGauges()


def render(accept: str = "") -> tuple[bytes, str]:
    """Body and content type of a scrape, in the format this Accept header asks for."""
    registry = CollectorRegistry()
    if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        multiprocess.MultiProcessCollector(registry)
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
    else:
        registry.register(_Registered())
    registry.register(shared_gauges)
    encode, content_type = exposition.choose_encoder(accept)
    return encode(registry), content_type


class _Registered(Collector):
    """The metrics of this process alone."""

    def collect(self) -> Iterable[Metric]:
        return REGISTRY.collect()

    def describe(self) -> Iterable[Metric]:
        return ()
