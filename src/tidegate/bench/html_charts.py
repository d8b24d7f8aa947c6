"""What the report draws: how the run went over time, and how latencies and costs are spread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tidegate.bench.distribution import Distribution
from tidegate.bench.figures import GroupFigures
from tidegate.bench.histogram import Histogram
from tidegate.bench.html_page import Chart, Mark, Series
from tidegate.bench.run_report import Report

_QUANTILES: Final = (*(step / 100 for step in range(100)), 0.995, 0.999, 0.9999, 1.0)
"""At which a distribution is drawn: as close as a screen shows, and the tail."""


def over_time(report: Report) -> Iterator[Chart]:
    """Draw the time series."""
    points = report.series.points
    at = tuple(point.at_s for point in points)
    seconds = "seconds from the beginning"

    def line(name: str, values: Iterator[float | None], mark: Mark = Mark.LINE) -> Series:
        return Series(name, at, tuple(values), mark)

    yield Chart(
        "Rate: what the plan followed, and what was done",
        seconds,
        "requests per second",
        (
            *_planned_rate(report),
            line("due", (point.due_per_s for point in points)),
            line("sent", (point.sent_per_s for point in points)),
            line("ok", (point.ok_per_s for point in points)),
        ),
    )
    yield Chart(
        "Outcomes",
        seconds,
        "requests per second",
        (
            line("ok and good", (point.good_per_s for point in points), Mark.BAR),
            line("ok, not good", (point.ok_per_s - point.good_per_s for point in points), Mark.BAR),
            Series("failed", at, tuple(point.failed_per_s for point in points), Mark.BAR, bad=True),
        ),
        stacked=True,
    )
    yield Chart(
        "TTFT by when requests were due",
        seconds,
        "milliseconds",
        (
            line("p50", (_milliseconds(point.ttft_p50_s) for point in points)),
            line("p99", (_milliseconds(point.ttft_p99_s) for point in points)),
        ),
    )
    yield Chart("Under way", seconds, "requests", (line("requests", (float(point.in_flight) for point in points)),))
    yield Chart("Tokens out", seconds, "tokens per second", (line("tokens", (point.tokens_out_per_s for point in points)),))


def _planned_rate(report: Report) -> Iterator[Series]:
    """Draw λ(t): the curve where there is one, else the rates of the stages."""
    if report.curve:
        yield Series("λ(t)", tuple(p.at_s for p in report.curve), tuple(p.rate_per_s for p in report.curve), dashed=True)
        return
    stages = [stage for stage in report.stage_plans if stage.rate_per_s is not None]
    if stages:
        ends = stages[-1].begins_s + stages[-1].length_s
        at = (*(stage.begins_s for stage in stages), ends)
        rates = (*(stage.rate_per_s for stage in stages), stages[-1].rate_per_s)
        yield Series("λ(t)", at, rates, Mark.STEP, dashed=True)


def distributions(whole: GroupFigures) -> Iterator[Chart]:
    """Draw how latencies and costs are spread."""
    for name, latencies in (("TTFT", whole.ttft), ("E2E", whole.e2e)):
        if latencies is not None:
            yield _cumulative(name, "milliseconds", (("from due", latencies.due), ("from sent", latencies.sent)), scale=1000)
    gaps = (("between chunks", whole.itl_chunk), ("per token (ITL)", whole.itl_token), ("mean of a request (TPOT)", whole.tpot))
    measured = tuple((name, found) for name, found in gaps if found is not None)
    if measured:
        yield _cumulative("ITL and TPOT", "milliseconds", measured, scale=1000)
    if whole.cost is not None:
        yield _cumulative("Cost per request", whole.cost.currency or "as reported", (("requests", whole.cost.per_request),), scale=1)


def _cumulative(name: str, unit: str, measured: Sequence[tuple[str, Distribution]], *, scale: float) -> Chart:
    series = []
    for label, found in measured:
        histogram = Histogram(found.buckets)
        values = tuple(scale * histogram.quantile(ratio) for ratio in _QUANTILES)
        series.append(Series(label, values, _QUANTILES))
    return Chart(f"{name}: share of what was at most so much", unit, "share", tuple(series), log_x=True)


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000
