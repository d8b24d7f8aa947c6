"""Prompts of other dialects, pictures and schemas: counted as the chat request that says the same, and never a fault."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.adapters.counting.prompt import AUDIO_TOKENS, TOOL_PREAMBLE_TOKENS, render
from tidegate.adapters.counting.service import ENGINE_COUNTS, TokenCountService
from tidegate.domain.request import Operation, ParsedRequest
from tidegate.domain.units import ModelName
from tidegate.ports import TokenCount
from tidegate.wire.anthropic_messages import PDF_TOKENS
from tidegate.wire.picture_size import LOW_DETAIL_TOKENS, UNKNOWN_PICTURE_TOKENS

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}


def encoded(**members: Any) -> bytes:
    return json.dumps({"model": "m", **members}).encode()


CHAT = encoded(
    messages=[
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "weather", "arguments": {"city": "Ulm"}}}]},
        {"role": "tool", "content": "mild"},
    ],
    tools=[TOOL],
)
CLAUDE = encoded(
    system="Be kind.",
    messages=[
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "weather", "input": {"city": "Ulm"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "mild"}]},
    ],
    tools=[{"name": "weather", "input_schema": SCHEMA}],
)
RESPONSES = encoded(
    instructions="Be kind.",
    input=[
        {"role": "user", "content": "Weather?"},
        {"type": "function_call", "call_id": "1", "name": "weather", "arguments": '{"city": "Ulm"}'},
        {"type": "function_call_output", "call_id": "1", "output": "mild"},
    ],
    tools=[{"type": "function", "name": "weather", "parameters": SCHEMA}],
)


def test_one_conversation_is_one_prompt_in_three_dialects() -> None:
    """The model would see the same text, so the count is the same."""
    chat = render(Operation.CHAT, CHAT)
    assert chat is not None
    assert (chat.extra_tokens, chat.exact) == (TOOL_PREAMBLE_TOKENS, False)
    assert render(Operation.COUNT_MESSAGES, CLAUDE) == chat
    assert render(Operation.COUNT_RESPONSES, RESPONSES) == chat


def test_what_has_no_text_adds_its_allowance() -> None:
    """Pictures by size or as a megapixel, a recording, and documents; none of it is exact."""
    parts = [
        {"type": "image_url", "image_url": {"url": "http://h/p.png"}},
        {"type": "image_url", "image_url": {"url": "http://h/p.png", "detail": "low"}},
        {"type": "image_url", "image_url": "http://h/p.png"},
        {"type": "input_audio", "input_audio": {"data": "x"}},
        {"type": "unheard_of"},
    ]
    rendered = render(Operation.CHAT, encoded(messages=[{"role": "user", "content": parts}]))
    assert rendered is not None
    assert (rendered.extra_tokens, rendered.exact) == (3 * UNKNOWN_PICTURE_TOKENS + LOW_DETAIL_TOKENS + AUDIO_TOKENS, False)
    document = [{"type": "document", "source": {"type": "url", "url": "http://h/d.pdf"}}]
    rendered = render(Operation.COUNT_MESSAGES, encoded(messages=[{"role": "user", "content": document}]))
    assert rendered is not None
    assert (rendered.extra_tokens, rendered.exact) == (PDF_TOKENS, False)


@pytest.mark.parametrize(
    ("wish", "exact", "counted"), [({"type": "json_object"}, True, False), ({"type": "json_schema", "json_schema": SCHEMA}, False, True)]
)
def test_a_schema_of_the_answer_is_counted(wish: dict[str, Any], exact: bool, counted: bool) -> None:
    """JSON alone adds nothing; a schema may be shown to the model, so it is counted and the count is not exact."""
    rendered = render(Operation.CHAT, encoded(messages=[{"role": "user", "content": "x"}], response_format=wish))
    assert rendered is not None
    assert (rendered.exact, any('"city"' in text for text in rendered.texts)) == (exact, counted)


def test_what_cannot_be_read_is_not_rendered() -> None:
    """Neither a wrong shape nor an endless nesting is a fault: the answer is a guess then."""
    deep = b'{"model":"m","messages":[{"role":"user","content":' + b"[" * 900 + b"]" * 900 + b"}]}"
    deeper = b'{"model":"m","tools":' + b'[{"a":' * 5_000 + b"1" + b"}]" * 5_000 + b"}"
    for operation in (Operation.COUNT_MESSAGES, Operation.COUNT_RESPONSES):
        assert render(operation, b"[]") is None
        assert render(operation, deeper) is None
        assert render(operation, deep) is not None


VALUES = st.recursive(
    st.none()
    | st.integers()
    | st.text(max_size=5)
    | st.sampled_from(["text", "tool_use", "tool_result", "image", "document", "input_file"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "text", "role", "content", "source", "input", "output", "name", "data", "url"]), inner, max_size=5
        )
    ),
    max_leaves=15,
)


@given(
    operation=st.sampled_from([Operation.COUNT_MESSAGES, Operation.COUNT_RESPONSES]),
    members=st.dictionaries(
        st.sampled_from(["messages", "input", "system", "instructions", "tools", "thinking", "text", "output_config"]), VALUES, max_size=5
    ),
)
def test_law_any_object_is_rendered(operation: Operation, members: dict[str, Any]) -> None:
    """Every JSON object becomes a prompt that can be counted."""
    rendered = render(operation, msgspec.json.encode({"model": "m", **members}))
    assert rendered is not None
    assert rendered.extra_tokens >= 0
    assert all(isinstance(text, str) for text in rendered.texts)


@pytest.mark.parametrize("operation", list(ENGINE_COUNTS))
def test_the_engine_is_asked_in_the_requests_own_dialect(operation: Operation) -> None:
    """It knows all three, and applies its own template; each answer is remembered for its own path."""
    asked: list[str] = []

    async def fetch(path: str, body: bytes, deadline_s: float) -> tuple[int, bytes]:
        assert (body, deadline_s > 0) == (CHAT, True)
        asked.append(path)
        return 200, b'{"input_tokens":31}'

    async def scene() -> None:
        service = TokenCountService(tokenizer_of=lambda _: "engine", counter=None, engine=fetch)
        request = ParsedRequest(operation, ModelName("small"), CHAT)
        for _ in range(2):
            assert await service.count(request, deadline_s=1.0) == TokenCount(31, "engine", exact=True)

    asyncio.run(scene())
    assert asked == [ENGINE_COUNTS[operation]]
