"""How a request ends, for everything that the scripted upstream can do to it; and what its sample says then."""

import asyncio
import time

import pytest
from tests.unit.bench.carrying_out import WORDS, ask_once, carry_out, requests

from tidegate.bench.plan import Endpoint, Scenario, Target
from tidegate.bench.sample import End
from tidegate.testing import Fault, FaultKind, RetryAfter, RetryDialect, Script, ScriptedUpstream, Split, ToolCall, UsagePlace

SHORT_S = 0.15
"""Longer than any honest answer of these tests."""

STREAMED = {
    FaultKind.REFUSE: End.TRANSPORT,
    FaultKind.RESET_BEFORE_HEADERS: End.TRANSPORT,
    FaultKind.CLOSE_BEFORE_HEADERS: End.TRANSPORT,
    FaultKind.HANG_BEFORE_HEADERS: End.TIMEOUT,
    FaultKind.GARBAGE: End.TRANSPORT,
    FaultKind.CUT_HEADERS: End.TRANSPORT,
    FaultKind.DRIP_HEADERS: End.COMPLETE,
    FaultKind.HANG_BEFORE_FIRST_TOKEN: End.TIMEOUT,
    FaultKind.STALL: End.TIMEOUT,
    FaultKind.CUT: End.TRANSPORT,
    FaultKind.END: End.TRUNCATED,
    FaultKind.RESET: End.TRANSPORT,
    FaultKind.BAD_FRAMING: End.TRANSPORT,
    FaultKind.MISSING_DONE: End.COMPLETE,
    FaultKind.MALFORMED_EVENT: End.STREAM_ERROR,
    FaultKind.HUGE_EVENT: End.COMPLETE,
    FaultKind.ERROR_EVENT: End.STREAM_ERROR,
    FaultKind.FINISH_ERROR: End.STREAM_ERROR,
    FaultKind.CLOSE_AFTER: End.COMPLETE,
}
WHOLE = STREAMED | {FaultKind.MALFORMED_EVENT: End.TRUNCATED}
"""Half a body is what a malformed answer without a stream is."""


def test_every_fault_is_listed() -> None:
    """A fault that is added to the mock is judged here."""
    assert set(FaultKind) == set(STREAMED)


@pytest.mark.parametrize("kind", FaultKind)
@pytest.mark.parametrize("stream", [True, False])
def test_each_fault_has_its_end(kind: FaultKind, *, stream: bool) -> None:
    """Streams and whole answers, one request each; the sample is in order whatever happened."""
    script = Script(fault=Fault(kind, after=3, pause_s=0.0, for_s=0.01))
    sample = asyncio.run(ask_once(script, stream=stream, timeout_s=SHORT_S))
    wanted = (STREAMED if stream else WHOLE)[kind]
    assert (wanted, 0, 1) == (sample.end, sample.index, sample.tries)
    assert bool(sample.error) == (wanted is not End.COMPLETE)
    marks = [sample.due_at, sample.sent_at, sample.connected_at, sample.headers_at, sample.first_event_at, sample.first_content_at]
    instants = [mark for mark in [*marks, sample.last_output_at, sample.ended_at] if mark is not None]
    assert sorted(instants) == instants
    assert (200 if sample.headers_at is not None else 0) == sample.status


def test_a_complete_stream_has_every_mark() -> None:
    """Content, reasoning, usage, chunks and bytes, each at its instant."""
    script = Script(
        reasoning=("Let", " me", " think."), pieces=("Yes", " it", " is"), first_token_s=0.02, per_token_s=0.005, cached_tokens=4
    )
    sample = asyncio.run(ask_once(script))
    assert (End.COMPLETE, 200, "stop", 6) == (sample.end, sample.status, sample.finish_reason, sample.output_chunks)
    assert (9, 4, 6, 3) == (sample.prompt_tokens, sample.cached_tokens, sample.completion_tokens, sample.reasoning_tokens)
    assert sample.first_event_at is not None
    assert sample.first_reasoning_at is not None
    assert sample.first_content_at is not None
    assert sample.usage_at is not None
    assert sample.first_event_at < sample.first_reasoning_at < sample.first_content_at < sample.usage_at <= sample.ended_at
    assert sample.first_output_at == sample.first_reasoning_at
    assert 0.004 < sample.longest_gap_s < 0.5
    assert sample.response_bytes > 500


@pytest.mark.parametrize("place", [place for place in UsagePlace if place not in {UsagePlace.ABSENT, UsagePlace.NULL_EVERYWHERE}])
def test_usage_is_read_wherever_it_stands(place: UsagePlace) -> None:
    """Early, late, with the finish, in every chunk, twice, and behind the end."""
    sample = asyncio.run(ask_once(Script(pieces=("a", "b"), usage=place, usage_delay_s=0.01)))
    assert (End.COMPLETE, 9, 2) == (sample.end, sample.prompt_tokens, sample.completion_tokens)


@pytest.mark.parametrize("place", [UsagePlace.ABSENT, UsagePlace.NULL_EVERYWHERE])
def test_what_is_not_reported_is_not_known(place: UsagePlace) -> None:
    """Chunks are no tokens."""
    sample = asyncio.run(ask_once(Script(usage=place)))
    assert (End.COMPLETE, None, None, None) == (sample.end, sample.prompt_tokens, sample.completion_tokens, sample.usage_at)


def test_a_role_alone_is_no_output() -> None:
    """The chunk that servers send at once does not begin the answer."""
    sample = asyncio.run(ask_once(Script(first_token_s=0.05)))
    assert sample.first_event_at is not None
    assert sample.first_output_at is not None
    assert 0.04 < sample.first_output_at - sample.first_event_at


def test_arguments_of_a_tool_call_are_output() -> None:
    """They come in pieces, like text."""
    sample = asyncio.run(ask_once(Script(tool_calls=(ToolCall("look", '{"at": "the tide"}'),))))
    assert (End.COMPLETE, "tool_calls", 3) == (sample.end, sample.finish_reason, sample.output_chunks)
    assert sample.first_content_at is not None


@pytest.mark.parametrize("endpoint", Endpoint)
@pytest.mark.parametrize("stream", [True, False])
def test_both_endpoints_are_understood(endpoint: Endpoint, *, stream: bool) -> None:
    """Chat and completions, streamed and whole."""
    sample = asyncio.run(ask_once(Script(), endpoint=endpoint, stream=stream))
    assert (End.COMPLETE, "stop", 5) == (sample.end, sample.finish_reason, sample.completion_tokens)
    assert sample.first_content_at is not None


def test_an_error_status_is_told_in_its_own_words() -> None:
    """The code and the message of the body; the key is never in them."""
    error: dict[str, object] = {"message": "the key sesame is wrong", "code": "invalid_api_key"}
    sample = asyncio.run(ask_once(Script(status=401, error=error), key="sesame"))
    assert (End.HTTP_ERROR, 401, "invalid_api_key: the key *** is wrong") == (sample.end, sample.status, sample.error)


def test_a_page_of_a_proxy_is_quoted() -> None:
    """Not everything on the way speaks JSON."""
    sample = asyncio.run(ask_once(Script(status=502, body="<html>\n  <b>Bad Gateway</b>", content_type="text/html")))
    assert (End.HTTP_ERROR, "<html> <b>Bad Gateway</b>") == (sample.end, sample.error)


def test_an_error_under_status_200_is_one() -> None:
    """Whole, as OpenRouter answers when its provider fails."""
    sample = asyncio.run(ask_once(Script(body='{"error":{"code":502,"message":"no luck"}}'), stream=False))
    assert (End.STREAM_ERROR, 200, "502: no luck") == (sample.end, sample.status, sample.error)


def test_429_is_tried_again_when_asked_for() -> None:
    """After the time that the server named; the sample is that of the try that counted, and runs from the first."""
    limited = Script(retry_after=RetryAfter(RetryDialect.MS, after_s=0.05))
    sample = asyncio.run(ask_once([limited, Script()], retries=1))
    assert (End.COMPLETE, 200, 2) == (sample.end, sample.status, sample.tries)
    assert sample.headers_at is not None
    assert 0.05 <= sample.headers_at - sample.sent_at


def test_a_lost_connection_is_tried_again_before_output_only() -> None:
    """Half an answer is an answer, and is not asked for twice."""
    before, after = Fault(FaultKind.RESET_BEFORE_HEADERS), Fault(FaultKind.RESET, after=3)
    tried = asyncio.run(ask_once([Script(fault=before), Script()], retries=1))
    assert (End.COMPLETE, 2) == (tried.end, tried.tries)
    lost = asyncio.run(ask_once([Script(fault=after), Script()], retries=1))
    assert (End.TRANSPORT, 1) == (lost.end, lost.tries)


def test_retries_end() -> None:
    """By their number, and when the time-out would come before the next one."""
    limited = Script(retry_after=RetryAfter(RetryDialect.MS, after_s=0.01))
    spent = asyncio.run(ask_once([limited, limited, Script()], retries=1))
    assert (End.HTTP_ERROR, 429, 2) == (spent.end, spent.status, spent.tries)
    late = asyncio.run(ask_once([Script(retry_after=RetryAfter(after_s=30.0)), Script()], retries=5))
    assert (End.HTTP_ERROR, 1) == (late.end, late.tries)


def test_an_error_that_was_told_outlives_what_follows() -> None:
    """A server that reports an error and then hangs or breaks has reported an error."""
    body = 'data: {"error":{"message":"out of memory"}}\n\n'
    script = Script(body=body, content_type="text/event-stream", fault=None)
    sample = asyncio.run(ask_once(script))
    assert (End.STREAM_ERROR, "out of memory") == (sample.end, sample.error)


def test_the_times_that_servers_tell_are_read() -> None:
    """Milliseconds in the header of ours; nonsense is none."""
    told = asyncio.run(ask_once(Script(headers=(("x-model-response-time", "12.5"), ("req-cost-time", "99")))))
    assert 0.0125 == told.server_s
    assert asyncio.run(ask_once(Script(headers=(("req-cost-time", "soon"),)))).server_s is None


def test_text_is_held_against_what_the_scenario_wants() -> None:
    """Faults are named in the client, and no text leaves it."""
    wants = Scenario("words", texts=WORDS.texts, require="tide", json_schema='{"type":"object","required":["a"]}')
    good = asyncio.run(ask_once(Script(pieces=('{"a":', '"tide"}')), scenario=wants))
    assert () == good.text_faults
    bad = asyncio.run(ask_once(Script(pieces=('{"b":', "1}")), scenario=wants))
    assert ("schema_mismatch", "pattern_missing") == bad.text_faults
    broken = asyncio.run(ask_once(Script(pieces=("tide",)), scenario=wants))
    assert ("invalid_json",) == broken.text_faults


def test_bytes_cut_anywhere_are_read_the_same() -> None:
    """In the middle of a character, with CRLF, comments and several data lines."""
    script = Script(pieces=("潮", "水", "来"), newline="\r\n", comment="OPENROUTER PROCESSING", multi_line=True, split=Split(every=7))
    sample = asyncio.run(ask_once(script))
    assert (End.COMPLETE, 3, 3) == (sample.end, sample.output_chunks, sample.completion_tokens)


def test_nobody_there_is_a_failure_of_transport() -> None:
    """The address is in the words."""
    target = Target("http://127.0.0.1:9/v1", "m", timeout_s=2.0)
    samples, _ = asyncio.run(carry_out(requests(1), target))
    assert (End.TRANSPORT, 0, None) == (samples[0].end, samples[0].status, samples[0].headers_at)
    assert "127.0.0.1:9" in samples[0].error


def test_a_time_out_is_that_of_the_whole_request() -> None:
    """Whatever came until then is in the sample."""

    async def slow() -> None:
        async with ScriptedUpstream(Script(per_token_s=0.05, output_tokens=50)) as upstream:
            began = time.monotonic()
            samples, _ = await carry_out(requests(1), Target(upstream.base_url, "m", timeout_s=0.2))
            assert time.monotonic() - began < 1.0
            assert End.TIMEOUT is samples[0].end
            assert 2 <= samples[0].output_chunks <= 5
            await upstream.wait_for(lambda: upstream.requests[0].client_left_at is not None, 2.0)

    asyncio.run(slow())


def test_what_a_server_says_steers_no_terminal() -> None:
    """Nor does half an emoji stop whoever writes it down."""
    sample = asyncio.run(ask_once(Script(status=500, body='{"error":{"message":"\\u001b[31mred\\n\\u202e \\ud83d"}}')))
    assert "?[31mred ? ?" == sample.error
