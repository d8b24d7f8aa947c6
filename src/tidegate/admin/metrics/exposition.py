"""Gives the metrics of one snapshot to prometheus_client, which writes them as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from tidegate.admin.metrics.spec import Kind, MetricSpec
from tidegate.admin.view import NodeSnapshot
from tidegate.domain.statistics import Histogram

Bucket = tuple[str, float] | tuple[str, float, Exemplar]


class NodeCollector(Collector):
    """Reads `specs` out of one snapshot."""

    def __init__(self, node: NodeSnapshot, specs: Iterable[MetricSpec]) -> None:
        self._node = node
        self._specs = specs

    def collect(self) -> Iterator[Metric]:
        for spec in self._specs:
            yield _family(spec, self._node)


def _family(spec: MetricSpec, node: NodeSnapshot) -> Metric:
    match spec.kind:
        case Kind.COUNTER:
            counter = CounterMetricFamily(spec.name, spec.meaning, labels=spec.labels)
            for labels, value in spec.samples(node):
                counter.add_metric(labels, _number(value))
            return counter
        case Kind.GAUGE:
            gauge = GaugeMetricFamily(spec.name, spec.meaning, labels=spec.labels)
            for labels, value in spec.samples(node):
                gauge.add_metric(labels, _number(value))
            return gauge
        case Kind.HISTOGRAM:
            histogram = HistogramMetricFamily(spec.name, spec.meaning, labels=spec.labels)
            for labels, value in spec.samples(node):
                if isinstance(value, Histogram):
                    histogram.add_metric(labels, _cumulative(value), value.total)
            return histogram


def _number(value: float | Histogram) -> float:
    assert not isinstance(value, Histogram), "only a histogram metric has histogram samples"
    return value


def _cumulative(histogram: Histogram) -> list[Bucket]:
    """Prometheus counts in each bucket everything up to its bound."""
    buckets: list[Bucket] = []
    sum_so_far = 0
    exemplars = histogram.exemplars or (None,) * len(histogram.counts)
    for bound, count, latest in zip((*histogram.bounds, float("inf")), histogram.counts, exemplars, strict=True):
        sum_so_far += count
        name = "+Inf" if bound == float("inf") else repr(bound)
        if latest is None:
            buckets.append((name, float(sum_so_far)))
        else:
            buckets.append((name, float(sum_so_far), Exemplar({"trace_id": latest.trace_id}, latest.value, latest.at)))
    return buckets
