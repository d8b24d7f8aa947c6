"""The laws of reading an answer: indifferent to how its bytes were cut, and never upset by what is in them."""

import itertools

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.bench.reading import Answer

SSE = ((b"content-type", b"text/event-stream"),)
JSON = ((b"content-type", b"application/json"),)
FIGURES = (
    "is_complete",
    "failed",
    "error",
    "finish_reason",
    "output_chunks",
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
    "reasoning_tokens",
    "cost_micro",
    "response_bytes",
    "upstream_tries",
    "text",
)

TEXTS = st.text(max_size=6)
SCRAPS = st.one_of(st.none(), st.booleans(), st.integers(-3, 10**20), st.floats(), TEXTS)
JUNK = st.recursive(SCRAPS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=6)
DELTAS = st.fixed_dictionaries(
    {}, optional={"content": TEXTS | JUNK, "reasoning": TEXTS, "reasoning_content": TEXTS | st.none(), "tool_calls": JUNK, "role": TEXTS}
)
CHOICES = st.fixed_dictionaries(
    {}, optional={"index": st.integers(0, 1) | JUNK, "delta": DELTAS | JUNK, "text": TEXTS | JUNK, "finish_reason": TEXTS | st.none()}
)
USAGES = st.fixed_dictionaries(
    {},
    optional={
        "prompt_tokens": st.integers(0, 99) | JUNK,
        "completion_tokens": st.integers(0, 99),
        "prompt_tokens_details": st.fixed_dictionaries({"cached_tokens": st.integers(0, 9)}) | JUNK,
        "cost": st.floats(0, 1) | JUNK,
    },
)
CHUNKS = st.fixed_dictionaries(
    {}, optional={"choices": st.lists(CHOICES, max_size=2) | JUNK, "usage": USAGES | JUNK, "error": JUNK, "timings": JUNK}
)
ENDS = st.sampled_from([b"\n\n", b"\r\n\r\n", b"\r\r"])
BLOCKS = st.one_of(
    CHUNKS.map(lambda chunk: b"data: " + msgspec.json.encode(chunk)),
    CHUNKS.map(lambda chunk: b"data:" + msgspec.json.encode(chunk).replace(b"{", b"{\ndata: ", 1)),
    st.sampled_from([b": ping", b"data: [DONE]", b'event: error\ndata: {"message":"no"}', b"data: {", b"", b"\xef\xbb\xbfdata: {}"]),
)


def figures(answer: Answer) -> list[object]:
    return [getattr(answer, name) for name in FIGURES]


def read(body: bytes, cuts: list[int], *, stream: bool = True) -> Answer:
    answer = Answer(SSE if stream else JSON, asked_stream=stream, keeps_text=True)
    edges = [0, *sorted(cut % (len(body) + 1) for cut in cuts), len(body)]
    for start, end in itertools.pairwise(edges):
        answer.feed(body[start:end], 1.0)
    answer.end(1.0)
    return answer


@settings(max_examples=200)
@given(
    blocks=st.lists(st.tuples(BLOCKS, ENDS), max_size=6).map(lambda pairs: b"".join(block + end for block, end in pairs)),
    cuts=st.lists(st.integers(0, 10_000), max_size=8),
)
def test_the_cuts_make_no_difference(blocks: bytes, cuts: list[int]) -> None:
    """A stream read at once and in any pieces says the same."""
    assert figures(read(blocks, [])) == figures(read(blocks, cuts))


@settings(max_examples=100)
@given(body=st.one_of(CHUNKS.map(msgspec.json.encode), st.binary(max_size=60)), cuts=st.lists(st.integers(0, 10_000), max_size=4))
def test_a_whole_answer_likewise(body: bytes, cuts: list[int]) -> None:
    """Also when it is none."""
    assert figures(read(body, [], stream=False)) == figures(read(body, cuts, stream=False))


@settings(max_examples=100)
@given(junk=st.binary(max_size=80))
def test_no_bytes_upset_it(junk: bytes) -> None:
    """Whatever a server sends is read to its end, and what is not an answer is not complete."""
    answer = read(b"data: " + junk + b"\n\n", [])
    assert answer.response_bytes == len(junk) + 8


@settings(max_examples=100)
@given(reads=st.lists(st.tuples(st.floats(0.001, 5.0), st.lists(st.sampled_from(["", "a", "bc"]), min_size=1, max_size=3)), max_size=12))
def test_gaps_lie_between_reads_with_output(reads: list[tuple[float, list[str]]]) -> None:
    """They add up to the time from the first output to the last, and each says how many chunks it brought."""
    answer = Answer(SSE, asked_stream=True)
    at = 0.0
    output: list[tuple[float, int]] = []
    for pause_s, contents in reads:
        at += pause_s
        chunks = [{"choices": [{"index": 0, "delta": {"content": text}}]} for text in contents]
        answer.feed(b"".join(b"data: %b\n\n" % msgspec.json.encode(chunk) for chunk in chunks), at)
        if any(contents):
            output.append((at, sum(map(bool, contents))))
    assert sum(count for _, count in output) == answer.output_chunks
    assert [count for _, count in output[1:]] == [*answer.gap_chunks]
    assert [later - earlier for (earlier, _), (later, _) in itertools.pairwise(output)] == [*answer.gaps_s]
    assert max(answer.gaps_s, default=0.0) == answer.longest_gap_s
