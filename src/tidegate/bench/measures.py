"""The figures of a report by name: `ttft.p99`, `e2e.sent.p95`, `success`, `cost.mean`, and of a scenario or stage `support_chat:ttft.p99`.

Every name says what it counts in and which way is better, so that assertions and comparisons need no list of their own. A figure that a
report does not have (nothing was measured) is None, never 0.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Final

import msgspec

from tidegate.bench.distribution import Distribution, Latencies
from tidegate.bench.figures import GroupFigures
from tidegate.bench.outcome import Outcome, Reason
from tidegate.bench.run_report import Report
from tidegate.config.problem import did_you_mean
from tidegate.errors import ConfigurationError


class Kind(StrEnum):
    """What a figure counts in."""

    TIME = "time"
    """Seconds."""
    RATIO = "ratio"
    PER_SECOND = "per_second"
    MONEY = "money"
    """Whole units of the currency."""
    COUNT = "count"


class Better(StrEnum):
    LOWER = "lower"
    HIGHER = "higher"
    NEITHER = "neither"


Scalar = Callable[[GroupFigures], float | None]
Source = Callable[[GroupFigures], Distribution | None]


class Measure(msgspec.Struct, frozen=True):
    """One named figure: a scalar, or a statistic of a distribution."""

    path: str
    kind: Kind
    better: Better
    scalar: Scalar
    source: Source | None = None
    quantile: float | None = None
    """Of `source`, when that is what it is."""

    def of(self, group: GroupFigures) -> float | None:
        return self.scalar(group)


QUANTILES: Final[dict[str, float]] = {"p50": 0.5, "p75": 0.75, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
_STATISTICS: Final[dict[str, str]] = {
    "mean": "mean",
    "sd": "sd",
    "min": "least",
    "max": "most",
    **{path: path.replace(".", "") for path in QUANTILES},
}


def find(path: str) -> Measure:
    """Give the measure of a name; ConfigurationError with the nearest name when there is none."""
    measure = MEASURES.get(path)
    if measure is None:
        hint = did_you_mean(path, MEASURES) or f"for instance ttft.p99, e2e.sent.p95, {', '.join(_SCALARS)}"
        raise ConfigurationError(f'there is no metric "{path}"; {hint}')
    return measure


def group_of(report: Report, name: str | None) -> GroupFigures | None:
    """Give the whole run (None), or a scenario or, where none is called so, a stage by its name."""
    if name is None:
        return report.whole
    return next((group for group in (*report.scenarios, *report.stages) if group.name == name), None)


def _ratio_of(count: int, group: GroupFigures) -> float | None:
    return count / group.requests if group.requests else None


def _upstream_retry_ratio(group: GroupFigures) -> float | None:
    return group.tries.upstream_retried / group.tries.upstream_told if group.tries.upstream_told else None


_SCALARS: Final[dict[str, tuple[Kind, Better, Scalar]]] = {
    "success": (Kind.RATIO, Better.HIGHER, lambda group: group.success_ratio),
    "http_success": (Kind.RATIO, Better.HIGHER, lambda group: group.http_success_ratio),
    "goodput": (Kind.PER_SECOND, Better.HIGHER, lambda group: group.rates.good),
    "ok_rate": (Kind.PER_SECOND, Better.HIGHER, lambda group: group.rates.ok),
    "rate": (Kind.PER_SECOND, Better.NEITHER, lambda group: group.rates.sent),
    "rate_ratio": (Kind.RATIO, Better.HIGHER, lambda group: group.rates.sent_ratio),
    "tokens_in": (Kind.PER_SECOND, Better.HIGHER, lambda group: group.rates.tokens_in),
    "tokens_out": (Kind.PER_SECOND, Better.HIGHER, lambda group: group.rates.tokens_out),
    "usage_missing": (Kind.RATIO, Better.LOWER, lambda group: group.tokens.usage_missing_ratio),
    "requests": (Kind.COUNT, Better.NEITHER, lambda group: float(group.requests)),
    "retried": (Kind.RATIO, Better.LOWER, lambda group: _ratio_of(group.tries.retried, group)),
    "upstream_retried": (Kind.RATIO, Better.LOWER, _upstream_retry_ratio),
    "cost.cv": (Kind.RATIO, Better.LOWER, lambda group: None if group.cost is None else group.cost.variation),
    "cost.drift": (Kind.RATIO, Better.NEITHER, lambda group: None if group.cost is None else group.cost.drift_ratio),
    "cost_1k.cv": (Kind.RATIO, Better.LOWER, lambda group: None if group.cost is None else group.cost.variation_1k),
    "cost_1k.drift": (Kind.RATIO, Better.NEITHER, lambda group: None if group.cost is None else group.cost.drift_ratio_1k),
}

_LATENCIES: Final[dict[str, Callable[[GroupFigures], Latencies | None]]] = {
    "ttft": lambda group: group.ttft,
    "e2e": lambda group: group.e2e,
    "failed_ttft": lambda group: group.failed_ttft,
    "failed_e2e": lambda group: group.failed_e2e,
}
"""Each has a part after its name: `due`, which may be left out, or `sent`."""

_DISTRIBUTIONS: Final[dict[str, tuple[Kind, Source]]] = {
    "lag": (Kind.TIME, lambda group: group.lag),
    "tpot": (Kind.TIME, lambda group: group.tpot),
    "itl": (Kind.TIME, lambda group: group.itl_chunk),
    "itl_chunk": (Kind.TIME, lambda group: group.itl_chunk),
    "itl_token": (Kind.TIME, lambda group: group.itl_token),
    "longest_gap": (Kind.TIME, lambda group: group.longest_gap),
    "connect": (Kind.TIME, lambda group: group.connect),
    "queue": (Kind.TIME, lambda group: group.queue),
    "server": (Kind.TIME, lambda group: group.server),
    "cost": (Kind.MONEY, lambda group: None if group.cost is None else group.cost.per_request),
    "cost_1k": (Kind.MONEY, lambda group: None if group.cost is None else group.cost.per_1k_tokens),
}


def _part(latencies_of: Callable[[GroupFigures], Latencies | None], *, sent: bool) -> Source:
    def source(group: GroupFigures) -> Distribution | None:
        latencies = latencies_of(group)
        if latencies is None:
            return None
        return latencies.sent if sent else latencies.due

    return source


def _statistics(name: str, kind: Kind, source: Source) -> list[Measure]:
    def statistic(field: str) -> Scalar:
        def of(group: GroupFigures) -> float | None:
            found = source(group)
            return None if found is None else float(getattr(found, field))

        return of

    return [
        Measure(f"{name}.{suffix}", kind, Better.LOWER, statistic(field), source, QUANTILES.get(suffix))
        for suffix, field in _STATISTICS.items()
    ]


def _share(counts_of: Callable[[GroupFigures], dict[str, int]], name: str) -> Scalar:
    return lambda group: _ratio_of(counts_of(group).get(name, 0), group)


def _all() -> dict[str, Measure]:
    measures = [Measure(path, *parts) for path, parts in _SCALARS.items()]
    for name, latencies_of in _LATENCIES.items():
        for label, sent in (("", False), (".due", False), (".sent", True)):
            measures += _statistics(name + label, Kind.TIME, _part(latencies_of, sent=sent))
    for name, (kind, source) in _DISTRIBUTIONS.items():
        measures += _statistics(name, kind, source)
    for outcome in Outcome:
        if outcome is not Outcome.NOT_SENT:
            better = Better.HIGHER if outcome is Outcome.OK else Better.LOWER
            share = _share(lambda group: group.outcomes, outcome.value)
            measures.append(Measure(f"outcome.{outcome.value}", Kind.RATIO, better, share))
    for reason in Reason:
        share = _share(lambda group: group.reasons, reason.value)
        measures.append(Measure(f"reason.{reason.value}", Kind.RATIO, Better.LOWER, share))
    return {measure.path: measure for measure in measures}


MEASURES: Final[dict[str, Measure]] = _all()
