"""What one worker reports about itself: counts since it started, and levels at one instant.

Counters only grow while the worker lives; levels go up and down. Sums over workers are made with `total`, and the counters of a worker
that ended are kept with `retired`, so that a sum never falls when a worker is replaced.

Flat keys are `<part>.<quantity>`, for example `server.connections`; `tidegate.admin.metrics` says which become metrics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from tidegate.domain.upstream import ReplicaStatus


class RequestTally(msgspec.Struct, frozen=True, gc=False):
    """Finished requests with these four labels."""

    operation: str
    route: str
    upstream: str
    outcome: str
    count: int


class TokenTally(msgspec.Struct, frozen=True, gc=False):
    """Tokens with these labels; `token_class` is `prompt`, `completion` or `cached` (which is part of `prompt`)."""

    route: str
    token_class: str
    evidence: str
    tokens: int


class CostTally(msgspec.Struct, frozen=True, gc=False):
    """Millionths of the price book's currency that requests of one route cost."""

    route: str
    cost_micro: int


class Exemplar(msgspec.Struct, frozen=True, gc=False):
    """One observation of a bucket by name, so that a point on a chart leads to its request."""

    trace_id: str
    value: float
    at: float
    """Seconds since the epoch."""


class Histogram(msgspec.Struct, frozen=True):
    """Observations by bucket. `counts` has one more entry than `bounds`: the values above the last bound."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float = 0.0
    """Sum of the observed values."""
    exemplars: tuple[Exemplar | None, ...] = ()
    """The latest of each bucket, where there is one; empty where none are kept."""

    def plus(self, other: Histogram) -> Histogram:
        """Add two histograms of equal bounds; of two exemplars the later one stays."""
        if self.bounds != other.bounds:
            raise AssertionError("histograms with different bounds cannot be added")
        counts = tuple(mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True))
        return Histogram(self.bounds, counts, self.total + other.total, _later(self.exemplars, other.exemplars))


def _later(left: tuple[Exemplar | None, ...], right: tuple[Exemplar | None, ...]) -> tuple[Exemplar | None, ...]:
    if not left or not right:
        return left or right
    return tuple(
        theirs if mine is None or (theirs is not None and theirs.at > mine.at) else mine for mine, theirs in zip(left, right, strict=True)
    )


class RouteHistograms(msgspec.Struct, frozen=True):
    """The distributions of one route: five of times in seconds, and two of how its tokens flow."""

    route: str
    duration: Histogram
    served: Histogram
    """The part of `duration` that is of requests which were served (`domain.outcome.SERVED`)."""
    ttft: Histogram
    tpot: Histogram
    """Time per output token of an answer, after its first."""
    overhead: Histogram
    prompt_tokens: Histogram
    output_ratio: Histogram
    """Completion tokens of an answer for each token of its prompt."""


class ErrorHistogram(msgspec.Struct, frozen=True):
    """How far one of our figures for prompts (`count` or `estimate`) was from the reported tokens, as a share of those."""

    route: str
    model: str
    figure: str
    errors: Histogram


class RequestStatistics(msgspec.Struct, frozen=True):
    """Everything counted from finished `RequestRecord`s."""

    requests: tuple[RequestTally, ...] = ()
    tokens: tuple[TokenTally, ...] = ()
    histograms: tuple[RouteHistograms, ...] = ()
    costs: tuple[CostTally, ...] = ()


class LimitLevel(msgspec.Struct, frozen=True):
    """How full one limit is for one subject, as the process sees it that asks for leases of it."""

    counter: str
    """Of the rule, and of whom it counts: `tenant-tokens;tenant=acme`."""
    rule: str
    whose: str
    """In words for people."""
    resource: str
    meter: str
    ceiling: int
    left: int
    span_s: int
    """Of its window; 0 for places."""
    is_shadow: bool


class UpstreamStatistics(msgspec.Struct, frozen=True):
    """One upstream as one worker sees it: is it fit to be called, and its connection pool."""

    name: str
    ready: bool
    detail: str = ""
    """Why it is not ready, for people."""
    levels: dict[str, float] = {}
    counters: dict[str, float] = {}
    replicas: tuple[ReplicaStatus, ...] = ()
    """Its replicas; in a sum, once for each worker, since each has breakers of its own."""


class WorkerStatistics(msgspec.Struct, frozen=True):
    """One worker's report, or the sum of several."""

    ready: bool = True
    requests: RequestStatistics = RequestStatistics()
    levels: dict[str, float] = {}
    counters: dict[str, float] = {}
    upstreams: tuple[UpstreamStatistics, ...] = ()
    estimate_errors: tuple[ErrorHistogram, ...] = ()


def fullness(level: LimitLevel) -> float:
    """Give how much of a limit is in use: 0 to 1."""
    return 1.0 - level.left / level.ceiling if level.ceiling else 1.0


def total(reports: Iterable[WorkerStatistics]) -> WorkerStatistics:
    """Sum reports. An upstream is ready when any worker finds it so; the sum is ready when every report is."""
    reports = tuple(reports)
    return WorkerStatistics(
        ready=all(report.ready for report in reports),
        requests=_total_requests(tuple(report.requests for report in reports)),
        levels=_sum(report.levels for report in reports),
        counters=_sum(report.counters for report in reports),
        upstreams=_total_upstreams(reports),
        estimate_errors=_total_errors(report.estimate_errors for report in reports),
    )


def retired(report: WorkerStatistics) -> WorkerStatistics:
    """Keep of an ended worker what must stay in the sums: its counters."""
    upstreams = tuple(UpstreamStatistics(name=each.name, ready=False, counters=each.counters) for each in report.upstreams if each.counters)
    return WorkerStatistics(
        ready=True, requests=report.requests, counters=report.counters, upstreams=upstreams, estimate_errors=report.estimate_errors
    )


def _sum(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for part in parts:
        for key, value in part.items():
            sums[key] = sums.get(key, 0.0) + value
    return sums


def _total_requests(reports: tuple[RequestStatistics, ...]) -> RequestStatistics:
    requests: dict[tuple[str, str, str, str], int] = {}
    tokens: dict[tuple[str, str, str], int] = {}
    histograms: dict[str, RouteHistograms] = {}
    costs: dict[str, int] = {}
    for report in reports:
        for tally in report.requests:
            labels = (tally.operation, tally.route, tally.upstream, tally.outcome)
            requests[labels] = requests.get(labels, 0) + tally.count
        for count in report.tokens:
            kind = (count.route, count.token_class, count.evidence)
            tokens[kind] = tokens.get(kind, 0) + count.tokens
        for one in report.histograms:
            known = histograms.get(one.route)
            histograms[one.route] = one if known is None else _plus(known, one)
        for cost in report.costs:
            costs[cost.route] = costs.get(cost.route, 0) + cost.cost_micro
    return RequestStatistics(
        requests=tuple(RequestTally(*labels, count) for labels, count in sorted(requests.items())),
        tokens=tuple(TokenTally(*kind, count) for kind, count in sorted(tokens.items())),
        histograms=tuple(histograms[route] for route in sorted(histograms)),
        costs=tuple(CostTally(route, cost_micro) for route, cost_micro in sorted(costs.items())),
    )


def _plus(left: RouteHistograms, right: RouteHistograms) -> RouteHistograms:
    return RouteHistograms(
        route=left.route,
        duration=left.duration.plus(right.duration),
        served=left.served.plus(right.served),
        ttft=left.ttft.plus(right.ttft),
        tpot=left.tpot.plus(right.tpot),
        overhead=left.overhead.plus(right.overhead),
        prompt_tokens=left.prompt_tokens.plus(right.prompt_tokens),
        output_ratio=left.output_ratio.plus(right.output_ratio),
    )


def _total_errors(parts: Iterable[Iterable[ErrorHistogram]]) -> tuple[ErrorHistogram, ...]:
    sums: dict[tuple[str, str, str], Histogram] = {}
    for part in parts:
        for one in part:
            key = (one.route, one.model, one.figure)
            sums[key] = sums[key].plus(one.errors) if key in sums else one.errors
    return tuple(ErrorHistogram(*key, sums[key]) for key in sorted(sums))


def _total_upstreams(reports: tuple[WorkerStatistics, ...]) -> tuple[UpstreamStatistics, ...]:
    by_name: dict[str, list[UpstreamStatistics]] = {}
    for report in reports:
        for upstream in report.upstreams:
            by_name.setdefault(upstream.name, []).append(upstream)
    return tuple(
        UpstreamStatistics(
            name=name,
            ready=any(each.ready for each in views),
            detail="" if any(each.ready for each in views) else next((each.detail for each in views if each.detail), ""),
            levels=_sum(each.levels for each in views),
            counters=_sum(each.counters for each in views),
            replicas=tuple(status for each in views for status in each.replicas),
        )
        for name, views in sorted(by_name.items())
    )
