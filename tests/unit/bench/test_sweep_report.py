"""A sweep as one run: its steps in their places, and whether it counts."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.bench.runs import HEALTHY, LENIENT, answer, plan, planned, report, steady_report

from tidegate.bench.histogram import Histogram
from tidegate.bench.outcome import judge
from tidegate.bench.sample import ClientReport
from tidegate.bench.sweep import StepResult, SweepEnd
from tidegate.bench.sweep_report import SweepStep, joined, next_rate, sweep_report, told


def result(rate_per_s: float, *, valid: bool = True, success_ratio: float = 1.0) -> StepResult:
    return StepResult(rate_per_s, rate_per_s, rate_per_s * success_ratio, 0.1, valid, success_ratio)


def step(rate_per_s: float, *, lag_s: float = 0.001, gaps: int = 1) -> SweepStep:
    histogram = Histogram()
    histogram.record_many([0.01] * gaps)
    buckets = {0: histogram.buckets()} if gaps else {}
    requests = [planned(index, due_s=float(index)) for index in range(2)]
    health = msgspec.structs.replace(HEALTHY, loop_lag_p99_s=lag_s)
    samples = [answer(index, due_at=float(index)) for index in range(2)]
    return SweepStep(rate_per_s, plan(requests, length_s=5.0), samples, (ClientReport(health, buckets, buckets),), 1_700_000_000.0)


def test_the_steps_follow_each_other() -> None:
    """Requests are numbered on, moved in time with all their marks, and belong to the stage of their step."""
    whole, samples, _ = joined([step(10.0), step(20.0)])
    assert [("10/s", 0.0, 10.0), ("20/s", 5.0, 20.0)] == [(stage.name, stage.begins_s, stage.rate_per_s) for stage in whole.stages]
    assert [(0, 0.0, 0), (1, 1.0, 0), (2, 5.0, 1), (3, 6.0, 1)] == [(each.index, each.due_s, each.stage) for each in whole.requests]
    moved = list(samples)
    assert [0, 1, 2, 3] == [sample.index for sample in moved]
    assert (6.0, 6.2, 7.0, None) == (moved[3].due_at, moved[3].first_content_at, moved[3].ended_at, moved[3].usage_at)
    assert (10.0, "sweep, 2 rates for 5 s each") == (whole.length_s, whole.load)
    assert [(0.0, 10.0), (5.0, 10.0), (5.0, 20.0), (10.0, 20.0)] == [(point.at_s, point.rate_per_s) for point in whole.curve]


def test_latencies_are_those_of_the_steps() -> None:
    """Moving changes no difference."""
    whole, samples, client_reports = joined([step(10.0), step(20.0)])
    found = report([judge(sample, whole.requests[sample.index], LENIENT) for sample in samples], of=whole)
    assert found.whole.ttft is not None
    assert found.whole.ttft.due.p99 == pytest.approx(0.2)
    assert {0, 1} == set(client_reports[0].chunk_gaps)


def test_what_a_client_says_of_itself_is_its_worst_step() -> None:
    """A sum of what was counted, the greatest of what was measured; gaps only where there were any."""
    _, _, (client,) = joined([step(10.0, lag_s=0.002), step(20.0, lag_s=0.009, gaps=0)])
    assert (0.009, 2, {0}) == (client.health.loop_lag_p99_s, client.health.connections_opened, set(client.token_gaps))


def test_no_rate_above_the_highest_is_tried() -> None:
    """The highest itself is, and that it held is the end."""
    assert 1.0 == next_rate([], first_per_s=1.0, highest_per_s=3.0, ttft_p99_s=None)
    assert 2.0 == next_rate([result(1.0)], first_per_s=1.0, highest_per_s=3.0, ttft_p99_s=None)
    assert 3.0 == next_rate([result(2.0)], first_per_s=1.0, highest_per_s=3.0, ttft_p99_s=None)
    assert 4.0 == next_rate([result(2.0)], first_per_s=1.0, highest_per_s=None, ttft_p99_s=None)
    end = next_rate([result(2.0), result(3.0)], first_per_s=1.0, highest_per_s=3.0, ttft_p99_s=None)
    assert isinstance(end, SweepEnd)
    assert 3.0 == end.saturation_per_s


def test_a_sweep_counts_when_the_step_that_ended_it_does() -> None:
    """A client that could not follow far above what the target holds says nothing against the sweep."""
    history = [result(1.0), result(4.0, valid=False), result(2.0, success_ratio=0.5)]
    of = msgspec.structs.replace(steady_report(), invalid=("the client was slow",))
    assert sweep_report(of, history, SweepEnd(1.0, "1/s held.")).valid
    by_client = sweep_report(of, [result(1.0), result(2.0, valid=False)], SweepEnd(1.0, "1/s held."))
    assert ("the client was slow",) == by_client.invalid
    none_said = sweep_report(steady_report(), [result(2.0, valid=False)], SweepEnd(None, "No rate held."))
    assert ("No rate held.",) == none_said.invalid
    assert sweep_report(steady_report(), [result(2.0)], SweepEnd(2.0, "Every rate held.")).valid
    assert "Every rate held." == sweep_report(steady_report(), [result(2.0)], SweepEnd(2.0, "Every rate held.")).remarks[0]


def test_each_step_is_told_in_a_line() -> None:
    """With the client's failing, if it is that."""
    assert "2/s: sent 2/s, good 2/s, success 100 %, ttft p99 100 ms" == told(result(2.0))
    assert told(result(2.0, valid=False)).endswith("; the client could not follow")
