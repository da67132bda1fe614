"""Metrics as Prometheus reads them. Needs `prometheus-client`, the extra `metrics`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from hicache_impl.metrics import BUCKETS_S, Durations, Metrics

MOVED = ("rank", "source", "target", "reason")
SLOTS = ("rank", "pool", "source", "target", "reason")
ENDED = ("rank", "state", "reason")
# Of what a rank observes (see audit.observe): the name of each gauge, and what it says.
GAUGES = {
    "free_pages": "Free host pages.",
    "resident_pages": "Host pages that the tree holds.",
    "evictable_pages": "Host pages that an eviction would free.",
    "occupied_pages": "Pages that pending operations asked for.",
    "device_free_pages": "Free device pages.",
    "device_resident_pages": "Device pages that the tree holds.",
}


class CacheCollector(Collector):
    """The metrics of some ranks, and, where `observe` is given, what each observes now, in the order of `metrics`."""

    def __init__(
        self, metrics: Sequence[Metrics], observe: Callable[[], Sequence[Mapping[str, Any]]] | None = None
    ) -> None:
        self._metrics = metrics
        self._observe = observe

    def collect(self) -> Iterator[Metric]:
        """All families, each with a sample for each rank."""
        yield from self._collect_moved()
        yield from self._collect_moved_slots()
        yield from self._collect_ended()
        if self._observe is not None:
            yield from self._collect_observed(self._observe())

    def _collect_moved(self) -> Iterator[Metric]:
        moves = CounterMetricFamily("hicache_moves", "Moves of pages between tiers.", labels=MOVED)
        pages = CounterMetricFamily("hicache_moved_pages", "Pages moved between tiers.", labels=MOVED)
        bytes_ = CounterMetricFamily("hicache_moved_bytes", "Bytes moved between tiers.", labels=MOVED)
        seconds = HistogramMetricFamily("hicache_move_seconds", "How long a move took.", labels=MOVED)
        for metrics in self._metrics:
            for key, moved in metrics.moved().items():
                labels = (str(metrics.rank), *key)
                moves.add_metric(labels, moved.count)
                pages.add_metric(labels, moved.pages)
                bytes_.add_metric(labels, moved.bytes)
                _add_durations(seconds, labels, moved.durations)
        yield from (moves, pages, bytes_, seconds)

    def _collect_moved_slots(self) -> Iterator[Metric]:
        slots = CounterMetricFamily("hicache_moved_slots", "Slots of extra pools moved between tiers.", labels=SLOTS)
        bytes_ = CounterMetricFamily("hicache_moved_slot_bytes", "Their bytes.", labels=SLOTS)
        for metrics in self._metrics:
            for key, moved in metrics.moved_slots().items():
                labels = (str(metrics.rank), *key)
                slots.add_metric(labels, moved.slots)
                bytes_.add_metric(labels, moved.bytes)
        yield from (slots, bytes_)

    def _collect_ended(self) -> Iterator[Metric]:
        operations = CounterMetricFamily("hicache_operations", "Operations that ended or were declined.", labels=ENDED)
        seconds = HistogramMetricFamily("hicache_operation_seconds", "From submission to end.", labels=ENDED)
        for metrics in self._metrics:
            for key, ended in metrics.ended().items():
                labels = (str(metrics.rank), *key)
                operations.add_metric(labels, ended.count)
                _add_durations(seconds, labels, ended.durations)
        yield from (operations, seconds)

    def _collect_observed(self, ranks: Sequence[Mapping[str, Any]]) -> Iterator[Metric]:
        for name, text in GAUGES.items():
            gauge = GaugeMetricFamily(f"hicache_{name}", text, labels=("rank",))
            for metrics, observed in zip(self._metrics, ranks, strict=True):
                gauge.add_metric((str(metrics.rank),), observed[name])
            yield gauge


def _add_durations(family: HistogramMetricFamily, labels: Sequence[str], durations: Durations) -> None:
    if not durations.count:
        return
    below, buckets = 0, []
    for bound, count in zip(BUCKETS_S, durations.buckets, strict=True):
        below += count
        buckets.append((str(bound), below))
    family.add_metric(labels, [*buckets, ("+Inf", below + durations.longer)], durations.seconds)


def registry_of(collector: CacheCollector) -> CollectorRegistry:
    """A registry with this alone, for an exporter (`prometheus_client.start_http_server(port, registry=...)`)."""
    registry = CollectorRegistry()
    registry.register(collector)
    return registry


def prometheus_text(collector: CacheCollector) -> str:
    """What a scrape gets, in Prometheus' text format."""
    return generate_latest(registry_of(collector)).decode()
