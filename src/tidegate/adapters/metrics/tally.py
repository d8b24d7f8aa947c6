"""Counts finished requests for the metrics, in bounded memory.

Every label value comes from the configuration or from an enum of ours; anything else is counted as `other`, an empty one as `none`
(no route or upstream was reached, no operation asked for). So a client that invents model names adds no series. The counts only grow.
Of the latest observation of each bucket of a time it keeps the trace id: one for a bucket, whatever traffic does.
Called on the request path: one dictionary look-up and a few additions per record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from tidegate.domain.outcome import SERVED, Outcome
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

_EVIDENCE_INDEX: Final = {evidence: index for index, evidence in enumerate(Evidence)}


class _Sight:
    """What an exemplar tells of one record; a bucket of each distribution keeps its latest."""

    __slots__ = ("duration", "ended_at", "overhead", "tpot", "trace_id", "ttft")

    def __init__(self, trace_id: str, duration: float, overhead: float, ended_at: float) -> None:
        self.trace_id = trace_id
        self.duration = duration
        self.overhead = overhead
        self.ttft = 0.0
        self.tpot = 0.0
        self.ended_at = ended_at


class _Distribution:
    """A histogram that grows."""

    __slots__ = ("_bounds", "_counts", "_seen", "_sum")

    def __init__(self, bounds: _Bounds) -> None:
        self._bounds = list(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._seen: list[_Sight | None] = [None] * (len(bounds) + 1)
        """By bucket, its latest observation."""
        self._sum = 0.0

    def add(self, value: float, sight: _Sight | None = None) -> None:
        bounds, bucket, end = self._bounds, 0, len(self._bounds)
        while bucket < end:  # `bisect_left`, which compiled code would have to look up and make an object of the value for
            middle = (bucket + end) // 2
            if bounds[middle] < value:
                bucket = middle + 1
            else:
                end = middle
        self._counts[bucket] += 1
        self._sum += value
        if sight is not None:
            self._seen[bucket] = sight

    def histogram(self, value_of: Callable[[_Sight], float] | None = None) -> Histogram:
        """Show it, with exemplars where `value_of` says which of a record's values is counted here."""
        exemplars = () if value_of is None else tuple(_exemplar(each, value_of) for each in self._seen)
        return Histogram(tuple(self._bounds), tuple(self._counts), self._sum, exemplars)


class _RouteCell:
    """Token counts, cost and distributions of one route."""

    __slots__ = ("cached", "completion", "cost_micro", "duration", "overhead", "prompt", "prompt_size", "ratio", "served", "tpot", "ttft")

    def __init__(self) -> None:
        self.prompt = [0] * len(Evidence)
        self.completion = [0] * len(Evidence)
        self.cached = [0] * len(Evidence)
        self.duration = _Distribution(DURATION_BOUNDS)
        self.served = _Distribution(DURATION_BOUNDS)
        self.ttft = _Distribution(TTFT_BOUNDS)
        self.tpot = _Distribution(TPOT_BOUNDS)
        self.overhead = _Distribution(OVERHEAD_BOUNDS)
        self.prompt_size = _Distribution(PROMPT_BOUNDS)
        self.ratio = _Distribution(RATIO_BOUNDS)
        self.cost_micro = 0


class _Cell:
    """One combination of request labels."""

    __slots__ = ("count", "is_served", "labels", "route")

    def __init__(self, labels: tuple[str, str, str, str], route: _RouteCell) -> None:
        self.labels = labels
        self.route = route
        self.count = 0
        self.is_served = labels[3] in SERVED


class RecordTally:
    """A `Recorder` that keeps only counts."""

    def __init__(self, *, routes: Iterable[str] = (), upstreams: Iterable[str] = ()) -> None:
        # Both tables grow with the configured labels and the enums only.
        self._cells: dict[tuple[str, str, str, str], _Cell] = {}
        self._routes: dict[str, _RouteCell] = {}
        self._known_routes: set[str] = set()
        self._known_upstreams: set[str] = set()
        self._known_operations = frozenset((NONE, *map(str, Operation)))
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
        usage, duration, ttft = record.usage, record.duration_s, record.ttft_s
        overhead = max(duration - record.upstream_s, 0.0)
        sight = _Sight(record.trace_id, duration, overhead, record.started_at + duration)
        route.duration.add(duration, sight)
        if cell.is_served:
            route.served.add(duration)
        route.overhead.add(overhead, sight)
        prompt_tokens, completion_tokens = usage.prompt_tokens, usage.completion_tokens
        if ttft is not None:
            sight.ttft = ttft
            route.ttft.add(ttft, sight)
            if completion_tokens > 1:
                sight.tpot = max(duration - ttft, 0.0) / (completion_tokens - 1)
                route.tpot.add(sight.tpot, sight)
        route.cost_micro += record.cost_micro
        if prompt_tokens or completion_tokens:
            evidence = _EVIDENCE_INDEX[record.evidence]
            route.prompt[evidence] += prompt_tokens
            route.completion[evidence] += completion_tokens
            route.cached[evidence] += usage.cached_tokens
            route.prompt_size.add(float(prompt_tokens))
            # Of whole answers: embeddings have none, and clients that leave cut theirs.
            if prompt_tokens and completion_tokens and record.evidence is Evidence.REPORTED:
                route.ratio.add(completion_tokens / prompt_tokens)

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
    return RouteHistograms(
        route=name,
        duration=route.duration.histogram((lambda sight: sight.duration) if has_exemplars else None),
        served=route.served.histogram(),
        ttft=route.ttft.histogram((lambda sight: sight.ttft) if has_exemplars else None),
        tpot=route.tpot.histogram((lambda sight: sight.tpot) if has_exemplars else None),
        overhead=route.overhead.histogram((lambda sight: sight.overhead) if has_exemplars else None),
        prompt_tokens=route.prompt_size.histogram(),
        output_ratio=route.ratio.histogram(),
    )


def _exemplar(sight: _Sight | None, value_of: Callable[[_Sight], float]) -> Exemplar | None:
    return None if sight is None or not sight.trace_id else Exemplar(sight.trace_id, value_of(sight), sight.ended_at)
