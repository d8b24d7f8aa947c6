"""Laws of the stream codec: cuts change nothing, and a client that did not ask for usage sees a stream without it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.domain.request import Operation
from tidegate.wire.dialects import DIALECTS
from tidegate.wire.stream import StreamCodec

USAGE = (
    '{"prompt_tokens":9,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":3},'
    '"completion_tokens_details":{"reasoning_tokens":2}}'
)

# ── streams, made of events, made of members ────────────────────────────────────────


def codec(*, hide_usage: bool = True) -> StreamCodec:
    return StreamCodec(operation=Operation.CHAT, dialect=DIALECTS["dashscope"], hide_usage=hide_usage)


def attributes(state: StreamCodec) -> tuple[object, ...]:
    return (
        state.output_started,
        state.finished,
        state.done,
        state.complete,
        state.failure,
        state.usage,
        state.finish_reason,
        state.chunks,
        state.malformed,
        state.response_id,
        state.response_model,
        state.created,
        state.text_bytes,
    )


def run(chunks: Iterator[bytes] | list[bytes], *, hide_usage: bool = True) -> tuple[bytes, tuple[object, ...]]:
    state = codec(hide_usage=hide_usage)
    out = b"".join(state.feed(chunk) for chunk in chunks) + state.end()
    return out, attributes(state)


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    bounds = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return [stream[start:end] for start, end in pairwise(bounds)]


texts = st.text(alphabet=st.sampled_from('天地玄黄 the "tide",\\n😀👩‍🚀usage:null{}[]é'), max_size=8)
choices = st.builds(
    lambda index, field, text, reason: {"index": index, "delta": {field: text}, "finish_reason": reason},
    st.integers(0, 2),
    st.sampled_from(["content", "reasoning", "reasoning_content", "role", "refusal"]),
    texts,
    st.sampled_from([None, None, None, None, "stop", "length", "content_filter", ""]),
)
chunk_objects = st.builds(
    lambda choices, extra: {"id": "chatcmpl-1", "created": 7, "model": "qwen3.6-plus", "choices": choices, **extra},
    st.lists(choices, max_size=2),
    st.sampled_from([{}, {}, {"usage": None}, {"usage": {"prompt_tokens": 5, "completion_tokens": 2}}, {"created": 1e300}]),
)
datas = st.one_of(
    chunk_objects.map(lambda chunk: json.dumps(chunk, ensure_ascii=False, separators=(",", ":"))),
    chunk_objects.map(lambda chunk: json.dumps(chunk, ensure_ascii=True)),
    st.sampled_from(['{"broken', "[DONE]", "[1]", '{"error":{"message":"boom","code":500}}', '{"choices":[],"usage":' + USAGE + "}", "17"]),
)
line_ends = st.sampled_from(["\n", "\n", "\n", "\r\n", "\r"])
events = st.one_of(
    st.builds(lambda data, end, blank: f"data: {data}{end}{blank}", datas, line_ends, line_ends),
    st.builds(lambda data, end, blank: f"event: message{end}data:{data}{end}id: 4{end}{blank}", datas, line_ends, line_ends),
    st.builds(lambda end, blank: f": OPENROUTER PROCESSING{end}{blank}", line_ends, line_ends),
    st.sampled_from(["\n", "\r\n", "\r", 'data: {"choices":[\ndata: {"delta":{"content":"两行"}}]}\n\n', "data\n\n"]),
)
streams = st.builds(
    lambda start, middle, tail: (start + "".join(middle) + tail).encode(),
    st.sampled_from(["", "\ufeff", 'data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\n']),
    st.lists(events, max_size=10),
    st.sampled_from(
        ["", "data: [DONE]\n\n", "data: [DONE]", 'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n', "data: {", ": com"]
    ),
)


@settings(max_examples=400)
@given(streams, st.lists(st.integers(0, 3000), max_size=25), st.booleans())
def test_law_any_split_gives_the_same_output_and_attributes(stream: bytes, places: list[int], hide_usage: bool) -> None:
    """Where the network cut the stream is invisible, in the bytes relayed and in what was learnt."""
    assert run([stream], hide_usage=hide_usage) == run(cut(stream, places), hide_usage=hide_usage)


@settings(max_examples=60)
@given(streams)
def test_law_byte_by_byte_is_like_whole(stream: bytes) -> None:
    """The most extreme split, one byte at a time, is no exception."""
    assert run([stream]) == run([stream[at : at + 1] for at in range(len(stream))])


def chunk_text(members: list[str], *, separator: str) -> str:
    return "{" + separator.join(members) + "}"


@given(
    st.lists(st.tuples(texts, st.integers(0, 4)), min_size=1, max_size=6),
    st.sampled_from([(",", ":"), (", ", ": ")]),
    st.sampled_from(["\n", "\r\n"]),
    st.lists(st.integers(0, 3000), max_size=10),
)
def test_law_hidden_usage_leaves_the_stream_that_was_not_asked(
    pieces: list[tuple[str, int]], separators: tuple[str, str], line_end: str, places: list[int]
) -> None:
    """A stream with `usage: null` in every chunk and a last usage chunk becomes, byte for byte, the one without."""
    comma, colon = separators

    def member(name: str, value: object) -> str:
        return f'"{name}"{colon}{json.dumps(value, ensure_ascii=False, separators=separators)}'

    asked, direct = "", ""
    for text, place in pieces:
        members = [
            member("id", "c-1"),
            member("object", "chat.completion.chunk"),
            member("choices", [{"index": 0, "delta": {"content": text}, "finish_reason": None}]),
        ]
        direct += f"data: {chunk_text(members, separator=comma)}{line_end}{line_end}"
        members.insert(min(place, len(members)), member("usage", None))
        asked += f"data: {chunk_text(members, separator=comma)}{line_end}{line_end}"
    last = chunk_text([member("choices", []), f'"usage"{colon}{USAGE}'], separator=comma)
    done = f"data: [DONE]{line_end}{line_end}"
    asked += f"data: {last}{line_end}{line_end}{done}"
    direct += done

    out, learnt = run(cut(asked.encode(), places))

    assert direct.encode() == out
    assert learnt[5] is not None


@given(streams, st.lists(st.integers(0, 3000), max_size=10))
def test_law_without_hiding_nothing_is_altered(stream: bytes, places: list[int]) -> None:
    """What a client that asked for usage gets is made of the upstream's own lines, in order; only a missing last line end is added."""
    out, _ = run(cut(stream, places), hide_usage=False)
    remaining = iter(stream.splitlines())

    assert all(any(line == candidate for candidate in remaining) for line in out.splitlines() if line)


shapes = st.builds(
    lambda index, lead, field, rest, usage, first: (
        b'data: {"id":"c-1",%b"choices":[{"index":%d,"delta":{%b"%b":' % (usage + b"," if usage and first else b"", index, lead, field),
        b'%b},"finish_reason":null}]%b}\n\n' % (rest, b"," + usage if usage and not first else b""),
    ),
    st.sampled_from([0, 0, 1]),
    st.sampled_from([b"", b'"role":"assistant",', b'"content":"",', b'"content":"early",', b'"reasoning_content":null,']),
    st.sampled_from([b"content", b"content", b"reasoning", b"reasoning_content", b"refusal"]),
    st.sampled_from([b"", b',"reasoning":null', b',"reasoning":"aside"', b',"tool_calls":[{"function":{"arguments":"{}"}}]']),
    st.sampled_from([b"", b'"usage":null', b'"usage": null', b'"usage":{"prompt_tokens":2,"completion_tokens":1}']),
    st.booleans(),
)
literals = st.one_of(
    st.sampled_from(
        [
            b'"usage"',
            b'"ab"',
            b'"abc"',
            b'"a"',
            b'""',
            b"null",
            b"7",
            b'"a"b"',
            b'"\\n"',
            b'"\\"',
            b'"\\\\"',
            b'"a\nb"',
            b'"x\x00y"',
            b'"\xff\xfe"',
        ]
    ),
    st.sampled_from([b'"c-1"', b'"index"', b'","usage":null,"', b'"content"', b'["abc"]', b'"' + b"long" * 30 + b'"']),
    st.binary(max_size=4).map(lambda text: b'"%b"' % text),
    texts.map(lambda text: json.dumps(text, ensure_ascii=False).encode()),
)
ordinary_streams = st.lists(shapes, min_size=1, max_size=3).flatmap(
    lambda used: st.lists(
        st.one_of(
            st.builds(lambda shape, literal: shape[0] + literal + shape[1], st.sampled_from(used), literals),
            st.builds(lambda shape, literal: (shape[0] + literal + shape[1]) * 2, st.sampled_from(used), literals),
            st.sampled_from([b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n', b": still here\n\n"]),
        ),
        min_size=2,
        max_size=12,
    )
)


@settings(max_examples=1000)
@given(ordinary_streams, st.booleans())
def test_law_a_stencil_changes_nothing(chunks: list[bytes], hide_usage: bool) -> None:
    """An event that is only held against an earlier one gives what decoding it gives."""
    start = b'data: {"choices":[{"index":0,"delta":{"content":"x"}},{"index":1,"delta":{"content":"x"}}]}\n\n'
    with_stencils, without = codec(hide_usage=hide_usage), codec(hide_usage=hide_usage)
    without._stencils_left = 0
    for chunk in (start, *chunks):
        assert without.feed(chunk) == with_stencils.feed(chunk)
        assert attributes(without) == attributes(with_stencils)


CJK_STREAM = (
    'data: {"id":"1","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n'
    ": OPENROUTER PROCESSING\n\n"
    'data: {"id":"1","choices":[{"index":0,"delta":{"content":"潮汐👩‍🚀"},"finish_reason":null}],"usage":null}\n\n'
    'data: {"id":"1","choices":[{"index":0,"delta":{"content":"闸门🌊é"},"finish_reason":null}],"usage":null}\n\n'
    'data: {"id":"1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}\n\n'
    f'data: {{"id":"1","choices":[],"usage":{USAGE}}}\n\n'
    "data: [DONE]\n\n"
)


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_a_stream_of_chinese_and_emoji_cut_at_every_byte_is_unharmed(line_end: str) -> None:
    """For every byte offset, both halves together give the same bytes and the same facts."""
    stream = CJK_STREAM.replace("\n", line_end).encode()
    expected = run([stream])

    for at in range(len(stream) + 1):
        assert expected == run([stream[:at], stream[at:]]), at
    assert expected[0].decode().count("潮汐👩‍🚀") == 1
    assert b"usage" not in expected[0]


@given(st.binary(max_size=200), st.lists(st.integers(0, 300), max_size=6))
def test_law_noise_never_breaks_the_codec(noise: bytes, places: list[int]) -> None:
    """Arbitrary bytes in place of a stream cause no exception, and never a stream that looks complete without `[DONE]`."""
    out, learnt = run(cut(noise, places))

    assert len(out) <= len(noise) + 2
    assert not learnt[3] or b"[DONE]" in noise
