"""What a request is judged to be, and why."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.bench.runs import answer, failure, planned

from tidegate.bench.outcome import Criteria, Outcome, Reason, http_success, judge, tpot_s
from tidegate.bench.sample import End, Sample

DEFAULT = Criteria()


def changed(**members: object) -> Sample:
    """Give the good answer, but for some members."""
    return msgspec.structs.replace(answer(), **members)


def test_a_whole_answer_in_time_is_ok() -> None:
    """Nothing is wrong with it: it counts as success and as goodput."""
    judged = judge(answer(), planned(), DEFAULT)
    assert (Outcome.OK, (), True, True) == (judged.outcome, judged.reasons, judged.good, judged.answered)


@pytest.mark.parametrize(
    ("end", "status", "outcome", "reasons"),
    [
        (End.TRANSPORT, 0, Outcome.TRANSPORT, ()),
        (End.TIMEOUT, 200, Outcome.TRANSPORT, ("timeout",)),
        (End.HTTP_ERROR, 429, Outcome.HTTP, ("status_429",)),
        (End.STREAM_ERROR, 200, Outcome.STREAM_ERROR, ()),
        (End.TRUNCATED, 200, Outcome.TRUNCATED, ()),
        (End.NOT_SENT, 0, Outcome.NOT_SENT, ()),
    ],
)
def test_every_end_has_its_outcome(end: End, status: int, outcome: Outcome, reasons: tuple[str, ...]) -> None:
    """What did not end whole is a failure of its own kind, and no answer."""
    judged = judge(failure(end=end, status=status), planned(), DEFAULT)
    assert (outcome, reasons, False, False) == (judged.outcome, judged.reasons, judged.good, judged.answered)


@pytest.mark.parametrize(
    ("sample", "reason"),
    [
        (answer(tokens=79), Reason.SHORT_OUTPUT),
        (answer(ttft_s=1.6, e2e_s=2.0), Reason.SLOW_TTFT),
        (answer(e2e_s=5.1), Reason.SLOW_E2E),
        (changed(text_faults=("invalid_json",)), Reason.INVALID_JSON),
        (changed(text_faults=("schema_mismatch",)), Reason.SCHEMA_MISMATCH),
        (changed(text_faults=("pattern_missing",)), Reason.PATTERN_MISSING),
        (changed(finish_reason="content_filter"), Reason.CONTENT_FILTER),
    ],
)
def test_a_whole_answer_can_be_of_no_use(sample: Sample, reason: Reason) -> None:
    """Status 200 and a proper end, and still a failure."""
    judged = judge(sample, planned(), DEFAULT)
    assert (Outcome.SEMANTIC, (reason.value,), False) == (judged.outcome, judged.reasons, judged.good)


@pytest.mark.parametrize(
    "sample",
    [answer(tokens=80), answer(ttft_s=1.5, e2e_s=2.0), answer(e2e_s=5.0), changed(finish_reason="length")],
)
def test_the_limits_themselves_are_allowed(sample: Sample) -> None:
    """Only what is beyond a limit fails."""
    assert Outcome.OK is judge(sample, planned(), DEFAULT).outcome


def test_all_that_is_wrong_is_said() -> None:
    """One outcome, several reasons."""
    judged = judge(answer(ttft_s=2.0, e2e_s=6.0, tokens=1), planned(), DEFAULT)
    assert ("short_output", "slow_ttft", "slow_e2e") == judged.reasons


def test_patience_begins_when_the_request_was_due() -> None:
    """A client that sends late does not make a server fast."""
    late = answer(ttft_s=1.6, e2e_s=2.0, lag_s=1.5)
    assert ("slow_ttft",) == judge(late, planned(), DEFAULT).reasons


def test_a_late_answer_is_still_an_answer() -> None:
    """Its latencies stay in; those of an answer that is late and short do not."""
    late, short = answer(e2e_s=6.0), answer(e2e_s=6.0, tokens=1)
    assert [True, False] == [judge(one, planned(), DEFAULT).answered for one in (late, short)]


@pytest.mark.parametrize("finish", ["tool_calls", "function_call"])
def test_a_tool_call_is_as_long_as_it_needs_to_be(finish: str) -> None:
    """Nothing was expected of its length."""
    assert Outcome.OK is judge(changed(completion_tokens=5, finish_reason=finish), planned(), DEFAULT).outcome


def test_nothing_is_short_when_nothing_is_expected() -> None:
    """Neither when the model decides, nor when the criterion is off."""
    free = judge(answer(tokens=1), planned(completion_tokens=None), DEFAULT)
    off = judge(answer(tokens=1), planned(), Criteria(short_ratio=None))
    assert [Outcome.OK, Outcome.OK] == [free.outcome, off.outcome]


def test_without_usage_only_nothing_at_all_is_short() -> None:
    """Chunks are no tokens, but no chunk is no token."""
    assert () == judge(answer(tokens=None), planned(), DEFAULT).reasons
    empty = changed(completion_tokens=None, output_chunks=0, first_content_at=None, last_output_at=None)
    assert ("short_output",) == judge(empty, planned(), DEFAULT).reasons


def test_an_answer_in_one_piece_has_no_first_token() -> None:
    """Its body is not the first output of a stream that took long."""
    judged = judge(answer(ttft_s=4.0, e2e_s=4.0), planned(), Criteria(stream=False, slo_ttft_s=1.0))
    assert (Outcome.OK, None, True) == (judged.outcome, judged.first_at, judged.good)


@pytest.mark.parametrize("slo", [Criteria(slo_ttft_s=0.1), Criteria(slo_e2e_s=0.9), Criteria(slo_tpot_s=0.001)])
def test_an_ok_answer_beyond_the_slo_is_no_goodput(slo: Criteria) -> None:
    """It succeeded, and yet it is not what was promised."""
    judged = judge(answer(), planned(), slo)
    assert (Outcome.OK, False) == (judged.outcome, judged.good)


def test_http_calls_a_broken_stream_a_success() -> None:
    """That is why it is only told beside ours."""
    broken = failure(end=End.STREAM_ERROR, status=200)
    assert [True, False, False] == [http_success(broken), http_success(failure(status=503)), http_success(failure())]


def test_tpot_leaves_the_first_token_out() -> None:
    """99 tokens in the 0.8 s after the first."""
    assert pytest.approx(0.8 / 99) == tpot_s(answer())


@pytest.mark.parametrize(
    "sample",
    [failure(), answer(tokens=None), answer(tokens=1), changed(last_output_at=None), answer(ttft_s=1.0, e2e_s=1.0)],
)
def test_tpot_is_not_invented(sample: Sample) -> None:
    """Without output, usage, a second token, or a second read, there is none."""
    assert tpot_s(sample) is None
