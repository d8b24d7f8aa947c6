"""Two runs side by side: what changed, and whether that is more than noise.

How far a figure is off by chance alone is estimated from the run itself, without drawing anything again (95 % half-widths):

* a quantile by order statistics: the values at ranks n·q ± 1.96·√(n·q·(1-q)) of its histogram enclose it;
* a mean by 1.96·sd/√n, a standard deviation by 1.96·sd/√2n;
* a share by the binomial distribution (Agresti and Coull 1998);
* a rate by the spread of the bins of the time series within the load, 1.96·sd/√bins (of a load that changes over time that is too much).

Requests are not independent: queues have memory, and a machine has bad seconds. So n is divided by how much more the mean latencies of
the bins differ than those of independent requests would (the design effect, never below 1), and of gaps between tokens only one counts for
each answer. Of simulated pairs of alike runs with 200 requests each, about 6 in 100 means and medians seem to differ then (of the means a
third would without the effect), and 10 in 100 p99s, whose ranks end at the most there is. What differs from run to run but not within one
is not seen: repeat a run to know that. The noise of a difference is the root of both squares, and a change below `RESOLUTION` is never
called one: the histograms see no finer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import StrEnum
from statistics import stdev
from typing import Final

import msgspec

from tidegate.bench.distribution import Distribution
from tidegate.bench.histogram import Histogram
from tidegate.bench.measures import Better, Kind, Measure, find
from tidegate.bench.run_report import Report
from tidegate.bench.series import SeriesPoint

HEADLINES: Final = (
    *("success", "goodput", "rate", "tokens_out", "ttft.mean", "ttft.p50", "ttft.p95", "ttft.p99", "ttft.sent.p99"),
    *("itl.p50", "itl.p99", "tpot.mean", "tpot.p99", "e2e.mean", "e2e.p50", "e2e.p95", "e2e.p99", "e2e.sent.p99"),
    *("outcome.semantic", "cost.mean", "cost_1k.mean"),
)
"""What a comparison shows, in this order."""
RESOLUTION: Final = 0.01
"""Twice the error of a histogram's quantile, as a share."""
_Z: Final = 1.96
_RATES: Final[dict[str, Callable[[SeriesPoint], float]]] = {
    "goodput": lambda point: point.good_per_s,
    "ok_rate": lambda point: point.ok_per_s,
    "rate": lambda point: point.sent_per_s,
    "tokens_out": lambda point: point.tokens_out_per_s,
}


class Change(StrEnum):
    BETTER = "better"
    WORSE = "worse"
    SAME = "same"
    """Within the noise."""
    DIFFERENT = "different"
    """More than noise, and neither way is better."""
    UNKNOWN = "unknown"
    """One of the two was not measured."""


class Row(msgspec.Struct, frozen=True):
    """One figure of two runs."""

    path: str
    kind: Kind
    before: float | None
    after: float | None
    noise: float | None
    """How large a difference chance alone may make. None: not known, then any change beyond the resolution counts."""
    change: Change

    @property
    def difference(self) -> float | None:
        return None if self.before is None or self.after is None else self.after - self.before

    @property
    def change_ratio(self) -> float | None:
        """Give the difference as a share of what was before."""
        difference = self.difference
        return None if difference is None or not self.before else difference / abs(self.before)


class Comparison(msgspec.Struct, frozen=True):
    """Two runs. With `obstacles` the rows are there, but compare apples with pears."""

    obstacles: tuple[str, ...]
    rows: tuple[Row, ...]


class Likeness(msgspec.Struct, frozen=True):
    """What two runs must have in common to be compared. Whom they asked, and the seed, may differ."""

    load: str
    endpoint: str
    stream: bool
    warm_up_s: float
    criteria: tuple[float | None, ...]


class Measured(msgspec.Struct, frozen=True):
    """A figure with its own noise."""

    value: float
    noise: float | None = None


def likeness(report: Report) -> Likeness:
    target, criteria = report.target, report.criteria
    limits = (
        *(criteria.short_ratio, criteria.ttft_s, criteria.e2e_s),
        *(criteria.slo_ttft_s, criteria.slo_tpot_s, criteria.slo_e2e_s),
    )
    return Likeness(report.load, target.endpoint, target.stream, report.warm_up_s, limits)


def obstacles(before: Likeness, after: Likeness) -> tuple[str, ...]:
    """Give, in words, why two runs cannot be compared; none when they can."""
    found: list[str] = []
    if before.load != after.load:
        found.append(f"the loads differ: {before.load} and {after.load}")
    if before.endpoint != after.endpoint:
        found.append(f"the endpoints differ: {before.endpoint} and {after.endpoint}")
    if before.stream != after.stream:
        found.append("one run asked for streams and the other did not")
    if before.warm_up_s != after.warm_up_s:
        found.append(f"the warm-ups differ: {before.warm_up_s:g} s and {after.warm_up_s:g} s")
    if before.criteria != after.criteria:
        found.append("the runs judged answers by different limits")
    return tuple(found)


def compare(before: Report, after: Report) -> Comparison:
    """Put two reports side by side."""
    found = list(obstacles(likeness(before), likeness(after)))
    for name, report in (("first", before), ("second", after)):
        if not report.valid:
            found.append(f"the {name} run is invalid: {'; '.join(report.invalid)}")
        if report.interrupted_s is not None:
            found.append(f"the {name} run was interrupted")
    old, new = measured(before, HEADLINES), measured(after, HEADLINES)
    rows = tuple(row(find(path), old.get(path), new.get(path)) for path in HEADLINES if path in old or path in new)
    return Comparison(tuple(found), rows)


def measured(report: Report, paths: tuple[str, ...]) -> dict[str, Measured]:
    """Give those of the figures of a whole run that it has, with their noise."""
    figures: dict[str, Measured] = {}
    for path in paths:
        measure = find(path)
        value = measure.of(report.whole)
        if value is not None:
            figures[path] = Measured(value, noise_of(measure, report))
    return figures


def row(measure: Measure, before: Measured | None, after: Measured | None) -> Row:
    """Judge a change of one figure."""
    if before is None or after is None:
        values = (None if before is None else before.value, None if after is None else after.value)
        return Row(measure.path, measure.kind, *values, None, Change.UNKNOWN)
    parts = [noise for noise in (before.noise, after.noise) if noise is not None]
    noise = math.hypot(*parts) if len(parts) > 1 else None
    least = max(noise or 0.0, RESOLUTION * max(abs(before.value), abs(after.value)) if measure.kind is not Kind.RATIO else 0.0)
    difference = after.value - before.value
    if abs(difference) <= least:
        change = Change.SAME
    elif measure.better is Better.NEITHER:
        change = Change.DIFFERENT
    else:
        change = Change.BETTER if (difference > 0) is (measure.better is Better.HIGHER) else Change.WORSE
    return Row(measure.path, measure.kind, before.value, after.value, noise, change)


def noise_of(measure: Measure, report: Report) -> float | None:
    """Estimate the 95 % half-width of a figure of a whole run; None where there is no way to."""
    group = report.whole
    source = None if measure.source is None else measure.source(group)
    if source is not None:
        return _statistic_noise(measure, source, _independent(source.n, report))
    value = measure.of(group)
    if value is not None and (measure.path == "success" or measure.path.startswith(("outcome.", "reason."))):
        return _share_noise(value, group.requests)
    rate = _RATES.get(measure.path)
    return None if rate is None else _rate_noise([rate(point) for point in _within(report)])


def _independent(n: int, report: Report) -> float:
    """Give how many independent measurements n of them are worth, at least 1."""
    answers = report.whole.e2e
    if answers is None:
        return float(n)
    bins = [(point.answers, point.e2e_mean_s) for point in _within(report) if point.e2e_mean_s is not None]
    variance = answers.due.sd**2
    effect = 1.0
    if len(bins) > 1 and variance > 0.0:
        mean = math.fsum(count * bin_mean for count, bin_mean in bins) / sum(count for count, _ in bins)
        between = math.fsum(count * (bin_mean - mean) ** 2 for count, bin_mean in bins) / (len(bins) - 1)
        effect = max(1.0, between / variance)
    return max(1.0, min(n, answers.due.n) / effect)


def _statistic_noise(measure: Measure, source: Distribution, n: float) -> float | None:
    if measure.quantile is not None:
        q = measure.quantile
        spread = _Z * math.sqrt(q * (1.0 - q) / n)
        values = Histogram(source.buckets)
        return (values.quantile(min(1.0, q + spread)) - values.quantile(max(0.0, q - spread))) / 2.0
    if measure.path.endswith(".mean"):
        return _Z * source.sd / math.sqrt(n)
    if measure.path.endswith(".sd"):
        return _Z * source.sd / math.sqrt(2 * n)
    return None


def _share_noise(share: float, n: int) -> float:
    """Give the half-width after Agresti and Coull: two successes and two failures more keep it from being 0 at the ends."""
    adjusted = (min(1.0, max(0.0, share)) * n + 2.0) / (n + 4.0)  # of a report that is read it may be anything
    return _Z * math.sqrt(adjusted * (1.0 - adjusted) / (n + 4.0))


def _within(report: Report) -> list[SeriesPoint]:
    """Give the bins that lie within the time of the load as a whole."""
    width_s = report.series.width_s
    return [point for point in report.series.points if point.at_s >= report.warm_up_s and point.at_s + width_s <= report.length_s]


def _rate_noise(values: list[float]) -> float | None:
    """Give that of the mean over bins; one bin has no spread."""
    return _Z * stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
