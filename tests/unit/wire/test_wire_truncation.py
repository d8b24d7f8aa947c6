"""The end that the gateway writes for a stream it stops: the official SDK reads every shape of it, and it says why."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx2
import openai
import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletionChunk

from tidegate.domain.request import Operation
from tidegate.domain.usage import Usage
from tidegate.wire.dialects import DIALECTS
from tidegate.wire.stream import StreamCodec

USAGE = Usage(prompt_tokens=9, completion_tokens=4)
MARK = {"reason": "token_limit", "rule": "acme-tokens"}
Choices = list[dict[str, object]]


def codec(operation: Operation = Operation.CHAT, *, hide_usage: bool = True) -> StreamCodec:
    return StreamCodec(operation=operation, dialect=DIALECTS["openai"], hide_usage=hide_usage)


def chunk(*choices: dict[str, object], **members: object) -> bytes:
    kind = "chat.completion.chunk" if any("delta" in choice for choice in choices) else "text_completion"
    head = {"id": "c-1", "object": kind, "created": 1_700_000_000, "model": "qwen3.6-plus"}
    return b"data: " + json.dumps(head | {"choices": choices} | members, separators=(",", ":")).encode() + b"\n\n"


def delta(index: int = 0, finish_reason: str | None = None, **members: object) -> dict[str, object]:
    return {"index": index, "delta": members, "finish_reason": finish_reason}


def truncated(state: StreamCodec, *events: bytes) -> bytes:
    """Give a whole stream: what was relayed, and the end."""
    return b"".join(map(state.feed, events)) + state.truncate(USAGE, reason="token_limit", rule="acme-tokens")


def contents(stream: bytes) -> list[Any]:
    """Decode all events before the last, which ends the stream."""
    *events, done, rest = stream.split(b"\n\n")
    assert (b"data: [DONE]", b"") == (done, rest)
    return [json.loads(event.removeprefix(b"data: ")) for event in events]


def sdk(stream: bytes) -> openai.OpenAI:
    """A client whose server answers every call with this stream."""
    transport = httpx2.MockTransport(lambda _: httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=stream))
    return openai.OpenAI(base_url="http://gateway/v1", api_key="k", max_retries=0, http_client=httpx2.Client(transport=transport))


# ── what is written ──────────────────────────────────────────────────────────────


def test_an_open_choice_is_finished_with_the_streams_own_id_model_and_time() -> None:
    """The end is one more chunk of the same stream, that says which limit it was."""
    (_, end) = contents(truncated(codec(), chunk(delta(content="hello"))))
    choice = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "length"}
    head = {"id": "c-1", "created": 1_700_000_000, "model": "qwen3.6-plus", "object": "chat.completion.chunk"}
    assert head | {"tidegate": MARK, "choices": [choice]} == end


def test_every_open_choice_gets_a_chunk_and_a_finished_one_none() -> None:
    """Clients look at the first choice of each chunk, so that each has its own."""
    events = (
        chunk(delta(2, content="c")),
        chunk(delta(0, content="a")),
        chunk(delta(1, content="b")),
        chunk(delta(0, "stop")),
    )
    ends = contents(truncated(codec(), *events))[4:]
    assert [(1, "length"), (2, "length")] == [(end["choices"][0]["index"], end["choices"][0]["finish_reason"]) for end in ends]
    assert [1, 1] == [len(end["choices"]) for end in ends]


def test_a_completion_is_finished_in_its_own_shape() -> None:
    """It has a text where a chat has a delta."""
    (_, end) = contents(truncated(codec(Operation.COMPLETION), chunk({"index": 0, "text": "hello", "finish_reason": None})))
    assert end["object"] == "text_completion"
    assert [{"index": 0, "text": "", "logprobs": None, "finish_reason": "length"}] == end["choices"]


def test_usage_is_for_a_client_that_asked() -> None:
    """It comes in a chunk of its own without choices, which carries the mark too, since it is the last."""
    (_, end, usage) = contents(truncated(codec(hide_usage=False), chunk(delta(content="hello"), usage=None)))
    assert end["usage"] is None
    assert ([], MARK) == (usage["choices"], usage["tidegate"])
    assert {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13} == usage["usage"]


def test_what_the_upstream_left_out_is_left_out() -> None:
    """Nothing is invented: no id, no model, no time."""
    (_, end) = contents(truncated(codec(), b'data: {"choices":[{"index":0,"delta":{"content":"x"}}],"created":"soon"}\n\n'))
    assert {"object", "tidegate", "choices"} == set(end)


def test_what_comes_after_the_end_is_ignored() -> None:
    """The upstream may have sent more before it learns that it was left."""
    state = codec()
    truncated(state, chunk(delta(content="hello")))
    assert state.feed(chunk(delta(content="more"))) == b""
    assert state.feed(b"data: [DONE]\n\n") == b""
    assert state.end() == b""
    assert state.chunks == 1


@pytest.mark.parametrize("line_end", ["\r\n", "\r"])
def test_the_end_follows_any_line_end(line_end: str) -> None:
    """A stream with carriage returns is cut between two events like any other."""
    event = chunk(delta(content="hello")).replace(b"\n", line_end.encode())
    stream = truncated(codec(), event)
    assert stream.startswith(event)
    assert stream.removeprefix(event).startswith(b'data: {"id":"c-1"')


# ── what the SDK reads ───────────────────────────────────────────────────────────

TOOL = chunk(delta(tool_calls=[{"index": 0, "id": "call_7", "type": "function", "function": {"name": "weather", "arguments": ""}}]))
ARGUMENTS = chunk(delta(tool_calls=[{"index": 0, "function": {"arguments": '{"city": "Hang'}}]))
CHATS: dict[str, tuple[bytes, ...]] = {
    "text": (chunk(delta(role="assistant", content="")), chunk(delta(content="hello"))),
    "tool": (chunk(delta(role="assistant", content=None)), TOOL, ARGUMENTS),
    "several": (chunk(delta(0, content="a")), chunk(delta(1, content="b")), chunk(delta(1, "stop"))),
    "thoughts": (chunk(delta(role="assistant", content=None, reasoning_content="hm")),),
}


@pytest.mark.parametrize("hide_usage", [True, False], ids=["without-usage", "with-usage"])
@pytest.mark.parametrize("events", CHATS.values(), ids=CHATS.keys())
def test_the_sdk_reads_a_truncated_chat(events: tuple[bytes, ...], *, hide_usage: bool) -> None:
    """Chunk by chunk, and strictly by its types: the stream ends without an exception, and with `length`."""
    stream = truncated(codec(hide_usage=hide_usage), *events)
    for content in contents(stream):
        ChatCompletionChunk.model_validate(content)
    chunks = list(sdk(stream).chat.completions.create(model="m", messages=[], stream=True))
    reasons = {choice.index: choice.finish_reason for chunk in chunks for choice in chunk.choices if choice.finish_reason}
    assert reasons.pop(0) == "length"
    assert reasons in ({}, {1: "stop"})
    assert {"id": "c-1", "model": "qwen3.6-plus"} == {"id": chunks[-1].id, "model": chunks[-1].model}
    assert chunks[-1].to_dict()["tidegate"] == MARK
    assert hide_usage is (chunks[-1].usage is None)


@pytest.mark.parametrize("events", CHATS.values(), ids=CHATS.keys())
def test_the_sdks_stream_helper_sees_an_answer_that_was_cut(events: tuple[bytes, ...]) -> None:
    """All events come; asked for the whole, the helper raises what it raises for any answer with `length`, with the answer in it."""
    with sdk(truncated(codec(), *events)).chat.completions.stream(model="m", messages=[]) as stream:
        kinds = [event.type for event in stream]
        with pytest.raises(openai.LengthFinishReasonError) as cut:
            stream.get_final_completion()
    assert "chunk" in kinds
    assert cut.value.completion.choices[0].finish_reason == "length"


def test_the_sdk_reads_a_truncated_completion() -> None:
    """The older shape likewise."""
    events = [chunk({"index": index, "text": "x", "finish_reason": None, "logprobs": None}) for index in range(2)]
    stream = truncated(codec(Operation.COMPLETION, hide_usage=False), *events)
    for content in contents(stream)[2:]:
        Completion.model_validate(content)
    chunks = list(sdk(stream).completions.create(model="m", prompt="x", stream=True))
    ends = [(chunk.choices[0].index, chunk.choices[0].finish_reason) for chunk in chunks[2:4]]
    assert [(0, "length"), (1, "length")] == ends
    assert chunks[-1].usage is not None


# ── how much text flowed ─────────────────────────────────────────────────────────


def _short(event: bytes) -> tuple[StreamCodec, int]:
    state = codec()
    state.feed(chunk(delta(content="x")))
    state.feed(event)
    return state, state.text_bytes


def _long(event: bytes) -> tuple[StreamCodec, int]:
    state = codec()
    state.feed(chunk(delta(content="x")))
    state.feed(b": a comment before it\n\n" + event)
    return state, state.text_bytes


@pytest.mark.parametrize("measured", [_short, _long], ids=["short-way", "long-way"])
@pytest.mark.parametrize(
    ("event", "size"),
    [
        (chunk(delta(content="hello")), 5),
        (chunk(delta(content="a")), 0),  # too short to be told from `null`
        (chunk(delta(content="")), 0),
        (chunk(delta(reasoning_content="because")), 7),
        (chunk(delta(reasoning="because", reasoning_content="because")), 7),
        (chunk(delta(reasoning="because", content="")), 7),
        (ARGUMENTS, 17),  # its three quotes have a backslash each
        (chunk(delta(tool_calls=[{"index": 0}])), 0),
        (chunk({"index": 0, "text": "hello", "finish_reason": None}), 5),
        (chunk(delta(content="天地")), 12),  # written as two escapes of six bytes
        (chunk(delta(content="hello"), delta(content="wide world")), 15),
        (chunk({"index": 0, "delta": "of an odd type", "finish_reason": None}), 0),
    ],
)
def test_the_texts_of_a_stream_are_measured(measured: Callable[[bytes], tuple[StreamCodec, int]], event: bytes, size: int) -> None:
    """Texts, thoughts and arguments of tool calls count; names and structure do not, and either way through the codec measures the same."""
    assert size == measured(event)[1]


def test_a_chunk_of_several_events_is_measured_once() -> None:
    """Whether the last of them ends the answer, so that all go the long way, or not."""
    state = codec()
    state.feed(chunk(delta(content="x")))
    state.feed(chunk(delta(content="abc")) * 3)
    assert state.text_bytes == 9
    state.feed(chunk(delta(content="abc")) * 2 + chunk(delta(0, "stop", content="xyz")))
    assert state.text_bytes == 18


def test_an_error_is_no_output() -> None:
    """What is withheld from the client does not count as text that flowed."""
    state = codec()
    state.feed(chunk(delta(content="x")))
    state.feed(chunk(delta(content="abc"), error={"message": "boom"}))
    assert state.text_bytes == 0
