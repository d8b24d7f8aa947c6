"""Laws of what the gateway says itself and of what it reads besides: any text comes through whole, any input is bounded."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from tidegate.domain.request import Operation, ParsedRequest
from tidegate.domain.units import ModelName
from tidegate.wire.business_context import MAX_CHARS, MAX_MEMBERS, parse_business_context, session_of
from tidegate.wire.own_answers import LONGEST_QUESTION, encode_prepared, question_of, takes_words

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(("role", "content", "text", "type")), inner, max_size=3),
    max_leaves=12,
)
turns = st.lists(st.dictionaries(st.sampled_from(("role", "content")), st.just("user") | json_values, max_size=2), max_size=4)


def _texts(body: bytes, *, stream: bool) -> dict[int, str]:
    """Give the text of each choice, as a client puts it together."""
    if stream:
        *events, done, end = body.split(b"\n\n")
        assert (b"data: [DONE]", b"") == (done, end)
        chunks = [json.loads(event.removeprefix(b"data: ")) for event in events]
    else:
        chunks = [json.loads(body)]
    texts: dict[int, str] = {}
    for choice in (choice for chunk in chunks for choice in chunk["choices"]):
        said = choice.get("text") or (choice.get("message") or choice.get("delta") or {}).get("content") or ""
        texts[choice["index"]] = texts.get(choice["index"], "") + said
    return texts


@given(st.text(), st.sampled_from((Operation.CHAT, Operation.COMPLETION)), st.booleans(), st.booleans(), st.integers(1, 5))
def test_any_text_reaches_every_choice_whole(text: str, operation: Operation, stream: bool, wants_usage: bool, choices: int) -> None:
    """Law: whatever the protocol, each choice says exactly the prepared text, and there is one usage at most."""
    body = b'{"model":"m","prompt":"p","n":%d}' % choices
    request = ParsedRequest(operation, ModelName("m"), body, stream=stream, wants_usage=wants_usage, choices=choices)
    answer = encode_prepared(request, text, request_id="r", created=1)
    assert dict.fromkeys(range(choices), text) == _texts(answer, stream=stream)
    assert (wants_usage or not stream) == (b'"total_tokens":0' in answer)


@given(turns)
def test_any_conversation_has_a_bounded_question(messages: list[dict[str, object]]) -> None:
    """Law: whatever stands in the messages, reading them fails on nothing."""
    body = json.dumps({"model": "m", "messages": messages, "response_format": messages, "tool_choice": messages}).encode()
    request = ParsedRequest(Operation.CHAT, ModelName("m"), body)
    assert len(question_of(request)) <= LONGEST_QUESTION
    takes_words(request)


@given(st.binary(max_size=300) | st.text().map(str.encode) | json_values.map(lambda value: json.dumps({"feature": value}).encode()))
def test_any_context_is_bounded_and_visible(value: bytes) -> None:
    """Law: at most 16 members of at most 64 visible characters, none of them empty."""
    context = parse_business_context(value)
    assert len(context) <= MAX_MEMBERS
    for name, word in context.items():
        assert 1 <= len(name) <= MAX_CHARS
        assert 1 <= len(word) <= MAX_CHARS
        assert (name + word).isprintable()
    assert session_of(value).isprintable()
