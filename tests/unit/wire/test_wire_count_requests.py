"""Requests of Anthropic's and OpenAI's newer dialects are read as the chat request that says the same."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tidegate.domain.request import Operation, ParsedRequest
from tidegate.domain.units import ModelName
from tidegate.errors import ClientError, InvalidParameter
from tidegate.ports import TokenCount
from tidegate.wire.anthropic_messages import PDF_TOKENS, read_messages_request
from tidegate.wire.chat_form import ChatCall, ChatForm, ChatFunction, ChatMessage, ChatPart, ImageUrl, ReadForm
from tidegate.wire.count_requests import count_answer
from tidegate.wire.openai import parse_request
from tidegate.wire.responses_input import read_responses_request

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
FUNCTION = {"type": "function", "function": {"name": "weather", "description": "Looks out.", "parameters": SCHEMA}}


def claude(**members: Any) -> ReadForm:
    return read_messages_request(json.dumps(members).encode())


def said(read: ReadForm) -> list[ChatMessage]:
    assert read.form.messages is not None
    return read.form.messages


def text(words: str) -> list[ChatPart]:
    return [ChatPart(text=words)]


# ── Anthropic ─────────────────────────────────────────────────────────────────


def test_system_and_turns_keep_their_order() -> None:
    """The system's words come first, as a string or as blocks, then the turns."""
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": [{"type": "text", "text": "Hello"}]}]
    expected = [ChatMessage("system", text("Be kind.")), ChatMessage("user", text("Hi")), ChatMessage("assistant", text("Hello"))]
    assert claude(system="Be kind.", messages=turns) == ReadForm(ChatForm(expected))
    assert claude(system=[{"type": "text", "text": "Be kind."}], messages=turns) == ReadForm(ChatForm(expected))


def test_tools_calls_and_results_take_chats_shape() -> None:
    """A tool becomes a function, its use a call of the assistant, its result a message of its own before the user's words."""
    read = claude(
        tools=[{"name": "weather", "description": "Looks out.", "input_schema": SCHEMA}, {"type": "web_search", "name": "search"}, 7],
        messages=[
            {"role": "assistant", "content": [{"type": "tool_use", "name": "weather", "input": {"city": "Ulm"}}]},
            {"role": "user", "content": [{"type": "tool_result", "content": "mild"}, {"type": "text", "text": "And now?"}]},
            {"role": "user", "content": [{"type": "tool_result", "content": [{"type": "text", "text": "cold"}]}]},
            {"role": "assistant", "content": [{"type": "tool_use", "input": "odd"}]},
        ],
    )
    assert read.form.tools == [FUNCTION, {"type": "web_search", "name": "search"}, {"tool": 7}]
    assert said(read) == [
        ChatMessage("assistant", [], tool_calls=[ChatCall(ChatFunction("weather", {"city": "Ulm"}))]),
        ChatMessage("tool", text("mild")),
        ChatMessage("user", text("And now?")),
        ChatMessage("tool", text("cold")),
        ChatMessage("assistant", [], tool_calls=[ChatCall(ChatFunction("", {}))]),
    ]


def test_thoughts_pictures_and_schemas() -> None:
    """Thoughts go where chat templates look for them; a picture gets an address; a schema of the answer is kept."""
    read = claude(
        thinking={"type": "disabled"},
        output_config={"format": {"type": "json_schema", "schema": SCHEMA}},
        messages=[
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Yes."}]},
            {
                "role": "user",
                "content": [
                    {"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": "R0lG"}},
                    {"type": "image", "source": {"type": "base64", "data": "iVBO"}},
                    {"type": "image", "source": {"type": "url", "url": "http://h/p.png"}},
                    {"type": "image", "source": 5},
                ],
            },
        ],
    )
    addresses = ["data:image/gif;base64,R0lG", "data:image/png;base64,iVBO", "http://h/p.png", ""]
    assert said(read) == [
        ChatMessage("assistant", text("Yes."), reasoning_content="hm"),
        ChatMessage("user", [ChatPart("image_url", image_url=ImageUrl(address)) for address in addresses]),
    ]
    assert read.form.enable_thinking is False
    assert json.loads(bytes(read.form.response_format)) == {"type": "json_schema", "schema": SCHEMA}
    assert read.exact


def test_documents_are_read_or_measured() -> None:
    """Text in a document is counted as text, a PDF by its size, and what is unknown as the JSON it is; none of it is exact."""
    blocks: list[dict[str, Any]] = [
        {"type": "document", "title": "Terms", "source": {"type": "text", "data": "All is well."}},
        {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "Part."}]}},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "x" * 400_000}},
        {"type": "document", "source": {"type": "url", "url": "http://h/d.pdf"}},
        {"type": "search_result", "title": "Hit", "source": "http://h", "content": [{"type": "text", "text": "Found."}]},
        {"type": "unheard_of", "x": 1},
    ]
    read = claude(messages=[{"role": "user", "content": blocks}])
    words = ["Terms", "All is well.", "Part.", "Hit", "http://h", "Found.", '{"type":"unheard_of","x":1}']
    assert said(read) == [ChatMessage("user", [ChatPart(text=word) for word in words])]
    assert (read.extra_tokens, read.exact) == (10_000 + PDF_TOKENS, False)


def test_odd_members_are_as_good_as_absent() -> None:
    """Nothing that a client can put anywhere raises."""
    assert claude(system=5, messages=[7, {"role": 3, "content": {}}, {"content": None}], tools="x") == ReadForm(
        ChatForm([ChatMessage("user", []), ChatMessage("user", []), ChatMessage("user", [])])
    )


# ── OpenAI's Responses ────────────────────────────────────────────────────────


def responses(**members: Any) -> ReadForm:
    return read_responses_request(json.dumps(members).encode())


def test_instructions_and_a_question() -> None:
    """Instructions are the system's words; a string is the user's."""
    expected = [ChatMessage("system", "Be kind."), ChatMessage("user", "Hi")]
    assert responses(instructions="Be kind.", input="Hi") == ReadForm(ChatForm(expected))
    assert responses() == ReadForm(ChatForm([]))


def test_items_become_messages() -> None:
    """Messages, calls, their results and thoughts each find their place; two calls in a row belong to one message."""
    read = responses(
        input=[
            {"role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
            {"type": "function_call", "name": "weather", "arguments": '{"city":"Ulm"}'},
            {"type": "function_call", "name": "clock", "arguments": 5},
            {"type": "function_call_output", "output": "mild"},
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "Mild."}, {"type": "refusal", "refusal": "No."}],
            },
        ],
        tools=[
            {"type": "function", "name": "weather", "description": "Looks out.", "parameters": SCHEMA, "strict": True},
            {"type": "web"},
            7,
        ],
    )
    calls = [ChatCall(ChatFunction("weather", '{"city":"Ulm"}')), ChatCall(ChatFunction("clock", ""))]
    assert said(read) == [
        ChatMessage("user", text("Weather?")),
        ChatMessage("assistant", tool_calls=calls),
        ChatMessage("tool", text("mild")),
        ChatMessage("assistant", [ChatPart(text="Mild."), ChatPart(text="No.")]),
    ]
    assert read.form.tools == [FUNCTION, {"type": "web"}, {"tool": 7}]
    assert read.exact


def test_a_call_can_be_the_first_item() -> None:
    """A call without a message before it begins one."""
    assert said(responses(input=[{"type": "function_call", "name": "f"}])) == [
        ChatMessage("assistant", tool_calls=[ChatCall(ChatFunction("f", ""))])
    ]


def test_pictures_files_schemas_and_effort() -> None:
    """A picture keeps its detail, a file is measured, a schema is kept, and no effort is no thinking."""
    read = responses(
        input=[
            {
                "role": "user",
                "content": [
                    {"type": "input_image", "image_url": "data:x", "detail": "low"},
                    {"type": "input_file", "file_id": "f"},
                    {"type": "input_file", "file_data": "x" * 80_000},
                    {"type": "input_video", "n": 1},
                ],
            },
        ],
        text={"format": {"type": "json_schema", "schema": SCHEMA}},
        reasoning={"effort": "none"},
    )
    assert said(read) == [
        ChatMessage("user", [ChatPart("image_url", image_url=ImageUrl("data:x", "low")), ChatPart(text='{"type":"input_video","n":1}')])
    ]
    assert (read.extra_tokens, read.exact, read.form.enable_thinking) == (PDF_TOKENS + 2_000, False, False)
    assert b"json_schema" in bytes(read.form.response_format)


@pytest.mark.parametrize(
    "members",
    [
        {"previous_response_id": "resp_1", "input": "x"},
        {"conversation": "conv_1", "input": "x"},
        {"input": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}]},
        {"input": [{"type": "item_reference", "id": "msg_1"}]},
        {"input": [5]},
    ],
)
def test_what_is_not_all_here_is_not_exact(members: dict[str, Any]) -> None:
    """Earlier turns at the provider, summaries of thoughts, references and unknown entries make the count an approximation."""
    assert responses(**members).exact is False


# ── heads and answers ─────────────────────────────────────────────────────────


def test_the_heads_are_checked() -> None:
    """A model is needed, and for Anthropic at least one message; the rest of the body is looked at where it is counted."""
    body = b'{"model":"m","messages":[{"role":"user","content":5}]}'
    assert parse_request(Operation.COUNT_MESSAGES, body) == ParsedRequest(Operation.COUNT_MESSAGES, ModelName("m"), body)
    twice = b'{"model":"m","model":"m","input":[{}]}'
    assert parse_request(Operation.COUNT_RESPONSES, twice) == ParsedRequest(Operation.COUNT_RESPONSES, ModelName("m"), twice)
    for operation, wrong, param in (
        (Operation.COUNT_MESSAGES, b'{"model":"m","messages":[]}', "messages"),
        (Operation.COUNT_MESSAGES, b'{"model":"m"}', "messages"),
        (Operation.COUNT_RESPONSES, b'{"input":"x"}', "model"),
        (Operation.COUNT_RESPONSES, b'{"model":"m","input":5}', "input"),
    ):
        refused = parse_request(operation, wrong)
        assert isinstance(refused, InvalidParameter)
        assert refused.param == param
    assert isinstance(parse_request(Operation.COUNT_MESSAGES, b"x"), ClientError)


def test_an_estimate_is_parsed_as_the_chat_request_it_is_about() -> None:
    """What is sent for an estimate is a chat body, with its cap and choices."""
    parsed = parse_request(Operation.ESTIMATE, b'{"model":"m","max_tokens":7,"n":2,"messages":[{"role":"user","content":"x"}]}')
    assert isinstance(parsed, ParsedRequest)
    assert (parsed.operation, parsed.max_completion_tokens, parsed.choices) == (Operation.CHAT, 7, 2)


def test_answers_have_their_dialects_shape() -> None:
    """Each protocol gets the members that it knows."""
    count = TokenCount(31, "qwen3.6", exact=False)
    assert count_answer(Operation.COUNT_MESSAGES, count) == b'{"input_tokens":31}'
    assert count_answer(Operation.COUNT_RESPONSES, count) == b'{"object":"response.input_tokens","input_tokens":31}'
    assert msgspec.json.decode(count_answer(Operation.TOKENIZE, count))["count"] == 31
