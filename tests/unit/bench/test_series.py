"""How a run looks over time."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.bench.runs import LENIENT, answer, failure, planned

from tidegate.bench.outcome import Criteria, judge
from tidegate.bench.sample import End
from tidegate.bench.series import MOST_BINS, TimeSeries


def test_each_mark_is_filed_in_its_own_second() -> None:
    """Due, sent and ended of one request are in different bins, and it is in flight between them."""
    series = TimeSeries()
    series.add(judge(answer(due_at=0.9, lag_s=0.2, ttft_s=0.5, e2e_s=2.2), planned(), LENIENT))
    points = series.series().points
    assert [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 0.0), (0.0, 0.0, 1.0)] == [(p.due_per_s, p.sent_per_s, p.ok_per_s) for p in points]
    assert [0, 1, 1, 0] == [point.in_flight for point in points]
    assert [0.0, 0.0, 0.0, 100.0] == [point.tokens_out_per_s for point in points]
    assert [pytest.approx(0.5), None, None, None] == [point.ttft_p99_s for point in points]
    assert "TimeSeries(Bins(4 of 1 s))" == repr(series)


def test_failures_and_goodput_are_told_apart() -> None:
    """An ok answer beyond the SLO is ok, but not good; a failure has no first token here."""
    series = TimeSeries()
    series.add(judge(answer(), planned(), LENIENT))
    series.add(judge(answer(), planned(), Criteria(slo_e2e_s=0.5)))
    series.add(judge(msgspec.structs.replace(failure(end=End.TRUNCATED), first_content_at=0.1), planned(), LENIENT))
    first, second = series.series().points
    assert (1.0, 2.0, 1.0) == (first.failed_per_s, second.ok_per_s, second.good_per_s)
    assert (0.2, 0.2) == (first.ttft_p50_s, first.ttft_p99_s)


def test_what_was_not_sent_was_due_all_the_same() -> None:
    """The gap between due and sent is what an ended run shows."""
    series = TimeSeries()
    series.add(judge(failure(end=End.NOT_SENT, due_at=1.5), planned(), LENIENT))
    assert [(0.0, 0.0, 0), (1.0, 0.0, 0)] == [(p.due_per_s, p.sent_per_s, p.in_flight) for p in series.series().points]


def test_a_long_run_has_wider_bins_and_not_more_of_them() -> None:
    """Four hours are 450 bins of 32 seconds; nothing is lost."""
    series = TimeSeries()
    for hour_s in (0.0, 5_000.0, 14_399.0):
        series.add(judge(answer(due_at=hour_s, e2e_s=0.5), planned(), LENIENT))
    found = series.series()
    assert (32.0, 450) == (found.width_s, len(found.points))
    assert 3.0 == sum(point.due_per_s for point in found.points) * found.width_s


def test_an_instant_out_of_all_bounds_is_in_the_last_bin() -> None:
    """Whatever a clock says, there is an end to the widening."""
    series = TimeSeries()
    series.add(judge(answer(due_at=1e12), planned(), LENIENT))
    series.add(judge(answer(due_at=-5.0), planned(), LENIENT))
    assert MOST_BINS >= len(series.series().points)
