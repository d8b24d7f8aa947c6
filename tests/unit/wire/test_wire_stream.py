"""The stream codec: what is relayed, what is withheld, and what is learnt on the way."""

from __future__ import annotations

import json

import pytest

from tidegate.domain.request import Operation
from tidegate.domain.upstream import FailureScope
from tidegate.domain.usage import Usage
from tidegate.wire.dialects import DIALECTS
from tidegate.wire.stream import MAX_CHOICES, MAX_MALFORMED, StreamCodec, without_usage

ROLE = (
    b'data: {"id":"c-1","model":"qwen3.6-plus","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n'
)
HELLO = b'data: {"id":"c-1","choices":[{"index":0,"delta":{"content":"hello"},"finish_reason":null}]}\n\n'
STOP = b'data: {"id":"c-1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
USAGE = b'data: {"id":"c-1","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13}}\n\n'
DONE = b"data: [DONE]\n\n"


def codec(*, hide_usage: bool = True, operation: Operation = Operation.CHAT, dialect: str = "openrouter", **bounds: int) -> StreamCodec:
    return StreamCodec(operation=operation, dialect=DIALECTS[dialect], hide_usage=hide_usage, **bounds)


def chunk(*choices: dict[str, object], **members: object) -> bytes:
    return b"data: %b\n\n" % json.dumps({"choices": choices, **members}, separators=(",", ":")).encode()


def running(*, hide_usage: bool = True) -> StreamCodec:
    """A codec in the middle of a stream, where chunks take the short way."""
    state = codec(hide_usage=hide_usage)
    state.feed(ROLE + HELLO)
    return state


# ── the ordinary stream ─────────────────────────────────────────────────────────────


def test_an_ordinary_stream_passes_untouched_and_is_understood() -> None:
    """Everything but the usage chunk goes out as it came, and every fact is lifted."""
    state = codec()
    out = [state.feed(event) for event in (b": OPENROUTER PROCESSING\n\n", ROLE, HELLO, HELLO, STOP, USAGE, DONE)]

    assert out == [b": OPENROUTER PROCESSING\n\n", ROLE, HELLO, HELLO, STOP, b"", DONE]
    assert (state.output_started, state.finished, state.done, state.complete) == (True, True, True, True)
    assert state.usage == Usage(prompt_tokens=9, completion_tokens=4)
    assert (state.finish_reason, state.chunks, state.malformed, state.failure) == ("stop", 2, 0, None)
    assert (state.response_id, state.response_model) == ("c-1", "qwen3.6-plus")


def test_an_ordinary_chunk_in_the_middle_is_the_same_object() -> None:
    """The short way copies nothing."""
    state = running()

    assert state.feed(HELLO) is HELLO


@pytest.mark.parametrize(
    ("delta", "starts"),
    [
        ({"content": "x"}, True),
        ({"reasoning": "x"}, True),
        ({"reasoning_content": "x"}, True),
        ({"refusal": "x"}, True),
        ({"tool_calls": [{"index": 0}]}, True),
        ({"function_call": {"name": "f"}}, True),
        ({"content": ""}, False),
        ({"content": None}, False),
        ({"role": "assistant"}, False),
        ({"tool_calls": []}, False),
        (None, False),
    ],
)
def test_output_starts_with_the_first_non_empty_piece(delta: object, starts: bool) -> None:
    """A role, an empty text or a comment is no output; reasoning and tool calls are."""
    state = codec()
    state.feed(b": ping\n\n" + chunk({"index": 0, "delta": delta, "finish_reason": None}))

    assert starts == state.output_started
    assert starts == bool(state.chunks)


def test_completions_start_with_their_text() -> None:
    """`/v1/completions` has `text` where chat has `delta`."""
    state = codec(operation=Operation.COMPLETION)
    state.feed(chunk({"index": 0, "text": "", "finish_reason": None}))
    assert not state.output_started
    state.feed(chunk({"index": 0, "text": "x", "finish_reason": None}))

    assert state.output_started


@pytest.mark.parametrize("event", [STOP, DONE])
def test_an_empty_answer_starts_with_its_end(event: bytes) -> None:
    """A model may say nothing; the caller must not wait for output that never comes."""
    state = codec()
    state.feed(event)

    assert state.output_started
    assert state.complete


def test_an_event_like_the_last_one_is_not_decoded_while_its_choice_is_open() -> None:
    """Nor is one before the first that was decoded in the middle, or one whose text needs a decoder."""
    state = running()
    other = HELLO.replace(b"hello", b"world!")
    assert state._relay_alike(HELLO) is None
    state.feed(HELLO)

    assert state._relay_alike(other) is other
    assert state._relay_alike(HELLO.replace(b"hello", b"\\n")) is None
    assert state.text_bytes == 5 + 5 + 6
    state.feed(STOP)
    assert state._relay_alike(other) is None


def test_an_engine_that_varies_each_event_costs_a_few_stencils_and_no_more() -> None:
    """Some append random letters; their events go on being decoded."""
    state = running()
    for number in range(20):
        event = HELLO.replace(b'"c-1"', b'"c-%d"' % number)
        assert state.feed(event) is event

    assert (state.chunks, state.text_bytes, state._stencils_left) == (21, 21 * 5, 0)


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("events", [1, 3])
def test_the_short_way_is_open_to_both_common_framings(line_end: bytes, events: int) -> None:
    """CRLF is what some popular server-sent-event libraries write."""
    state = running()
    chunks = HELLO.replace(b"\n", line_end) * events

    assert state._relay_short(chunks) == chunks
    assert state._relay_short(chunks[:-1] + b"\r") is None
    assert state._relay_short(chunks.replace(b"hello", b"hello\r")) is None
    assert state.chunks == 1 + events


def test_several_events_in_one_chunk_stay_one_chunk() -> None:
    """The short way takes them together; a special one among them sends all the long way."""
    state = running()

    assert state.feed(HELLO * 3) == HELLO * 3
    assert state.chunks == 4
    assert state.feed(HELLO + STOP + USAGE) == HELLO + STOP
    assert state.chunks == 5
    assert state.finished


@pytest.mark.parametrize(
    "event",
    [
        b": comment\n\n" + HELLO,
        HELLO + b": comment\n\n",
        HELLO + b"\n" + HELLO,
        HELLO + b"\n\n" + HELLO,
        b"data: {\ndata: }\n\n",
        HELLO.replace(b"\n", b"\r\n"),
        chunk({"index": 1, "delta": {"content": "second choice"}}),
        chunk({"index": "x", "delta": {"content": "odd index"}}),
        b"event: message\n" + HELLO,
        HELLO[:-2] + b"\nid: 7\n\n",
        b"data: 17\n\n",
        b'data: {"choices":"odd"}\n\n',
        b'data: {"choices":[null]}\n\n',
        b'data: {"choices":[{"index":0,"delta":{"content":"\\ud83d"}}]}\n\n',
        b'data: {"choices":[{"index":0,"logprobs":NaN,"delta":{"content":"x"}}]}\n\n',
        b'data: {"n":1' + b"0" * 5000 + b',"delta":"\\ud83d"}\n\n',
        b'data: {"error":null,"choices":[]}\n\n',
        b"id: 9\n\n",
    ],
)
def test_unusual_but_harmless_events_pass_untouched(event: bytes) -> None:
    """Other framings, several data lines, lone surrogates (half an emoji per chunk), NaN, and JSON that means nothing to us."""
    state = running()

    assert state.feed(event) == event
    assert state.failure is None
    assert state.malformed == 0


# ── usage ──────────────────────────────────────────────────────────────────────────


def test_usage_details_are_lifted_and_the_last_report_wins() -> None:
    """Cumulative reports in every chunk are fine, and `usage: null` changes nothing."""
    state = codec(hide_usage=False)
    first = chunk({"index": 0, "delta": {"content": "x"}}, usage={"prompt_tokens": 9, "completion_tokens": 1})
    last = chunk(
        usage={
            "prompt_tokens": 9,
            "completion_tokens": 7,
            "prompt_tokens_details": {"cached_tokens": 8},
            "completion_tokens_details": {"reasoning_tokens": 5},
        }
    )
    null = chunk({"index": 0, "delta": {"content": "x"}}, usage=None)

    assert state.feed(first) + state.feed(last) + state.feed(null) == first + last + null
    assert state.usage == Usage(prompt_tokens=9, completion_tokens=7, cached_tokens=8, reasoning_tokens=5)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": "9", "completion_tokens": True}, None),
        ({"prompt_tokens": -4, "completion_tokens": 2.0}, None),
        ({"prompt_tokens": 0, "completion_tokens": 2.0}, Usage(completion_tokens=2)),
        ({"prompt_tokens": 3, "prompt_tokens_details": None, "completion_tokens_details": 5}, Usage(prompt_tokens=3)),
        ({"total_tokens": 6}, Usage(prompt_tokens=6)),
        ({}, None),
        ([1], None),
        ("9", None),
    ],
)
def test_figures_of_odd_types_are_not_believed(usage: object, expected: Usage | None) -> None:
    """A count is a number >= 0; an object without figures is no report, and neither is one with a figure that is none."""
    state = codec(hide_usage=False)
    state.feed(chunk(usage=usage))

    assert expected == state.usage


def test_a_huge_figure_is_no_figure() -> None:
    """Infinity, which lenient JSON allows, is not a token count."""
    state = codec()
    state.feed(b'data: {"choices":[],"usage":{"prompt_tokens":Infinity,"completion_tokens":3}}\n\n')

    assert state.usage is None


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (b'data: {"a":1,"usage":null}\n\n', b'data: {"a":1}\n\n'),
        (b'data: {"usage":null,"a":1}\n\n', b'data: {"a":1}\n\n'),
        (b'data: {"a":1, "usage" : null, "b":2}\n\n', b'data: {"a":1, "b":2}\n\n'),
        (b'data: {"usage":null}\n\n', b"data: {}\n\n"),
        (b'data: {"a":1,"usage":{"p":1,"d":{"c":2}}}\r\n\r\n', b'data: {"a":1}\r\n\r\n'),
        (b'data: {"a":"say \\"usage","usage":null}\n\n', b'data: {"a":"say \\"usage"}\n\n'),
        (b'data: {"a":{"usage":null},"usage":null}\n\n', b'data: {"a":{"usage":null}}\n\n'),
        (b'id: 4\ndata: {"a":1,"usage":{\ndata: "p":1}}\n\n', b'id: 4\ndata: {"a":1}\n\n'),
        (b'data: {"a":[\ndata: 1],"b":{"usage":0},"usage":7}\n\n', b'data: {"a":[\ndata: 1],"b":{"usage":0}}\n\n'),
        (b'data: {"a":"\\ud83d","b":{"usage":null}, "usage": null}\r\r', b'data: {"a":"\\ud83d","b":{"usage":null}}\r\r'),
        (b'data: {"a":"usage","usage":null}\r\n\r\n', b'data: {"a":"usage"}\r\n\r\n'),
        (b'\xef\xbb\xbfdata: {"a":"usage","usage":null}\n\n', b'\xef\xbb\xbfdata: {"a":"usage"}\n\n'),
        (b'data: {"a":"\\ud83d",\ndata: "usage":[]}\n\n', b'data: {"a":"\\ud83d",\ndata: "usage":[]}\n\n'),
    ],
)
def test_only_the_top_level_usage_member_is_cut_out(event: bytes, expected: bytes) -> None:
    """Every other byte stays; where bytes cannot tell, the decoder does; where not even that can, nothing is cut."""
    assert expected == without_usage(event)


def test_usage_beside_content_is_hidden_and_the_content_kept() -> None:
    """Some servers report with the last piece of output; the client that did not ask sees the output only."""
    state = running()
    event = chunk({"index": 0, "delta": {"content": "x"}, "finish_reason": None}, usage={"prompt_tokens": 9, "completion_tokens": 1})

    assert state.feed(event) == chunk({"index": 0, "delta": {"content": "x"}, "finish_reason": None})
    assert state.usage == Usage(prompt_tokens=9, completion_tokens=1)


@pytest.mark.parametrize("hide_usage", [True, False])
def test_null_usage_takes_the_short_way_too(hide_usage: bool) -> None:
    """DashScope and OpenAI put `usage: null` into every chunk."""
    state = running(hide_usage=hide_usage)
    event = HELLO.replace(b"}\n\n", b',"usage":null}\n\n')

    assert state.feed(event) == (HELLO if hide_usage else event)


# ── the end ────────────────────────────────────────────────────────────────────────


def test_a_stream_that_just_stops_is_not_complete() -> None:
    """A cut stream is an error, however clean the connection's end."""
    state = running()

    assert state.end() == b""
    assert not state.complete


def test_a_finished_stream_without_done_is_complete_and_gets_no_forged_done() -> None:
    """Every choice seen has ended; nothing is added to what the upstream sent."""
    state = running()

    assert state.feed(STOP) == STOP
    assert state.end() == b""
    assert state.complete
    assert not state.done


def test_an_empty_delta_after_the_end_does_not_open_the_choice_again() -> None:
    """Some servers report usage in a chunk that still has a choice in it, after the last one."""
    state = running()
    state.feed(STOP + chunk({"index": 0, "delta": {"content": ""}, "finish_reason": None}))

    assert state.complete


def test_a_choice_still_open_keeps_the_stream_incomplete() -> None:
    """With `n` = 2, one finish is not the end."""
    state = running()
    state.feed(chunk({"index": 1, "delta": {"content": "y"}}) + STOP)
    assert (state.finished, state.complete) == (True, False)
    state.feed(chunk({"index": 1, "delta": {}, "finish_reason": "length"}))

    assert (state.complete, state.finish_reason) == (True, "length")


def test_choices_beyond_the_bound_are_relayed_and_not_followed() -> None:
    """An upstream cannot make the gateway remember without end."""
    state = codec()
    event = b'data: {"choices":[%b]}\n\n' % b",".join(b'{"index":%d}' % index for index in range(MAX_CHOICES + 1))

    assert state.feed(event) == event
    assert len(state._open) == MAX_CHOICES
    state.feed(chunk({"index": MAX_CHOICES + 7, "finish_reason": "stop"}))
    assert len(state._open) == MAX_CHOICES


@pytest.mark.parametrize(
    ("reasons", "expected"),
    [
        (["stop", "tool_calls"], "tool_calls"),
        (["length", "stop"], "length"),
        (["tool_calls", "content_filter", "length"], "content_filter"),
        (["stop", "abort"], "abort"),
        (["stop", "stop"], "stop"),
    ],
)
def test_the_most_telling_finish_reason_stands_for_all(reasons: list[str], expected: str) -> None:
    """With several choices the record has room for one."""
    state = codec()
    for index, reason in enumerate(reasons):
        state.feed(chunk({"index": index, "delta": {}, "finish_reason": reason}))

    assert expected == state.finish_reason


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        (b"data: [DONE]", DONE),
        (b"data: [DONE]\n", DONE),
        (b"data: [DONE]\r\n", b"data: [DONE]\r\n\n"),
        (STOP[:-1], STOP),
        (USAGE[:-2], b""),
    ],
)
def test_a_last_event_without_its_blank_line_is_completed(rest: bytes, expected: bytes) -> None:
    """Servers forget the last line end; the event is whole all the same."""
    state = running()
    state.feed(STOP)
    assert state.feed(rest) == b""

    assert state.end() == expected
    assert state.complete


@pytest.mark.parametrize(("rest", "malformed"), [(b'data: {"choices":[{"de', 1), (b"data: 17", 1), (b": half a com", 0), (b"dat", 0)])
def test_half_an_event_at_the_end_is_not_relayed(rest: bytes, malformed: int) -> None:
    """It would run into whatever the gateway says next."""
    state = running()
    state.feed(rest)

    assert state.end() == b""
    assert malformed == state.malformed
    assert not state.complete


def test_after_done_everything_is_ignored() -> None:
    """Nothing a server says after `[DONE]` reaches the client or the books."""
    state = running()

    assert state.feed(DONE + HELLO) == DONE
    assert state.feed(USAGE) == b""
    assert state.end() == b""
    assert state.usage is None
    assert state.complete


def test_the_lf_of_a_line_end_cut_in_two_follows_its_event() -> None:
    """CRLF cut between CR and LF: relayed after a relayed event, dropped after a dropped one."""
    state = running()
    crlf_done = DONE.replace(b"\n", b"\r\n")
    crlf_usage = USAGE.replace(b"\n", b"\r\n")

    assert state.feed(crlf_usage[:-1]) == b""
    assert state.feed(b"\n") == b""
    assert state.feed(crlf_done[:-1]) == crlf_done[:-1]
    assert state.feed(b"") == b""
    assert state.feed(b"\n") == b"\n"
    assert state.feed(b"\n") == b""


def test_the_lf_of_a_line_end_cut_in_two_is_dropped_after_an_event_written_anew() -> None:
    """Such an event ends in line ends of its own: one more would be an empty event."""
    state = running()
    event = b'data: {"choices":[{"index":0,"delta":{"content":"a"}}],"usage":[]}\r\n\r\n'

    written = state.feed(event[:-1])
    assert written.endswith(b"}]}\n\n")
    assert state.feed(b"\n") == b""
    assert state.feed(HELLO) == HELLO


# ── what goes wrong ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("event", [b"data: {broken\n\n", b"data:\n\n", b"data: <html>\n\n", b"data: " + b"[" * 100_000 + b"\n\n"])
def test_a_malformed_event_is_skipped_and_counted(event: bytes) -> None:
    """One broken event does not end the stream, and the client never sees it."""
    state = running()

    assert state.feed(HELLO + event + HELLO) == HELLO + HELLO
    assert state.malformed == 1
    assert state.failure is None


def test_a_stream_of_malformed_events_fails() -> None:
    """Reading on for the sake of one good event would cost more than it gives."""
    state = running()

    assert state.feed(b"data: {broken\n\n" * MAX_MALFORMED + HELLO) == HELLO
    assert state.feed(b"data: {broken\n\n" + HELLO) == b""
    assert state.failure is not None
    assert "not JSON" in state.failure.message
    assert state.malformed == MAX_MALFORMED + 1


@pytest.mark.parametrize(
    ("event", "scope", "status", "phrase"),
    [
        (
            chunk({"delta": {"content": ""}, "finish_reason": "error"}, error={"code": 502, "message": "Provider disconnected"}),
            FailureScope.REPLICA,
            502,
            "Provider disconnected",
        ),
        (b'data: {"error":{"code":"server_error","message":"x"}}\n\n', FailureScope.REPLICA, None, "x"),
        (b'data: {"error":{"code":429,"message":"slow down"}}\n\n', FailureScope.KEY, 429, "slow down"),
        (b'data: {"error":"boom"}\n\n', FailureScope.REPLICA, None, "boom"),
        (chunk({"index": 0, "delta": {}, "finish_reason": "error"}), FailureScope.REPLICA, None, "no reason"),
        (b'event: error\ndata: {"message":"gone"}\n\n', FailureScope.REPLICA, None, "gone"),
        (b'event: error\ndata: "gone"\n\n', FailureScope.REPLICA, None, "gone"),
        (b'data: {"code":"data_inspection_failed","message":"blocked","request_id":"r"}\n\n', FailureScope.REQUEST, None, "blocked"),
    ],
)
@pytest.mark.parametrize("begun", [True, False])
def test_an_error_event_is_withheld_and_becomes_the_failure(
    event: bytes,
    scope: FailureScope,
    status: int | None,
    phrase: str,
    begun: bool,
) -> None:
    """Before output the caller can retry unseen; after three tokens the tokens go out and the error is told in our words."""
    state = running() if begun else codec()

    assert state.feed(HELLO * 3 + event + HELLO + DONE) == HELLO * 3
    assert state.failure is not None
    assert (state.failure.scope, state.failure.status) == (scope, status)
    assert not state.finished
    assert phrase in state.failure.message
    assert not state.complete
    assert state.feed(HELLO) == b""
    assert state.end() == b""


def test_an_error_alone_in_its_chunk_is_noticed_on_the_short_way() -> None:
    """The glance sees `error` and `finish_reason` whatever else the chunk holds."""
    state = running()
    assert state.feed(b'data: {"choices":[{"index":0,"delta":{"content":"x"}}],"error":{"message":"late"}}\n\n') == b""

    assert state.failure is not None


def test_text_that_quotes_our_words_is_only_text() -> None:
    """A model that writes about `"usage"`, `"error"`, `[DONE]` and `finish_reason` does not disturb its own stream."""
    state = running()
    event = chunk(
        {
            "index": 0,
            "delta": {"content": '{"usage":null,"error":{"message":"x"},"finish_reason":"stop"} data: [DONE]'},
            "finish_reason": None,
        }
    )

    assert state.feed(event) is event
    assert (state.failure, state.finished, state.done) == (None, False, False)


def test_an_event_beyond_the_bound_is_a_failure() -> None:
    """Memory is bounded; what cannot be held cannot be understood."""
    state = codec(max_event_bytes=100)

    assert state.feed(ROLE + b"data: " + b"x" * 200) == ROLE
    assert state.failure is not None
    assert state.failure.retryable
    assert state.feed(b"\n\n") == b""


def test_identities_are_bounded_and_must_be_strings() -> None:
    """They go into records."""
    state = codec()
    state.feed(chunk(id=5, model="m" * 1000))
    state.feed(chunk(id="late", model="other"))

    assert state.response_id == "late"
    assert state.response_model == "m" * 256


def test_an_event_that_ends_in_cr_may_be_followed_by_another_at_once() -> None:
    """With CR alone as line end, what comes next is no second half of a CRLF."""
    stream = codec()
    first, second = HELLO.replace(b"\n", b"\r"), STOP.replace(b"\n", b"\r")
    assert first == stream.feed(first)
    assert second == stream.feed(second)
    assert stream.complete
