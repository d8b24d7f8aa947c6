"""One record as spans: which there are, when, with which ids and attributes; and which records are kept."""

from __future__ import annotations

from typing import Any

import msgspec
import opentelemetry.semconv._incubating.attributes.gen_ai_attributes as gen_ai
import opentelemetry.semconv._incubating.attributes.http_attributes as http
import opentelemetry.semconv._incubating.attributes.user_attributes as user
import opentelemetry.semconv.attributes.error_attributes as error
import pytest

from tidegate.analytics.spans import OPERATIONS, Kind, Name, Span, spans_of
from tidegate.analytics.tail_sampling import KeptFor, TailSampling, is_error
from tidegate.domain.outcome import Outcome
from tidegate.domain.record import AttemptRecord, RequestRecord
from tidegate.domain.usage import Evidence, Usage
from tidegate.wire.trace_context import attempt_span_id, parse_traceparent, share_threshold

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
CALLER = "00f067aa0ba902b7"
START = 1_793_780_000.0


def record(**fields: Any) -> RequestRecord:
    """Make the record of a stream that went well, at its first attempt."""
    attempt = AttemptRecord(1, "pool/0", "ok", model="m", status=200, connect_s=0.01, first_token_s=0.5, duration_s=1.9, began_s=0.1)
    given: dict[str, Any] = {
        "request_id": "r",
        "started_at": START,
        "operation": "chat",
        "outcome": Outcome.OK,
        "status": 200,
        "duration_s": 2.0,
        "model": "fast",
        "route": "fast*",
        "stream": True,
        "ttft_s": 0.6,
        "usage": Usage(10, 5, 4, 3, 2),
        "evidence": Evidence.REPORTED,
        "attempts": (attempt,),
        "trace_id": TRACE,
        "span_id": SPAN,
    }
    return RequestRecord(**given | fields)


def attempt(number: int, result: str, **fields: Any) -> AttemptRecord:
    return AttemptRecord(number, f"pool/{number}", result, **fields)


def names(spans: tuple[Span, ...]) -> list[str]:
    return [span.name for span in spans]


# ── names ──────────────────────────────────────────────────────────────────────


def test_names_are_those_of_the_conventions() -> None:
    """Every name in the table that is not ours is one that the installed semantic conventions have."""
    known = {value for module in (gen_ai, http, user, error) for value in vars(module).values() if isinstance(value, str)}
    assert [] == [name for name in Name if not name.startswith("tidegate.") and str(name) not in known]
    assert set(OPERATIONS.values()) <= {each.value for each in gen_ai.GenAiOperationNameValues}


# ── spans ──────────────────────────────────────────────────────────────────────


def test_a_request_is_a_server_span_with_a_client_span_for_its_attempt() -> None:
    """Times, parents, ids and what they say."""
    request, call = spans_of(record(parent_span_id=CALLER), KeptFor.SHARE)
    assert (SPAN, CALLER, Kind.SERVER, "chat fast*", True) == (
        request.span_id,
        request.parent_id,
        request.kind,
        request.name,
        request.is_parent_remote,
    )
    assert (START, START + 2.0, None) == (request.began_at, request.ended_at, request.error)
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "fast",
        "gen_ai.request.stream": True,
        "gen_ai.response.time_to_first_chunk": 0.6,
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "gen_ai.usage.cache_creation.input_tokens": 2,
        "gen_ai.usage.reasoning.output_tokens": 3,
        "http.response.status_code": 200,
        "tidegate.request_id": "r",
        "tidegate.outcome": "ok",
        "tidegate.kept_for": "share",
        "tidegate.route": "fast*",
        "tidegate.evidence": "reported",
    }
    assert expected == request.attributes
    assert [("tidegate.committed", START + 0.6, {})] == [(each.name, each.at, each.attributes) for each in request.events]
    assert (attempt_span_id(SPAN, 1), SPAN, Kind.CLIENT, "chat m", False) == (
        call.span_id,
        call.parent_id,
        call.kind,
        call.name,
        call.is_parent_remote,
    )
    assert (0.1, 2.0) == (round(call.began_at - START, 6), round(call.ended_at - START, 6))
    assert ("pool", "m", 5) == tuple(
        call.attributes[name] for name in ("gen_ai.provider.name", "gen_ai.request.model", "gen_ai.usage.output_tokens")
    )


def test_a_failed_attempt_says_what_it_was_and_what_followed() -> None:
    """Each step beside the first is an event at its time, with what went before."""
    attempts = (
        attempt(1, "status_503", status=503, duration_s=0.2),
        attempt(2, "ok", step="next", began_s=0.4, duration_s=0.5, model="other"),
    )
    given = record(attempts=attempts, stream=False, ttft_s=None, degraded="L1; reason=standby", duration_s=1.0, usage=Usage())
    request, first, second = spans_of(given, KeptFor.RETRIED)
    steps, committed, degraded = request.events
    assert ("tidegate.step", START + 0.4, {"tidegate.step": "next", "tidegate.replica": "pool/2", "tidegate.result": "status_503"}) == (
        steps.name,
        steps.at,
        steps.attributes,
    )
    assert ("tidegate.committed", 0.9) == (committed.name, round(committed.at - START, 6))
    assert ("tidegate.degraded", 0.9) == (degraded.name, round(degraded.at - START, 6))
    assert ("status_503", "status_503", 503) == (
        first.error,
        first.attributes["error.type"],
        first.attributes["http.response.status_code"],
    )
    assert (None, 1, "next") == (second.error, second.attributes["http.request.resend_count"], second.attributes["tidegate.step"])
    assert "gen_ai.usage.input_tokens" not in second.attributes


@pytest.mark.parametrize(
    ("attempts", "degraded", "expected"),
    [
        ((), None, []),
        ((attempt(1, "timeout_total", duration_s=1.0),), None, []),
        ((), "L2; reason=prepared", [("tidegate.degraded", START + 2.0)]),
    ],
)
def test_an_answer_that_never_began_has_no_commit_point(attempts: Any, degraded: str | None, expected: list[tuple[str, float]]) -> None:
    """What a prepared answer was less than asked for is told at its end."""
    request = spans_of(record(attempts=attempts, ttft_s=None, degraded=degraded), KeptFor.ERROR)[0]
    assert expected == [(event.name, event.at) for event in request.events]


@pytest.mark.parametrize(
    ("cause", "outcome", "expected"),
    [
        ("It broke.", Outcome.FAILED_UPSTREAM, "It broke."),
        (None, Outcome.FAILED_INTERNAL, "failed_internal"),
        ("No key.", Outcome.OK, None),
    ],
)
def test_the_status_is_that_of_the_outcome(cause: str | None, outcome: Outcome, expected: str | None) -> None:
    """An error says why; what is none says nothing, whatever its cause."""
    assert expected == spans_of(record(cause=cause, outcome=outcome), KeptFor.ERROR)[0].error


def test_the_business_is_in_the_span() -> None:
    """Who asked, for what, and all that the client said about it; what is empty is left out."""
    given = record(
        tenant="acme", user="u7", key_id="k", tier="vip", feature="faq", color="test", business_context='{"feature":"faq","Order":"17"}'
    )
    attributes = spans_of(given, KeptFor.SHARE)[0].attributes
    assert ("acme", "u7", "faq", "17") == tuple(
        attributes[name] for name in ("tidegate.tenant", "user.id", "tidegate.business.feature", "tidegate.business.order")
    )
    assert "tidegate.business.order" not in spans_of(record(business_context="\ud800"), KeptFor.SHARE)[0].attributes


def test_a_request_that_asks_no_model_has_one_plain_span() -> None:
    """Its name is its operation, and it has none of GenAI's."""
    (only,) = spans_of(record(operation="models", route="", attempts=(), ttft_s=None, usage=Usage()), KeptFor.SHARE)
    assert ("models", False) == (only.name, "gen_ai.operation.name" in only.attributes)


@pytest.mark.parametrize("missing", ["trace_id", "span_id"])
def test_a_record_that_names_no_span_has_none(missing: str) -> None:
    """Such as that of a path which is not served, or an older one."""
    assert () == spans_of(record(**{missing: ""}), KeptFor.ERROR)


# ── the model server's own times ───────────────────────────────────────────────


def _with_times(**fields: Any) -> list[tuple[str, float, float]]:
    given = msgspec.structs.replace(record().attempts[0], **fields)
    return [
        (span.name, round(span.began_at - START, 6), round(span.ended_at - START, 6))
        for span in spans_of(record(attempts=(given,)), KeptFor.SHARE)[2:]
    ]


def test_reading_ends_with_the_first_output() -> None:
    """Waiting is before it and writing after it, each as long as the server said."""
    assert [("queue", 0.25, 0.3), ("prefill", 0.3, 0.6), ("decode", 0.6, 1.6)] == _with_times(queue_s=0.05, prefill_s=0.3, decode_s=1.0)


def test_without_a_first_output_they_begin_with_the_connection() -> None:
    """A whole answer shows no output before its end."""
    assert [("prefill", 0.11, 0.41), ("decode", 0.41, 1.41)] == _with_times(first_token_s=None, prefill_s=0.3, decode_s=1.0)
    assert [("decode", 0.1, 1.1)] == _with_times(first_token_s=None, connect_s=None, decode_s=1.0)


def test_a_server_whose_clock_is_wrong_does_not_leave_the_attempt() -> None:
    """What it says is cut to the attempt's own time."""
    assert [("prefill", 0.1, 0.6), ("decode", 0.6, 2.0)] == _with_times(prefill_s=900.0, decode_s=900.0)


def test_the_same_record_gives_the_same_spans() -> None:
    """So that what is sent twice is stored once; and all ids of a trace differ."""
    times = {"queue_s": 0.1, "prefill_s": 0.1, "decode_s": 0.1}
    given = record(attempts=tuple(attempt(number, "ok", **times) for number in range(1, 6)))
    spans = spans_of(given, KeptFor.SHARE)
    assert spans == spans_of(given, KeptFor.SHARE)
    assert 21 == len(spans) == len({span.span_id for span in spans})
    assert all(parse_traceparent(f"00-{span.trace_id}-{span.span_id}-01".encode()) is not None for span in spans)


# ── which are kept ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"outcome": Outcome.FAILED_TIMEOUT}, KeptFor.ERROR),
        ({"outcome": Outcome.REJECTED_RATE_LIMIT}, None),
        ({"ttft_s": 10.0}, KeptFor.SLOW),
        ({"duration_s": 60.0}, None),
        ({"duration_s": 60.0, "ttft_s": None}, KeptFor.SLOW),
        ({"degraded": "L1; reason=standby"}, KeptFor.DEGRADED),
        ({"attempts": (attempt(1, "lost"), attempt(2, "ok"))}, KeptFor.RETRIED),
        ({"parent_span_id": CALLER, "sampled": True}, KeptFor.CALLER),
        ({"parent_span_id": CALLER, "trace_id": "f" * 32}, None),
        ({"sampled": True}, KeptFor.SHARE),
        ({"trace_id": "0" * 18 + "f" * 14}, KeptFor.SHARE),
        ({}, None),
    ],
)
def test_what_went_wrong_is_kept_and_of_the_rest_a_share(fields: dict[str, Any], expected: KeptFor | None) -> None:
    """The caller's flag decides where there is a caller; the trace's id where there is none."""
    assert expected == TailSampling(keep_ratio=0.1, slow_s=10.0).judge(record(**fields))


@pytest.mark.parametrize(("keep_ratio", "expected"), [(0.0, None), (1.0, KeptFor.SHARE)])
def test_nothing_and_everything_are_shares_too(keep_ratio: float, expected: KeptFor | None) -> None:
    """Whatever the id."""
    sampling = TailSampling(keep_ratio, 10.0)
    assert {expected} == {sampling.judge(record(trace_id="1" * 18 + digit * 14)) for digit in "0123456789abcdef"}


def test_every_outcome_is_an_error_or_none() -> None:
    """Refusals of what a client did are none."""
    assert {outcome for outcome in Outcome if is_error(outcome)} == {
        Outcome.MODEL_ERROR,
        Outcome.REJECTED_OVERLOAD,
        Outcome.REJECTED_NO_REPLICA,
        Outcome.FAILED_UPSTREAM,
        Outcome.FAILED_TIMEOUT,
        Outcome.FAILED_MID_STREAM,
        Outcome.FAILED_INTERNAL,
    }


def test_thresholds_are_those_of_consistent_sampling() -> None:
    """As OpenTelemetry writes them, without the zeros that it leaves out at the end."""
    assert ("00000000000000", "80000000000000", "c0000000000000", "g") == tuple(share_threshold(each) for each in (1.0, 0.5, 0.25, 0.0))
