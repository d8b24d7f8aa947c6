"""What a run must keep, in words that are read and judged."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.bench.runs import HEALTHY, LENIENT, answer, failure, planned, report, steady_report

from tidegate.bench.assertions import figure_text, judge_assertion, parse_assertion
from tidegate.bench.measures import MEASURES, Kind
from tidegate.bench.outcome import Criteria, judge
from tidegate.errors import ConfigurationError


def holds(text: str) -> bool:
    """Judge a run of 100 requests with one failure, first tokens after 0.2 s, ends after 1 s."""
    return judge_assertion(parse_assertion(text), steady_report(failures=1)).holds


@pytest.mark.parametrize(
    "text",
    [
        "ttft.p99<500ms",
        "ttft.p99 <= 0.5 s",
        "ttft.sent.p99<500000us",
        "ttft.due.p50>100000µs",
        "e2e.p99.9<1.1s",
        "tpot.mean<9ms",
        "success>=99%",
        "success==0.99",
        "success<99.1%",
        "http_success<100%",
        "goodput>9/s",
        "ok_rate>9",
        "rate==10/s",
        "rate_ratio>=98%",
        "tokens_in>450",
        "tokens_out>900/s",
        "usage_missing==0",
        "requests==100",
        "retried<=0%",
        "outcome.transport<=1%",
        "outcome.semantic<=0",
        "outcome.ok>0.98",
        "reason.slow_ttft<0.1%",
        "failed_e2e.min>299ms",
        "longest_gap.max<=0.1s",
        "lag.p99<5ms",
        "chat:ttft.p99<500ms",
        "steady:success>=99%",
        "valid",
        " validity ",
    ],
)
def test_it_holds(text: str) -> None:
    """Every metric, operator and unit of the grammar."""
    assert holds(text)


@pytest.mark.parametrize(
    "text", ["ttft.p99<100ms", "success>=99.1%", "goodput>11/s", "requests<100", "rate==9/s", "outcome.transport<1%", "ttft.p50>1s"]
)
def test_it_does_not_hold(text: str) -> None:
    """And the run fails."""
    assert not holds(text)


@pytest.mark.parametrize(
    "text", ["itl.p99<1s", "cost.mean<1", "cost.cv<1", "cost.drift<1", "cost_1k.cv<1", "cost_1k.drift<1", "queue.p50<1s"]
)
def test_what_was_not_measured_does_not_hold(text: str) -> None:
    """No news is not good news."""
    verdict = judge_assertion(parse_assertion(text), steady_report())
    assert not verdict.holds
    assert "was not measured" in verdict.explanation


def test_costs_and_retries_can_be_asserted() -> None:
    """In units of the currency, and in shares."""
    sample = msgspec.structs.replace(answer(), cost_micro=2_000, tries=2, upstream_tries=2)
    run = report([judge(sample, planned(), LENIENT)])
    texts = (
        "cost.mean<=0.0021",
        "cost.max==0.002",
        "cost_1k.mean>0.013",
        "cost.cv<1%",
        "cost_1k.cv<1%",
        "retried==1",
        "upstream_retried==100%",
    )
    assert [True] * len(texts) == [judge_assertion(parse_assertion(text), run).holds for text in texts]


def test_99_9_per_cent_is_999_of_a_thousand() -> None:
    """Not a millionth of a millionth more."""
    judged = [judge(answer() if index else failure(), planned(), LENIENT) for index in range(1000)]
    assert judge_assertion(parse_assertion("success>=99.9%"), report(judged)).holds


def test_reasons_are_shares_of_requests() -> None:
    """One of two was late."""
    run = report([judge(answer(e2e_s=e2e_s), planned(), Criteria()) for e2e_s in (1.0, 6.0)])
    assert judge_assertion(parse_assertion("reason.slow_e2e==50%"), run).holds


def test_the_explanation_says_what_was_found() -> None:
    """With the figure, or why there is none."""
    run = steady_report(failures=1)
    found = [judge_assertion(parse_assertion(text), run).explanation for text in ("success>=99.9%", "valid", "nobody:success>1%")]
    assert ["success is 99 %", "the run is valid", 'no scenario or stage is called "nobody"'] == found


def test_an_invalid_run_does_not_hold_to_valid() -> None:
    """And says why."""
    run = report([judge(answer(), planned(), LENIENT)], health=msgspec.structs.replace(HEALTHY, loop_lag_max_s=0.5))
    verdict = judge_assertion(parse_assertion("valid"), run)
    assert (False, True) == (verdict.holds, "stood still" in verdict.explanation)


def test_an_empty_run_holds_to_nothing() -> None:
    """There are no shares of nothing."""
    verdicts = [
        judge_assertion(parse_assertion(text), report([])).holds for text in ("outcome.ok>=0", "retried<=1", "success>=0", "rate>=0")
    ]
    assert [False] * 4 == verdicts


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tfft.p99<1s", 'there is no metric "tfft.p99"; did you mean "ttft.p99"?'),
        ("zzzzzz<1", "for instance ttft.p99, e2e.sent.p95, success"),
        ("ttft.p99<500", 'has no unit, but ttft.p99 counts in "s" or "ms" or "us"'),
        ("success>99ms", 'has the unit "ms", but success counts in "%" or no unit'),
        ("ttft.p99", "cannot be read; write it like"),
        ("ttft.p99=<1s", "cannot be read"),
        ("", "cannot be read"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_words(text: str, words: str) -> None:
    """Before anything is sent anywhere."""
    with pytest.raises(ConfigurationError) as caught:
        parse_assertion(text)
    assert words in caught.value.message


def test_a_scenario_that_there_will_not_be_is_refused() -> None:
    """When the plan is known, so are the names."""
    assert "chat" == parse_assertion("chat:success>1%", groups=("chat", "legal")).group
    with pytest.raises(ConfigurationError, match='did you mean "legal"'):
        parse_assertion("legl:success>1%", groups=("chat", "legal"))
    with pytest.raises(ConfigurationError, match="there are chat, legal"):
        parse_assertion("zzz:success>1%", groups=("chat", "legal"))


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (0.0123, Kind.TIME, "12.3 ms"),
        (2.5, Kind.TIME, "2.500 s"),
        (0.9987, Kind.RATIO, "99.87 %"),
        (12.34, Kind.PER_SECOND, "12.34/s"),
        (0.00012, Kind.MONEY, "0.00012"),
        (100.0, Kind.COUNT, "100"),
    ],
)
def test_figures_are_written_in_their_unit(value: float, kind: Kind, text: str) -> None:
    """As they are asserted."""
    assert text == figure_text(value, kind)


def test_every_metric_can_be_asked_of_every_report() -> None:
    """None is a number or nothing, and nothing raises."""
    run = steady_report()
    assert {float, type(None)} == {type(measure.of(run.whole)) for measure in MEASURES.values()}
