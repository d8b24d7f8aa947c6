"""The figures of a run."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.bench.runs import HEALTHY, LENIENT, answer, failure, plan, planned, steady

from tidegate.bench.figures import MOST_ERRORS, OTHER_ERRORS, Figures
from tidegate.bench.histogram import Histogram
from tidegate.bench.outcome import Criteria, judge
from tidegate.bench.plan import Stage
from tidegate.bench.sample import ClientReport, End, Sample


def close(value: float) -> object:
    """Expect a histogram's quantile."""
    return pytest.approx(value, rel=0.005)


def fed(samples: list[Sample], *, criteria: Criteria = LENIENT) -> Figures:
    figures = Figures(plan())
    for sample in samples:
        figures.add(judge(sample, planned(), criteria))
    return figures


def test_a_steady_run_shows_what_it_was() -> None:
    """A hundred answers of one second, ten a second."""
    figures = Figures(plan())
    steady(figures)
    whole = figures.whole.figures()
    assert (100, 1.0, 1.0, 0) == (whole.requests, whole.success_ratio, whole.http_success_ratio, whole.not_sent)
    assert (close(10.0), close(10.0), close(10.0)) == (whole.rates.sent, whole.rates.ok, whole.rates.good)
    assert whole.ttft is not None
    assert whole.e2e is not None
    assert whole.tpot is not None
    assert [close(0.2), close(1.0), close(0.8 / 99)] == [whole.ttft.due.p99, whole.e2e.due.p50, whole.tpot.mean]
    assert (5_000, 10_000, 0.0) == (whole.tokens.prompt, whole.tokens.completion, whole.tokens.usage_missing_ratio)
    assert "Figures(100 requests, 100 ok)" == repr(figures)


def test_latencies_run_from_due_and_from_sent() -> None:
    """A request that waited in the client waited."""
    whole = fed([answer(due_at=1.0, lag_s=0.5, ttft_s=0.7)]).whole.figures()
    assert whole.ttft is not None
    assert whole.lag is not None
    assert [close(0.7), close(0.2), close(0.5)] == [whole.ttft.due.p50, whole.ttft.sent.p50, whole.lag.p50]


def test_a_stalled_server_shows_in_the_tail() -> None:
    """Of ten seconds it stands still for one: who was due then waited, though each request was answered at once when it was sent."""
    figures = Figures(plan())
    for index in range(1000):
        due_at = index / 100
        waits_s = 5.0 - due_at if 4.0 <= due_at < 5.0 else 0.0
        figures.add(judge(answer(due_at=due_at, ttft_s=waits_s + 0.01, e2e_s=waits_s + 0.02), planned(), LENIENT))
    whole = figures.whole.figures()
    assert whole.ttft is not None
    assert whole.ttft.due.p99 > 0.9
    assert whole.ttft.due.p50 == close(0.01)


def test_failures_have_latencies_of_their_own() -> None:
    """They are in no figure of answers, and never nought."""
    broken = msgspec.structs.replace(failure(end=End.STREAM_ERROR, status=200, took_s=2.0), first_content_at=0.5)
    whole = fed([answer(), broken, failure(took_s=3.0)]).whole.figures()
    assert whole.e2e is not None
    assert whole.failed_e2e is not None
    assert whole.failed_ttft is not None
    assert [1, 2, 1] == [whole.e2e.due.n, whole.failed_e2e.due.n, whole.failed_ttft.due.n]
    assert [close(2.0), close(3.0), close(0.5)] == [whole.failed_e2e.due.least, whole.failed_e2e.due.most, whole.failed_ttft.due.p50]
    assert [pytest.approx(1 / 3), pytest.approx(2 / 3)] == [whole.success_ratio, whole.http_success_ratio]
    assert {"ok": 1, "semantic": 0, "truncated": 0, "stream_error": 1, "http": 0, "transport": 1} == whole.outcomes


def test_late_answers_stay_in_the_latencies_and_short_ones_do_not() -> None:
    """No percentile is cut off at the limit it is judged by."""
    whole = fed([answer(e2e_s=9.0), answer(tokens=1)], criteria=Criteria()).whole.figures()
    assert whole.e2e is not None
    assert (1, close(9.0), 0.0) == (whole.e2e.due.n, whole.e2e.due.most, whole.success_ratio)
    assert {"slow_e2e": 1, "short_output": 1} == whole.reasons


def test_missing_usage_is_told() -> None:
    """Token figures are what was reported, and no more."""
    tokens = fed([answer(), answer(tokens=None)]).whole.figures().tokens
    assert (100, 0.5) == (tokens.completion, tokens.usage_missing_ratio)


def test_tries_are_told_whoever_made_them() -> None:
    """Ours and the server's."""
    tried = msgspec.structs.replace(answer(), tries=3, upstream_tries=2)
    tries = fed([answer(), tried, msgspec.structs.replace(answer(), upstream_tries=1)]).whole.figures().tries
    assert (1, 2, 2, 1, 1) == (tries.retried, tries.retries, tries.upstream_told, tries.upstream_retried, tries.upstream_retries)


def test_what_the_server_says_of_itself_is_kept_apart() -> None:
    """Queue and server time, and the time to connect."""
    whole = fed([msgspec.structs.replace(answer(), queue_s=0.1, server_s=0.9, connected_at=0.01)]).whole.figures()
    found = (whole.queue, whole.server, whole.connect, whole.longest_gap)
    assert [close(0.1), close(0.9), close(0.01), close(0.1)] == [one and one.p50 for one in found]


def test_what_was_not_measured_is_nothing() -> None:
    """Not nought."""
    whole = Figures(plan()).whole.figures()
    latencies = (whole.ttft, whole.e2e, whole.failed_ttft, whole.failed_e2e)
    others = (whole.tpot, whole.itl_chunk, whole.itl_token, whole.longest_gap, whole.connect, whole.queue, whole.server, whole.lag)
    assert {None} == {*latencies, *others, whole.success_ratio, whole.http_success_ratio, whole.tokens.usage_missing_ratio, whole.cost}
    assert None is Figures(plan()).snapshot().lag_p99_s


def test_the_warm_up_is_left_out_of_all_but_the_series() -> None:
    """Its requests are counted, and that is all."""
    figures = Figures(plan(), warm_up_s=2.0)
    steady(figures)
    whole = figures.whole.figures()
    assert (80, 20, close(10.0)) == (whole.requests, figures.warmed_up, whole.rates.sent)
    assert 100.0 == sum(point.due_per_s for point in figures.series().points)


def test_stages_and_scenarios_have_figures_of_their_own() -> None:
    """Each with its own rates; what clients measured by stage is there too."""
    figures = Figures(plan(stages=(Stage("low", 0.0, 5.0), Stage("high", 5.0, 5.0))))
    for index in range(100):
        due_at = index / 10
        request = planned(index, stage=int(due_at >= 5.0), scenario="legal" if index % 4 == 0 else "chat")
        figures.add(judge(answer(due_at=due_at), request, LENIENT))
    gaps = Histogram()
    gaps.record_many([0.01, 0.03])
    figures.add_gaps(ClientReport(HEALTHY, {1: gaps.buckets()}, {0: gaps.buckets()}))
    low, high = figures.stages()
    assert [("low", 50, close(10.0)), ("high", 50, close(10.0))] == [(one.name, one.requests, one.rates.sent) for one in (low, high)]
    assert [("chat", 75), ("legal", 25)] == [(one.name, one.requests) for one in figures.scenarios()]
    assert (None, None) == (low.itl_chunk, high.itl_token)
    assert [2, 2] == [one.n for one in (high.itl_chunk, low.itl_token) if one is not None]


def test_an_ended_run_is_not_asked_for_the_rest() -> None:
    """What was due before its end and was not sent is missing; what came after is not."""
    figures = Figures(plan())
    figures.add(judge(answer(due_at=0.5), planned(), LENIENT))
    figures.end_at(2.0)
    figures.add(judge(failure(end=End.NOT_SENT, due_at=1.0), planned(), LENIENT))
    figures.add(judge(failure(end=End.NOT_SENT, due_at=5.0), planned(), LENIENT))
    whole = figures.whole.figures()
    assert (1, 1, 1, 0.5) == (whole.requests, whole.not_sent, figures.not_asked, whole.rates.sent_ratio)


def test_a_closed_loop_has_no_lag_and_asks_for_nothing() -> None:
    """Requests that it did not get to were never due."""
    figures = Figures(plan(concurrency=2))
    figures.add(judge(answer(lag_s=0.5), planned(), LENIENT))
    figures.add(judge(failure(end=End.NOT_SENT), planned(), LENIENT))
    whole = figures.whole.figures()
    assert (None, 0, 1) == (whole.lag, whole.not_sent, figures.not_asked)


def test_a_snapshot_is_the_same_so_far() -> None:
    """What one sees while it runs is what the report says."""
    figures = fed([msgspec.structs.replace(answer(), cost_micro=5), failure()])
    whole, seen = figures.whole.figures(), figures.snapshot()
    assert (whole.requests, whole.outcomes, 1.0) == (seen.requests, seen.outcomes, seen.rates.ok)
    assert (5, 0.0) == (seen.cost_micro, seen.lag_p99_s)


def test_error_texts_are_counted_and_bounded() -> None:
    """A server that puts an id into each does not fill the memory."""
    figures = fed([failure(error="refused")] * 3 + [failure(error=f"id {index}") for index in range(30)])
    errors = figures.errors()
    assert (MOST_ERRORS + 1, 33, 3) == (len(errors), sum(errors.values()), errors["refused"])
    assert OTHER_ERRORS == next(iter(errors))
