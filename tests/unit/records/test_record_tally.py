"""Counting records: bounded labels, exact sums."""

from __future__ import annotations

from bisect import bisect_left

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.adapters.metrics.tally import (
    DURATION_BOUNDS,
    MAX_EXEMPLAR_ROUTES,
    MAX_LABELS,
    OVERHEAD_BOUNDS,
    PROMPT_BOUNDS,
    RATIO_BOUNDS,
    TPOT_BOUNDS,
    RecordTally,
)
from tidegate.domain.outcome import SERVED, Outcome
from tidegate.domain.record import RequestRecord
from tidegate.domain.statistics import (
    CostTally,
    Exemplar,
    Histogram,
    RequestTally,
    TokenTally,
    UpstreamStatistics,
    WorkerStatistics,
    retired,
    total,
)
from tidegate.domain.usage import Evidence, Usage

PLAIN = RequestRecord(
    request_id="r", started_at=0.0, operation="chat", outcome=Outcome.OK, status=200, duration_s=0.2, route="qwen*", upstream="vllm"
)


def test_invented_names_become_one_series() -> None:
    """10,000 model names chosen by clients leave one series, `other`."""
    tally = RecordTally(routes=["qwen*"], upstreams=["vllm"])
    for number in range(10_000):
        tally.record(
            msgspec.structs.replace(PLAIN, route=f"model-{number}", upstream=f"up-{number}", model=f"m-{number}", tenant=f"t-{number}")
        )
    statistics = tally.statistics()
    assert statistics.requests == (RequestTally("chat", "other", "other", "ok", 10_000),)
    assert [each.route for each in statistics.histograms] == ["other"]


def test_invented_operations_become_other() -> None:
    """Every label is bounded, not only the route."""
    tally = RecordTally()
    tally.record(msgspec.structs.replace(PLAIN, operation="rm -rf", route="", upstream=""))
    assert tally.statistics().requests == (RequestTally("other", "none", "none", "ok", 1),)


def test_what_asked_for_nothing_is_no_invented_operation() -> None:
    """An unknown path has a label of its own."""
    tally = RecordTally()
    tally.record(msgspec.structs.replace(PLAIN, operation="none", route="", upstream="", outcome=Outcome.REJECTED_INVALID))
    assert tally.statistics().requests == (RequestTally("none", "none", "none", "rejected_invalid", 1),)


def test_configured_labels_are_kept_apart() -> None:
    """Routes, upstreams and outcomes of the configuration have their own series."""
    tally = RecordTally(routes=["qwen*"], upstreams=["vllm"])
    tally.record(PLAIN)
    tally.record(msgspec.structs.replace(PLAIN, outcome=Outcome.FAILED_TIMEOUT))
    tally.record(PLAIN)
    assert set(tally.statistics().requests) == {
        RequestTally("chat", "qwen*", "vllm", "ok", 2),
        RequestTally("chat", "qwen*", "vllm", "failed_timeout", 1),
    }


def test_a_reload_adds_labels_and_keeps_the_old() -> None:
    """Counters of a route that is gone do not move to another series."""
    tally = RecordTally(routes=["old"], upstreams=["vllm"])
    tally.record(msgspec.structs.replace(PLAIN, route="old"))
    tally.record(msgspec.structs.replace(PLAIN, route="fresh"))
    tally.allow(routes=["fresh"], upstreams=[])
    tally.record(msgspec.structs.replace(PLAIN, route="fresh"))
    assert {each.route: each.count for each in tally.statistics().requests} == {"old": 1, "other": 1, "fresh": 1}


def test_even_configured_labels_are_bounded() -> None:
    """Many reloads with ever different routes cannot grow the tables without end."""
    tally = RecordTally()
    for number in range(MAX_LABELS + 100):
        tally.allow(routes=[f"route-{number}"], upstreams=[])
        tally.record(msgspec.structs.replace(PLAIN, route=f"route-{number}", upstream=""))
    assert len(tally.statistics().requests) == MAX_LABELS + 1


@given(usages=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 10_000), st.sampled_from(Evidence))))
def test_tokens_add_up(usages: list[tuple[int, int, Evidence]]) -> None:
    """Law: the sum over classes and evidence is the sum of what the records say."""
    tally = RecordTally(routes=["qwen*"], upstreams=["vllm"])
    for prompt, completion, evidence in usages:
        tally.record(msgspec.structs.replace(PLAIN, usage=Usage(prompt_tokens=prompt, completion_tokens=completion), evidence=evidence))
    tokens = tally.statistics().tokens
    assert sum(each.tokens for each in tokens) == sum(prompt + completion for prompt, completion, _ in usages)
    for evidence in Evidence:
        expected = sum(prompt for prompt, _, known in usages if known is evidence)
        assert sum(each.tokens for each in tokens if each.evidence == evidence and each.token_class == "prompt") == expected


@given(durations=st.lists(st.floats(0, 1e4)))
def test_every_observation_is_in_one_bucket(durations: list[float]) -> None:
    """Law: bucket counts sum to the number of records, and the sum is the sum."""
    tally = RecordTally(routes=["qwen*"], upstreams=["vllm"])
    for duration in durations:
        tally.record(msgspec.structs.replace(PLAIN, duration_s=duration))
    for histograms in tally.statistics().histograms:
        assert sum(histograms.duration.counts) == len(durations)
        assert histograms.duration.total == pytest.approx(sum(durations))
        assert sum(histograms.ttft.counts) == 0


def test_overhead_is_what_neither_client_nor_upstream_waited_for() -> None:
    """Overhead is the request's time less the time an attempt ran, never negative; a value on a bound is inside it."""
    tally = RecordTally(routes=["qwen*"], upstreams=["vllm"])
    tally.record(msgspec.structs.replace(PLAIN, duration_s=1.0005, upstream_s=1.0))
    tally.record(msgspec.structs.replace(PLAIN, duration_s=1.0, upstream_s=1.1))
    (histograms,) = tally.statistics().histograms
    assert histograms.overhead.counts[0] == 1
    assert sum(histograms.overhead.counts[: OVERHEAD_BOUNDS.index(0.001) + 1]) == 2


def _tallied(*records: RequestRecord) -> RecordTally:
    tally = RecordTally(routes=["qwen*"], upstreams=["vllm"])
    for record in records:
        tally.record(record)
    return tally


def test_time_per_token_is_of_streams_of_two_tokens_or_more() -> None:
    """What is left after the first token, shared among the others; one token has no such time, and clocks may disagree by a hair."""
    stream = msgspec.structs.replace(PLAIN, stream=True, duration_s=1.0, ttft_s=0.4, usage=Usage(completion_tokens=31))
    tally = _tallied(
        stream,
        msgspec.structs.replace(stream, usage=Usage(completion_tokens=1)),
        msgspec.structs.replace(stream, ttft_s=None),
        msgspec.structs.replace(stream, ttft_s=1.1),
    )
    (histograms,) = tally.statistics().histograms
    assert (1, 1, 2) == (histograms.tpot.counts[TPOT_BOUNDS.index(0.02)], histograms.tpot.counts[0], sum(histograms.tpot.counts))
    assert histograms.tpot.total == pytest.approx(0.02)


def test_each_bucket_names_its_latest_request() -> None:
    """By trace id, value and end; a request without a trace has no name to give, and takes none away from the other buckets."""
    named = [
        msgspec.structs.replace(PLAIN, started_at=at, duration_s=took, trace_id=f"{at:g}") for at, took in ((1, 0.2), (2, 0.2), (3, 7.0))
    ]
    tally = _tallied(*named, msgspec.structs.replace(PLAIN, duration_s=1000.0))
    (histograms,) = tally.statistics().histograms
    expected = {DURATION_BOUNDS.index(0.25): Exemplar("2", 0.2, 2.2), DURATION_BOUNDS.index(10.0): Exemplar("3", 7.0, 10.0)}
    assert expected == {bucket: each for bucket, each in enumerate(histograms.duration.exemplars) if each is not None}


def test_exemplars_are_of_some_routes() -> None:
    """Of the first that were used, so that a worker's report stays short."""
    tally = RecordTally(routes=[f"{number}" for number in range(MAX_EXEMPLAR_ROUTES + 5)])
    for number in range(MAX_EXEMPLAR_ROUTES + 5):
        tally.record(msgspec.structs.replace(PLAIN, route=f"{number}", trace_id="a"))
    with_exemplars = [each.route for each in tally.statistics().histograms if any(each.duration.exemplars)]
    assert [f"{number}" for number in range(MAX_EXEMPLAR_ROUTES)] == with_exemplars


def test_the_exemplars_of_many_requests_are_one_for_a_bucket() -> None:
    """However many requests there are."""
    tally = _tallied(*(msgspec.structs.replace(PLAIN, duration_s=0.001 * number, trace_id=f"{number}") for number in range(5_000)))
    (histograms,) = tally.statistics().histograms
    assert len(DURATION_BOUNDS) + 1 == len(histograms.duration.exemplars)


@given(ages=st.lists(st.tuples(st.none() | st.floats(0, 9), st.none() | st.floats(0, 9)), min_size=2, max_size=2))
def test_of_two_workers_the_later_exemplar_is_shown(ages: list[tuple[float | None, float | None]]) -> None:
    """Law: by bucket, the later of both, the only one, or none; adding a histogram that keeps none changes nothing."""
    one, two = (
        Histogram((1.0,), (1, 1), 2.0, tuple(None if pair[side] is None else Exemplar(f"{side}", 0.5, pair[side] or 0.0) for pair in ages))
        for side in (0, 1)
    )
    for pair, chosen in zip(ages, one.plus(two).exemplars, strict=True):
        assert max((at for at in pair if at is not None), default=None) == (None if chosen is None else chosen.at)
    bare = Histogram((1.0,), (1, 1), 2.0)
    assert one.exemplars == one.plus(bare).exemplars == bare.plus(one).exemplars


def test_prompts_are_counted_by_size() -> None:
    """A prompt of 50,000 tokens is not yet long, one more is; requests that reached no model have no size."""
    sizes = (50_000, 50_001, 3)
    tally = _tallied(PLAIN, *(msgspec.structs.replace(PLAIN, usage=Usage(prompt_tokens=size)) for size in sizes))
    (histograms,) = tally.statistics().histograms
    up_to_long = PROMPT_BOUNDS.index(50_000) + 1
    assert (2, 1) == (sum(histograms.prompt_tokens.counts[:up_to_long]), sum(histograms.prompt_tokens.counts[up_to_long:]))
    assert sum(sizes) == histograms.prompt_tokens.total


def test_times_of_served_requests_are_counted_apart() -> None:
    """A thousand refusals in no time do not make answers look fast; those whose client left were served."""
    tally = RecordTally(routes=["qwen*"], upstreams=["vllm"])
    for outcome in Outcome:
        tally.record(msgspec.structs.replace(PLAIN, outcome=outcome, duration_s=2.0 if outcome in SERVED else 0.001))
    report = WorkerStatistics(requests=tally.statistics())
    [histograms] = report.requests.histograms
    assert (len(Outcome), len(SERVED)) == (sum(histograms.duration.counts), histograms.served.counts[bisect_left(DURATION_BOUNDS, 2.0)])
    assert 2.0 * len(SERVED) == histograms.served.total
    [both] = total([report, report]).requests.histograms
    assert 2 * len(SERVED) == sum(both.served.counts)


def test_the_output_ratio_is_of_whole_answers() -> None:
    """Only what an upstream reported of prompt and answer counts: not embeddings, and not answers whose client left."""
    usage = Usage(prompt_tokens=100, completion_tokens=10)
    reported = msgspec.structs.replace(PLAIN, usage=usage, evidence=Evidence.REPORTED)
    tally = _tallied(
        reported,
        msgspec.structs.replace(reported, evidence=Evidence.COUNTED),
        msgspec.structs.replace(reported, usage=Usage(prompt_tokens=100)),
        msgspec.structs.replace(reported, usage=Usage(completion_tokens=10)),
    )
    (histograms,) = tally.statistics().histograms
    assert 1 == histograms.output_ratio.counts[RATIO_BOUNDS.index(0.1)] == sum(histograms.output_ratio.counts)
    assert histograms.output_ratio.total == pytest.approx(0.1)


def test_costs_add_up_by_route() -> None:
    """What the records say was spent is the sum, over records and over workers."""
    spent = msgspec.structs.replace(PLAIN, usage=Usage(prompt_tokens=1), cost_micro=40)
    report = WorkerStatistics(requests=_tallied(spent, msgspec.structs.replace(PLAIN, cost_micro=2)).statistics())
    assert (CostTally("qwen*", 42),) == report.requests.costs
    assert (CostTally("qwen*", 84),) == total([report, report]).requests.costs


def test_reports_of_workers_are_summed() -> None:
    """Counts of equal labels and histograms add; an upstream is ready when one worker can use it."""
    tally = RecordTally(routes=["qwen*"], upstreams=["vllm"])
    tally.record(msgspec.structs.replace(PLAIN, usage=Usage(prompt_tokens=3), evidence=Evidence.REPORTED))
    up = UpstreamStatistics(name="vllm", ready=True, levels={"connections_open": 2})
    down = UpstreamStatistics(name="vllm", ready=False, detail="refused", levels={"connections_open": 1})
    one = WorkerStatistics(requests=tally.statistics(), levels={"server.connections_open": 3}, upstreams=(up,))
    two = WorkerStatistics(ready=False, requests=tally.statistics(), levels={"server.connections_open": 4}, upstreams=(down,))
    both = total([one, two])
    assert both.requests.requests == (RequestTally("chat", "qwen*", "vllm", "ok", 2),)
    assert both.requests.tokens == (TokenTally("qwen*", "prompt", "reported", 6),)
    assert sum(both.requests.histograms[0].duration.counts) == 2
    assert (both.ready, both.levels) == (False, {"server.connections_open": 7})
    assert both.upstreams == (UpstreamStatistics(name="vllm", ready=True, levels={"connections_open": 3}),)


def test_an_ended_worker_leaves_its_counters_only() -> None:
    """After a worker is replaced, sums of counters do not fall and levels do not linger."""
    pool = UpstreamStatistics(name="vllm", ready=True, levels={"connections_open": 2}, counters={"requests": 5})
    report = WorkerStatistics(levels={"server.connections_open": 3}, counters={"server.requests": 9}, upstreams=(pool,))
    kept = retired(report)
    assert (kept.levels, kept.counters) == ({}, {"server.requests": 9})
    assert kept.upstreams == (UpstreamStatistics(name="vllm", ready=False, counters={"requests": 5}),)


def test_histograms_of_different_bounds_do_not_add() -> None:
    """Adding them would give nonsense silently."""
    with pytest.raises(AssertionError):
        Histogram((1.0,), (0, 0)).plus(Histogram((2.0,), (0, 0)))
