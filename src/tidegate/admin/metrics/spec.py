"""How a metric is declared: name, labels, meaning, and where its value comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import TypeVar

import msgspec

from tidegate.admin.view import NodeSnapshot
from tidegate.domain.statistics import Histogram, RouteHistograms


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


Labels = tuple[str, ...]
Sample = tuple[Labels, float | Histogram]
Samples = Callable[[NodeSnapshot], Iterable[Sample]]
Part = TypeVar("Part", bound=msgspec.Struct)


class MetricSpec(msgspec.Struct, frozen=True):
    """One metric. `samples` reads it out of a snapshot."""

    name: str
    kind: Kind
    labels: Labels
    meaning: str
    samples: Samples


def level(name: str, key: str, meaning: str, *labels: tuple[str, str]) -> MetricSpec:
    """Declare a gauge over a flat level; a part that reports nothing has no sample. `labels` are fixed ones."""

    def samples(node: NodeSnapshot) -> Iterator[Sample]:
        value = node.statistics.levels.get(key)
        if value is not None:
            yield tuple(value for _, value in labels), value

    return MetricSpec(name, Kind.GAUGE, tuple(label for label, _ in labels), meaning, samples)


def counter(name: str, key: str, meaning: str) -> MetricSpec:
    def samples(node: NodeSnapshot) -> Iterator[Sample]:
        value = node.statistics.counters.get(key)
        if value is not None:
            yield (), value

    return MetricSpec(name, Kind.COUNTER, (), meaning, samples)


def several(name: str, kind: Kind, label: str, keys: dict[str, str], meaning: str) -> MetricSpec:
    """Declare one metric over several flat figures, told apart by a label; `keys` maps label value to key."""

    def samples(node: NodeSnapshot) -> Iterator[Sample]:
        figures = node.statistics.counters if kind is Kind.COUNTER else node.statistics.levels
        for value, key in keys.items():
            if key in figures:
                yield (value,), figures[key]

    return MetricSpec(name, kind, (label,), meaning, samples)


def of_upstream(name: str, kind: Kind, key: str, meaning: str) -> MetricSpec:
    """Declare one figure of each upstream; one that reports nothing has no sample."""

    def samples(node: NodeSnapshot) -> Iterator[Sample]:
        for upstream in node.statistics.upstreams:
            figures = upstream.counters if kind is Kind.COUNTER else upstream.levels
            if key in figures:
                yield (upstream.name,), figures[key]

    return MetricSpec(name, kind, ("upstream",), meaning, samples)


def several_of_upstream(name: str, kind: Kind, label: str, keys: dict[str, str], meaning: str) -> MetricSpec:
    """Declare one metric over several figures of each upstream, as `several` does."""

    def samples(node: NodeSnapshot) -> Iterator[Sample]:
        for upstream in node.statistics.upstreams:
            figures = upstream.counters if kind is Kind.COUNTER else upstream.levels
            for value, key in keys.items():
                if key in figures:
                    yield (upstream.name, value), figures[key]

    return MetricSpec(name, kind, ("upstream", label), meaning, samples)


def by_route(name: str, choose: Callable[[RouteHistograms], Histogram], meaning: str) -> MetricSpec:
    def samples(node: NodeSnapshot) -> Iterator[Sample]:
        for histograms in node.statistics.requests.histograms:
            yield (histograms.route,), choose(histograms)

    return MetricSpec(name, Kind.HISTOGRAM, ("route",), meaning, samples)


def of_part(name: str, kind: Kind, part: Callable[[NodeSnapshot], Part | None], read: Callable[[Part], float], meaning: str) -> MetricSpec:
    """Declare one figure of a part of the node; where there is no such part, there is no sample."""

    def samples(node: NodeSnapshot) -> Iterator[Sample]:
        present = part(node)
        if present is not None:
            yield (), float(read(present))

    return MetricSpec(name, kind, (), meaning, samples)
