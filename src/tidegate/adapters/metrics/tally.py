"""Counts finished requests for the metrics, in bounded memory.

Every label value comes from the configuration or from an enum of ours; anything else is counted as `other`, an empty one as `none`
(no route or upstream was reached). So a client that invents model names adds no series. The counts only grow.
Of the latest observation of each bucket of a time it keeps the trace id: one for a bucket, whatever traffic does.
Called on the request path: one dictionary look-up and a few additions per record.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

from tidegate.domain.outcome import Outcome
from tidegate.domain.record import RequestRecord
from tidegate.domain.request import Operation
from tidegate.domain.statistics import CostTally, Exemplar, Histogram, RequestStatistics, RequestTally, RouteHistograms, TokenTally
from tidegate.domain.usage import Evidence

OTHER = "other"
NONE = "none"
MAX_LABELS = 500
"""Routes, and upstreams, kept apart: more than a person configures, few enough for a scrape to stay small."""
MAX_EXEMPLAR_ROUTES = 100
"""Routes whose exemplars are reported, in the order in which they were first used: some 5 ms of a worker's every two seconds at most."""

_Bounds = tuple[float, ...]

DURATION_BOUNDS: Final[_Bounds] = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
TTFT_BOUNDS: Final[_Bounds] = (0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0)
TPOT_BOUNDS: Final[_Bounds] = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)
"""With the 0.1 s from which on people read faster than an answer is written."""
OVERHEAD_BOUNDS: Final[_Bounds] = (1e-4, 2.5e-4, 5e-4, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)
PROMPT_BOUNDS: Final[_Bounds] = (50.0, 100.0, 250.0, 500.0, 1e3, 2500.0, 5e3, 1e4, 2.5e4, 5e4, 1e5, 2e5, 5e5, 1e6)
"""With the 50,000 from which on prompts are called long: see `deploy/prometheus/`."""
RATIO_BOUNDS: Final[_Bounds] = (0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 3.0, 6.0, 12.0, 25.0, 50.0, 100.0)
"""With the ends of what is healthy (0.2 to 0.8) and of what is alarming (0.1, 1.5)."""

_Seen = list[tuple[str, float, float] | None]
"""By bucket: trace id, value and instant of its latest observation."""

_EVIDENCE_INDEX: Final = {evidence: index for index, evidence in enumerate(Evidence)}


class _RouteCell:
    """Token counts, cost and distributions of one route."""

    __slots__ = (
        "cached",
        "completion",
        "cost_micro",
        "duration",
        "duration_seen",
        "duration_sum",
        "overhead",
        "overhead_seen",
        "overhead_sum",
        "prompt",
        "prompt_size",
        "ratio",
        "ratio_sum",
        "tpot",
        "tpot_seen",
        "tpot_sum",
        "ttft",
        "ttft_seen",
        "ttft_sum",
    )

    def __init__(self) -> None:
        self.prompt = [0] * len(Evidence)
        self.completion = [0] * len(Evidence)
        self.cached = [0] * len(Evidence)
        self.duration = [0] * (len(DURATION_BOUNDS) + 1)
        self.ttft = [0] * (len(TTFT_BOUNDS) + 1)
        self.tpot = [0] * (len(TPOT_BOUNDS) + 1)
        self.overhead = [0] * (len(OVERHEAD_BOUNDS) + 1)
        self.duration_seen: _Seen = [None] * len(self.duration)
        self.ttft_seen: _Seen = [None] * len(self.ttft)
        self.tpot_seen: _Seen = [None] * len(self.tpot)
        self.overhead_seen: _Seen = [None] * len(self.overhead)
        self.prompt_size = [0] * (len(PROMPT_BOUNDS) + 1)
        self.ratio = [0] * (len(RATIO_BOUNDS) + 1)
        self.cost_micro = 0
        self.duration_sum = 0.0
        self.ttft_sum = 0.0
        self.tpot_sum = 0.0
        self.overhead_sum = 0.0
        self.ratio_sum = 0.0


class _Cell:
    """One combination of request labels."""

    __slots__ = ("count", "labels", "route")

    def __init__(self, labels: tuple[str, str, str, str], route: _RouteCell) -> None:
        self.labels = labels
        self.route = route
        self.count = 0


class RecordTally:
    """A `Recorder` that keeps only counts."""

    def __init__(self, *, routes: Iterable[str] = (), upstreams: Iterable[str] = ()) -> None:
        # Both tables grow with the configured labels and the enums only.
        self._cells: dict[tuple[str, str, str, str], _Cell] = {}
        self._routes: dict[str, _RouteCell] = {}
        self._known_routes: set[str] = set()
        self._known_upstreams: set[str] = set()
        self._known_operations = frozenset(str(operation) for operation in Operation)
        self._known_outcomes = frozenset(str(outcome) for outcome in Outcome)
        self.allow(routes=routes, upstreams=upstreams)

    def allow(self, *, routes: Iterable[str], upstreams: Iterable[str]) -> None:
        """Accept these labels too (after a reload); those accepted before stay. Beyond `MAX_LABELS` they count as `other`."""
        _add_within(self._known_routes, routes)
        _add_within(self._known_upstreams, upstreams)

    def record(self, record: RequestRecord) -> None:
        cell = self._cells.get((record.operation, record.route, record.upstream, record.outcome))
        if cell is None:
            cell = self._cell_of(record)
        cell.count += 1
        route = cell.route
        trace_id, usage = record.trace_id, record.usage
        duration = record.duration_s
        ended_at = record.started_at + duration
        bucket = bisect_left(DURATION_BOUNDS, duration)
        route.duration[bucket] += 1
        route.duration_seen[bucket] = (trace_id, duration, ended_at)
        route.duration_sum += duration
        overhead = duration - record.upstream_s
        overhead = max(overhead, 0.0)
        bucket = bisect_left(OVERHEAD_BOUNDS, overhead)
        route.overhead[bucket] += 1
        route.overhead_seen[bucket] = (trace_id, overhead, ended_at)
        route.overhead_sum += overhead
        ttft = record.ttft_s
        if ttft is not None:
            bucket = bisect_left(TTFT_BOUNDS, ttft)
            route.ttft[bucket] += 1
            route.ttft_seen[bucket] = (trace_id, ttft, ended_at)
            route.ttft_sum += ttft
            if usage.completion_tokens > 1:
                tpot = max(duration - ttft, 0.0) / (usage.completion_tokens - 1)
                bucket = bisect_left(TPOT_BOUNDS, tpot)
                route.tpot[bucket] += 1
                route.tpot_seen[bucket] = (trace_id, tpot, ended_at)
                route.tpot_sum += tpot
        route.cost_micro += record.cost_micro
        if usage.prompt_tokens or usage.completion_tokens:
            evidence = _EVIDENCE_INDEX[record.evidence]
            route.prompt[evidence] += usage.prompt_tokens
            route.completion[evidence] += usage.completion_tokens
            route.cached[evidence] += usage.cached_tokens
            route.prompt_size[bisect_left(PROMPT_BOUNDS, usage.prompt_tokens)] += 1
            # Of whole answers: embeddings have none, and clients that leave cut theirs.
            if usage.prompt_tokens and usage.completion_tokens and record.evidence is Evidence.REPORTED:
                ratio = usage.completion_tokens / usage.prompt_tokens
                route.ratio[bisect_left(RATIO_BOUNDS, ratio)] += 1
                route.ratio_sum += ratio

    def statistics(self) -> RequestStatistics:
        return RequestStatistics(
            requests=tuple(RequestTally(*cell.labels, cell.count) for cell in self._cells.values()),
            tokens=tuple(tally for name, route in self._routes.items() for tally in _token_tallies(name, route)),
            histograms=tuple(
                _histograms(name, route, has_exemplars=number < MAX_EXEMPLAR_ROUTES)
                for number, (name, route) in enumerate(self._routes.items())
            ),
            costs=tuple(CostTally(name, route.cost_micro) for name, route in self._routes.items()),
        )

    def __repr__(self) -> str:
        return f"RecordTally(series={len(self._cells)}, routes={len(self._routes)})"

    def _cell_of(self, record: RequestRecord) -> _Cell:
        labels = (
            _label(record.operation, self._known_operations),
            _label(record.route, self._known_routes),
            _label(record.upstream, self._known_upstreams),
            _label(record.outcome, self._known_outcomes),
        )
        cell = self._cells.get(labels)
        if cell is None:
            route = self._routes.get(labels[1])
            if route is None:
                route = self._routes[labels[1]] = _RouteCell()
            cell = self._cells[labels] = _Cell(labels, route)
        return cell


def _add_within(known: set[str], names: Iterable[str]) -> None:
    for name in names:
        if len(known) >= MAX_LABELS:
            return
        known.add(name)


def _label(value: str, known: Iterable[str]) -> str:
    if not value:
        return NONE
    return str(value) if value in known else OTHER


def _token_tallies(name: str, route: _RouteCell) -> Iterable[TokenTally]:
    for evidence, index in _EVIDENCE_INDEX.items():
        for token_class, counts in (("prompt", route.prompt), ("completion", route.completion), ("cached", route.cached)):
            if counts[index]:
                yield TokenTally(name, token_class, str(evidence), counts[index])


def _histograms(name: str, route: _RouteCell, *, has_exemplars: bool) -> RouteHistograms:
    def named(seen: _Seen) -> tuple[Exemplar | None, ...]:
        return _exemplars(seen) if has_exemplars else ()

    return RouteHistograms(
        route=name,
        duration=Histogram(DURATION_BOUNDS, tuple(route.duration), route.duration_sum, named(route.duration_seen)),
        ttft=Histogram(TTFT_BOUNDS, tuple(route.ttft), route.ttft_sum, named(route.ttft_seen)),
        tpot=Histogram(TPOT_BOUNDS, tuple(route.tpot), route.tpot_sum, named(route.tpot_seen)),
        overhead=Histogram(OVERHEAD_BOUNDS, tuple(route.overhead), route.overhead_sum, named(route.overhead_seen)),
        prompt_tokens=Histogram(PROMPT_BOUNDS, tuple(route.prompt_size), float(sum(route.prompt))),
        output_ratio=Histogram(RATIO_BOUNDS, tuple(route.ratio), route.ratio_sum),
    )


def _exemplars(seen: _Seen) -> tuple[Exemplar | None, ...]:
    return tuple(None if each is None or not each[0] else Exemplar(*each) for each in seen)
