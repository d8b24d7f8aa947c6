"""Laws of reading a prompt: the way it is written in JSON and split into parts says nothing, and nothing raises."""

from __future__ import annotations

import itertools
import json

from hypothesis import given
from hypothesis import strategies as st

from tidegate.domain.features import PromptFeatures, Trait
from tidegate.domain.request import Operation, ParsedRequest
from tidegate.wire.features import read_features
from tidegate.wire.openai_request import parse_request

pieces = st.sampled_from(
    [
        "Hello there. ",
        "中文文字。",
        "かな",
        "한국어",
        "```",
        "\n",
        "def f(x):",
        "<a>",
        "</a>",
        "<b>1</b>",
        '{"k": 1}',
        "|---|",
        "12 + 7",
        "9,5 ",
        "\\frac",
        "🎉",
        "é",
        "\r\n",
    ]
)
texts = st.lists(pieces | st.text(st.characters(codec="utf-8"), max_size=8), max_size=12).map("".join)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | texts,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["text", "type", "image_url", "input_audio", "role", "content"]), inner, max_size=3)
    ),
    max_leaves=8,
)


def chat(content: object, *, ascii_only: bool = False, **members: object) -> PromptFeatures:
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": content}], **members}, ensure_ascii=ascii_only).encode()
    parsed = parse_request(Operation.CHAT, body)
    assert isinstance(parsed, ParsedRequest)
    return read_features(parsed)


@given(texts, st.lists(st.integers(0, 200), max_size=5))
def test_how_a_text_is_split_into_parts_changes_nothing(text: str, cuts: list[int]) -> None:
    """Law: a text in one string, or in any number of text parts one after the other, has the same features."""
    ends = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    parts = [{"type": "text", "text": text[begin:end]} for begin, end in itertools.pairwise(ends)]
    assert chat(text) == chat(parts) == chat([part["text"] for part in parts])


@given(texts)
def test_how_characters_are_escaped_changes_nothing(text: str) -> None:
    """Law: JSON's spellings of one text have the same features, but for a bound that is looser for longer ones."""
    plain, escaped = chat(text), chat(text, ascii_only=True)
    assert (plain.traits, plain.scripts) == (escaped.traits, escaped.scripts)
    assert plain.prompt_tokens <= escaped.prompt_tokens


@given(values, values)
def test_no_request_that_was_parsed_raises(content: object, tools: object) -> None:
    """Law: whatever shape content and tools have, features come back, in their ranges."""
    features = chat(content, tools=tools, response_format=tools)
    assert features.prompt_tokens >= 0
    assert features.traits <= set(Trait)
    assert all(0 < share <= 1 for _, share in features.scripts)


@given(texts, texts)
def test_a_longer_prompt_is_not_estimated_shorter(text: str, more: str) -> None:
    """Law: adding a message adds tokens."""
    one = {"role": "user", "content": text}
    short, long = (
        parse_request(Operation.CHAT, json.dumps({"model": "m", "messages": messages}).encode())
        for messages in ([one], [one, {"role": "user", "content": more}])
    )
    assert isinstance(short, ParsedRequest)
    assert isinstance(long, ParsedRequest)
    assert read_features(short).prompt_tokens < read_features(long).prompt_tokens
