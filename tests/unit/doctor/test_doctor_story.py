"""One request, from its record to what became of it, where its time went, and what to do."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.analytics.rows import Row, request_rows
from tidegate.doctor.outcomes import OUTCOMES
from tidegate.doctor.story import Story, explain
from tidegate.domain.outcome import Outcome
from tidegate.domain.record import AttemptRecord, RequestRecord
from tidegate.domain.usage import Evidence, Usage

OK = RequestRecord("req-1", 1_793_780_000.0, "chat", Outcome.OK, 200, 2.0, finish_reason="stop")


def told(record: RequestRecord, samples: tuple[Row, ...] = ()) -> Story:
    rows = request_rows(msgspec.json.encode(record), node="", source="", offset=0)
    assert rows is not None
    return explain(rows["requests"][0], rows["attempts"], samples)


def change(**changes: object) -> RequestRecord:
    return msgspec.structs.replace(OK, **changes)


def test_every_outcome_has_its_sentence() -> None:
    """And where it is a failure, what to do and the command that shows more."""
    assert set(Outcome) == set(OUTCOMES)
    failures = [outcome for outcome in Outcome if outcome.startswith(("failed_", "rejected_"))]
    assert all(OUTCOMES[outcome].command for outcome in failures)


@pytest.mark.parametrize(
    ("first_token_s", "expected"),
    [(None, "a/0: no connection, or one that broke after 2.0 s."), (0.5, "a/0: its answer broke off after 2.0 s.")],
)
def test_a_connection_that_broke_says_whether_the_answer_had_begun(first_token_s: float | None, expected: str) -> None:
    """The one is looked for in the network, the other at the model server."""
    assert (expected,) == told(change(attempts=(AttemptRecord(1, "a/0", "failed", duration_s=2.0, first_token_s=first_token_s),))).attempts


def test_a_request_that_failed_over_is_told_in_order() -> None:
    """Each attempt, the pause between them, and the phases of the last as the model server says them."""
    first = AttemptRecord(1, "a/0", "timeout_first_token", model="m", began_s=0.1, duration_s=0.5)
    last = AttemptRecord(
        2,
        "b/0",
        "ok",
        step="next",
        upstream_request_id="their-1",
        began_s=0.7,
        duration_s=1.2,
        connect_s=0.05,
        queue_s=0.6,
        prefill_s=0.25,
        decode_s=0.2,
    )
    story = told(change(attempts=(first, last)))
    assert ("It was answered.", "200, finish_reason: stop.") == (story.ending, story.told)
    assert (
        "a/0, m: the clock timeouts.first_token_s ran out after 500 ms.",
        "b/0 (on the next target): it answered after 1.2 s. Their id: their-1.",
    ) == story.attempts
    assert [
        ("in the gateway, before an attempt", 0.1),
        ("attempt 1, which failed", 0.5),
        ("pause before attempt 2", 0.1),
        ("connecting", 0.05),
        ("in the model server's queue", 0.6),
        ("reading the prompt", 0.25),
        ("writing the answer", 0.2),
        ("on the way, or not told", 0.1),
        ("in the gateway, after the last attempt", 0.1),
    ] == [(spent.what, round(spent.seconds, 6)) for spent in story.times]
    assert story.fix.startswith("There were more requests than it takes at once")
    assert "tidegate query slowest" == story.command


def test_a_stream_whose_server_says_nothing_is_parted_at_its_first_output() -> None:
    """Without a first output there is only the whole."""
    stream = AttemptRecord(1, "a/0", "ok", connect_s=0.1, first_token_s=0.5, duration_s=2.0)
    assert ["connecting", "until the first output", "output"] == [spent.what for spent in told(change(attempts=(stream,))).times]
    whole = AttemptRecord(1, "a/0", "ok", duration_s=2.0)
    assert ["waiting for the whole answer"] == [spent.what for spent in told(change(attempts=(whole,))).times]
    assert ["in the gateway"] == [spent.what for spent in told(OK).times]
    assert () == told(change(duration_s=0.0)).times


def test_a_queue_that_the_model_server_does_not_tell_is_what_is_left_of_its_own_work() -> None:
    """Samples say how many waited there; more slots are the advice then, even if the answer was cut."""
    slow = AttemptRecord(1, "local/0", "ok", duration_s=2.0, prefill_s=0.25, decode_s=0.25)
    crowd: tuple[Row, ...] = (
        {"metric": "llamacpp.requests_running", "replica": "local/0", "most": 2.0},
        {"metric": "llamacpp.requests_waiting", "replica": "local/0", "most": 3.0},
        {"metric": "llamacpp.requests_waiting", "replica": "other/0", "most": 9.0},
        {"metric": "vllm.requests_waiting", "replica": "local/0", "most": 1.0},
    )
    story = told(change(outcome=Outcome.TRUNCATED, attempts=(slow,)), crowd)
    assert ("waiting for the model server, or on the way", 1.5) == (story.times[0].what, story.times[0].seconds)
    assert (
        "Up to 3 were waiting at local/0 while it ran, beside 2 at work.",
        "Up to 1 was waiting at local/0 while it ran.",
    ) == story.notes
    assert "more slots" in story.fix
    assert "max_completion_tokens" not in story.fix
    quick = AttemptRecord(1, "local/0", "ok", duration_s=2.0, decode_s=1.9, prefill_s=0.1)
    assert story.fix not in told(change(outcome=Outcome.TRUNCATED, attempts=(quick,)), crowd).fix
    untold = AttemptRecord(1, "local/0", "ok", duration_s=2.0)
    assert [True, False] == ["more slots" in told(change(attempts=(untold,)), samples).fix for samples in (crowd, ())]


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 2), st.none() | st.floats(0, 2), st.none() | st.floats(0, 2)), max_size=4),
    st.floats(0, 0.3),
)
def test_the_times_add_up(attempts: list[tuple[float, float, float | None, float | None]], rest: float) -> None:
    """Law: all parts together are the duration, but for slivers that are left out; phases that contradict their attempt aside."""
    ended, made = 0.0, []
    for number, (pause, duration, connect, first) in enumerate(attempts, 1):
        connected = min(connect, duration) if connect is not None else None
        token = min(max(first, connected or 0.0), duration) if first is not None else None
        began = ended + pause
        made.append(AttemptRecord(number, "a/0", "failed", began_s=began, duration_s=duration, connect_s=connected, first_token_s=token))
        ended += pause + duration
    story = told(change(attempts=tuple(made), duration_s=ended + rest))
    assert ended + rest == pytest.approx(sum(spent.seconds for spent in story.times), abs=0.0005 * (2 * len(attempts) + 3))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"status": 0}, "Nothing: it left before an answer began."),
        ({"error_code": "stream_interrupted"}, "200, and after the answer had begun an error event with the code stream_interrupted"),
        ({"status": 503, "error_code": "no_replica_available"}, "503 with the code no_replica_available."),
        ({"finish_reason": None}, "200."),
    ],
)
def test_what_the_client_was_told(changes: dict[str, object], words: str) -> None:
    """Status, code, or nothing."""
    assert told(change(**changes)).told.startswith(words)


def test_an_error_comes_with_the_advice_of_its_code() -> None:
    """Beside what its outcome says, and the cause in the words of the record."""
    story = told(change(outcome=Outcome.REJECTED_NO_REPLICA, status=503, error_code="no_replica_available", cause="a/0 is drained"))
    assert "No replica could be used at that moment. a/0 is drained" == story.ending
    assert story.fix.startswith("See what took them out: breakers, health checks, or a person. ")
    assert len(story.fix) > 80
    assert "tidegate doctor" == story.command


@pytest.mark.parametrize(
    ("result", "step", "words"),
    [
        ("status_503", "same", "a/0 (the same again): it answered with 503 after 0 ms."),
        ("lost", "other", "a/0 (other): its replica was found dead after 0 ms."),
        ("strange", "", "a/0: strange after 0 ms."),
        ("", "", "a/0: nobody knows how it ended after 0 ms."),
    ],
)
def test_attempts_in_words(result: str, step: str, words: str) -> None:
    """What is not known is left as it stands."""
    assert words == told(change(attempts=(AttemptRecord(1, "a/0", result, step=step),))).attempts[0]


def test_notes_say_what_was_less_than_asked_for_and_what_was_held() -> None:
    """Degradation, rule, confidence, limits, cache, the client's own tries; what was full meanwhile."""
    story = told(
        change(
            degraded="L1; reason=over_budget; upstream=b",
            rule="budget",
            confidence="low",
            reserved_tokens=2000,
            usage=Usage(1000, 200, 250),
            evidence=Evidence.REPORTED,
            client_retry=1,
            resumed=True,
        ),
        (
            {"metric": "gpu.memory_bandwidth_ratio", "replica": "a/0", "most": 0.97},
            {"metric": "vllm.kv_cache_ratio", "replica": "", "most": 1},
            {"metric": "gpu.memory_bandwidth_ratio", "replica": "b/0", "most": 0.2},
            {"metric": "gpu.power_w", "replica": "b/0", "most": 300.0},
        ),
    )
    assert (
        "Degraded (L1; reason=over_budget; upstream=b): the request was over its route's budget, and was made cheaper.",
        "Its target was chosen by budget.",
        "The answer is marked as of low confidence.",
        "Limits: it held 2,000 tokens and used 1,200.",
        "Prompt: 1,000 tokens, 25 % of them in the upstream's cache; figures are reported.",
        "It is the client's own try number 2.",
        "The client came back for the rest of a stream; the request that began it has a record of its own.",
        "Meanwhile gpu.memory_bandwidth_ratio of a/0 rose to 97 %.",
        "Meanwhile vllm.kv_cache_ratio of this machine rose to 100 %.",
    ) == story.notes
    assert "the answer is less than what was asked for" in told(change(degraded="L9")).notes[0]


def test_a_record_of_another_version_is_told_as_far_as_it_goes() -> None:
    """An outcome that is unknown, or none at all."""
    assert "It ended as served_by_magic." == explain({"outcome": "served_by_magic"}, []).ending
    assert "It ended as nobody knows what." == explain({}, []).ending
    assert "2.0 s" in explain({"outcome": "ok"}, [{"replica": "a/0", "result": "ok", "duration_s": 2}]).attempts[0]
