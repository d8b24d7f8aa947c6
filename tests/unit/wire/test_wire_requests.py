"""Client bodies: what is taken from them, and how a refusal tells what to do."""

from __future__ import annotations

import json

import pytest

from tidegate.domain.request import Operation, ParsedRequest
from tidegate.errors import ClientError, InvalidJson, InvalidParameter
from tidegate.wire.dialects import DIALECTS
from tidegate.wire.openai import parse_request, rewrite_body

HI = [{"role": "user", "content": "hi"}]


def body_of(**members: object) -> bytes:
    return json.dumps(members, separators=(",", ":"), ensure_ascii=False).encode()


def accepted(operation: Operation, body: bytes) -> ParsedRequest:
    request = parse_request(operation, body)
    assert isinstance(request, ParsedRequest), request
    return request


def refused(operation: Operation, body: bytes) -> ClientError:
    error = parse_request(operation, body)
    assert isinstance(error, ClientError), error
    return error


def chat(**members: object) -> ParsedRequest:
    return accepted(Operation.CHAT, body_of(**{"model": "m", "messages": HI, **members}))


# ── what is taken ───────────────────────────────────────────────────────────────────


def test_a_chat_request_gives_its_head_and_keeps_its_body() -> None:
    """Unknown members stay in the body, byte for byte."""
    body = body_of(
        model="qwen3.6-plus", messages=HI, stream=True, stream_options={"include_usage": True}, n=2, max_tokens=7, weird={"a": [1e300]}
    )
    request = accepted(Operation.CHAT, body)

    assert (request.model, request.stream, request.wants_usage) == ("qwen3.6-plus", True, True)
    assert (request.choices, request.max_completion_tokens) == (2, 7)
    assert body is request.body


@pytest.mark.parametrize(
    ("caps", "expected"),
    [
        ({}, None),
        ({"max_tokens": None}, None),
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 9}, 9),
        ({"max_tokens": 1, "max_completion_tokens": 1000}, 1000),
        ({"max_tokens": 1000, "max_completion_tokens": 1}, 1000),
    ],
)
def test_the_larger_cap_counts(caps: dict[str, object], expected: int | None) -> None:
    """A small `max_tokens` beside a large `max_completion_tokens` must not slip past a limit."""
    assert expected == chat(**caps).max_completion_tokens


def test_null_members_are_absent_members() -> None:
    """SDKs send null for what was not set."""
    request = chat(stream=None, stream_options=None, n=None, max_tokens=None, tools=None)

    assert (request.stream, request.wants_usage, request.choices) == (False, False, 1)
    assert not chat(stream=True, stream_options={"include_usage": None}).wants_usage


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [("tell me", 1), ("", 1), (["a", "b", "c"], 3), ([1, 2, 3], 1), ([[1, 2], [3]], 2)],
)
def test_a_completion_counts_its_prompts(prompt: object, prompts: int) -> None:
    """Answers generated are `n` (or `best_of`, if larger) times the prompts."""
    assert prompts == accepted(Operation.COMPLETION, body_of(model="m", prompt=prompt)).choices
    assert prompts * 4 == accepted(Operation.COMPLETION, body_of(model="m", prompt=prompt, n=2, best_of=4)).choices
    request = accepted(Operation.EMBEDDING, body_of(model="m", input=prompt, stream=True))
    assert (request.stream, request.choices) == (False, 1)


def test_tokenize_takes_a_prompt_or_messages() -> None:
    """As vLLM's."""
    assert accepted(Operation.TOKENIZE, body_of(model="m", prompt="hello")).operation is Operation.TOKENIZE
    assert accepted(Operation.TOKENIZE, body_of(model="m", messages=HI)).prompt_tokens_bound > 0
    for members in ({}, {"prompt": "a", "messages": HI}):
        assert refused(Operation.TOKENIZE, body_of(model="m", **members)).param == "prompt"


# ── refusals ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("members", "param", "phrase"),
    [
        ({"model": None}, "model", "name one"),
        ({"model": ""}, "model", "name one"),
        ({"model": "m" * 257}, "model", "256"),
        ({"model": 5}, "model", "int"),
        ({"messages": []}, "messages", "list of objects"),
        ({"messages": "hi"}, "messages", "list of objects"),
        ({"messages": [{"content": "x"}]}, "messages[0].role", "missing"),
        ({"messages": [*HI, {"role": 5}]}, "messages[1].role", "str"),
        ({"messages": [*HI, "x"]}, "messages[1]", "object"),
        ({"stream": "yes"}, "stream", "true or false"),
        ({"stream_options": True}, "stream_options", "include_usage"),
        ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage", "bool"),
        ({"max_tokens": 0}, "max_tokens", "at least 1"),
        ({"max_tokens": 1.5}, "max_tokens", "whole number"),
        ({"max_completion_tokens": -1}, "max_completion_tokens", "at least 1"),
        ({"max_tokens": 2**31}, "max_tokens", "2147483647"),
        ({"n": 0}, "n", "1 to 128"),
        ({"n": 129}, "n", "1 to 128"),
    ],
)
def test_a_wrong_member_is_named_with_what_to_send(members: dict[str, object], param: str, phrase: str) -> None:
    """`param` is the path of the field, the message says what is wrong and what would be right."""
    error = refused(Operation.CHAT, body_of(**{"model": "m", "messages": HI, **members}))

    assert isinstance(error, InvalidParameter)
    assert param == error.param
    assert phrase in error.message
    assert error.status == 400


@pytest.mark.parametrize(
    ("operation", "body", "param"),
    [
        (Operation.CHAT, b'{"messages":[{"role":"user"}]}', "model"),
        (Operation.CHAT, b'{"model":"m"}', "messages"),
        (Operation.COMPLETION, b'{"model":"m"}', "prompt"),
        (Operation.COMPLETION, b'{"model":"m","prompt":null}', "prompt"),
        (Operation.COMPLETION, b'{"model":"m","prompt":[]}', "prompt"),
        (Operation.COMPLETION, b'{"model":"m","prompt":[[]]}', "prompt"),
        (Operation.COMPLETION, b'{"model":"m","prompt":["a",1]}', "prompt"),
        (Operation.COMPLETION, b'{"model":"m","prompt":[1,-1]}', "prompt"),
        (Operation.EMBEDDING, b'{"model":"m","input":{"a":1}}', "input"),
        (Operation.EMBEDDING, b'{"model":"m","input":7}', "input"),
        (Operation.CHAT, b"[]", None),
        (Operation.CHAT, b'"hi"', None),
    ],
)
def test_a_missing_or_misshapen_member_is_refused(operation: Operation, body: bytes, param: str | None) -> None:
    """The SDK shows the message and the param to its user."""
    error = refused(operation, body)

    assert isinstance(error, InvalidParameter)
    assert param == error.param


@pytest.mark.parametrize(
    ("body", "phrase"),
    [
        (b"", "is empty"),
        (b" \r\n", "is empty"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b"\xff\xfe{\x00", "byte order mark"),
        (b'{"model":"\xff"}', "byte 10 is 0xff"),
        (b'{"model":"m",}', "byte 13"),
        (b'{"model":"m","messages":[{"role":"user"}]} x', "byte 43"),
        (b'{"model":"m"', "after byte 12"),
        (b'{"model":"m","messages":[{"role":"\\ud83d"}]}', "no partner"),
        (b'{"a":' + b"[" * 100_000, "too deeply"),
        (b"model=m&stream=1", "byte 0"),
        (b'{"model":NaN}', "not valid JSON"),
    ],
)
def test_what_is_not_json_is_refused_with_its_position(body: bytes, phrase: str) -> None:
    """The position lets people find it in a 5 MB body."""
    error = refused(Operation.CHAT, body)

    assert isinstance(error, InvalidJson)
    assert phrase in error.message


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b'{"model":"cheap","messages":[{"role":"user"}],"model":"dear"}', "model"),
        (b'{"model": "m", "max_tokens": 1, "messages": [{"role":"user"}], "max_tokens": 1}', "max_tokens"),
        (b'{"stream":true,"model":"m","messages":[{"role":"user"}],"stream":false}', "stream"),
    ],
)
def test_a_decisive_member_given_twice_is_refused(body: bytes, param: str) -> None:
    """The upstream might take the other one: what we limit and what runs must be the same."""
    error = refused(Operation.CHAT, body)

    assert param == error.param
    assert "more than once" in error.message


def test_the_same_name_deeper_down_is_no_repetition() -> None:
    """A tool whose schema has a `model` property is an ordinary tool, with any white space."""
    members = {"model": "m", "messages": HI, "tools": [{"function": {"parameters": {"properties": {"model": {}, "stream": {}}}}}]}
    for body in (
        body_of(**members),
        json.dumps(members).encode(),
        json.dumps(members, indent=2).encode(),
        b"  " + body_of(**members) + b"\n",
    ):
        assert body is accepted(Operation.CHAT, body).body


def test_a_name_written_with_escapes_is_forwarded_plain() -> None:
    """Otherwise a parser that does not decode names would see other members than we do."""
    request = accepted(Operation.CHAT, b'{"model":"a","messages":[{"role":"user"}],"\\u006dodel":"b","x":1.50}')

    assert request.model == "b"
    assert request.body == b'{"model":"b","messages":[{"role":"user"}],"x":1.50}'


@pytest.mark.parametrize("operation", [Operation.MODELS, Operation.MODEL])
def test_operations_without_a_body_are_not_parsed(operation: Operation) -> None:
    """Asking is a fault of the caller."""
    with pytest.raises(AssertionError):
        parse_request(operation, b"{}")


# ── the bound ───────────────────────────────────────────────────────────────────────


def test_the_bound_follows_the_bytes() -> None:
    """A longer text, and tools, raise it."""
    assert chat(messages=[{"role": "user", "content": "x" * 1000}]).prompt_tokens_bound >= 1000
    assert chat(tools=[{"type": "function"}]).prompt_tokens_bound > chat(fools=[{"type": "function"}]).prompt_tokens_bound + 500
    assert chat(functions=[{"name": "f"}]).prompt_tokens_bound > chat(tools=[]).prompt_tokens_bound + 500
    called = [{"role": "assistant", "tool_calls": [{"id": "1"}]}]
    assert chat(messages=called).prompt_tokens_bound > 500


def test_pictures_count_by_a_constant_and_not_by_their_bytes() -> None:
    """A megabyte of base64 is one picture; its allowance is 16,384 tokens."""
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 1_000_000}}
    text = {"type": "text", "text": "what is this?"}
    one = chat(messages=[*HI, {"role": "user", "content": [text, picture]}]).prompt_tokens_bound
    two = chat(messages=[{"role": "user", "content": [text, picture, picture]}]).prompt_tokens_bound
    odd = chat(messages=[{"role": "user", "content": {"image_url": 1}}, {"role": "user", "content": ["image_url"]}]).prompt_tokens_bound

    assert 16_384 < one < 17_000
    assert 32_768 < two < 34_000
    assert odd > 16_384


def test_token_ids_count_by_their_number() -> None:
    """A thousand ids of six digits are a thousand tokens, not seven thousand."""
    ids = list(range(100_000, 101_000))
    request = accepted(Operation.COMPLETION, body_of(model="m", prompt=[ids, ids]))

    assert 2000 <= request.prompt_tokens_bound < 2100
    assert accepted(Operation.COMPLETION, body_of(model="m", prompt="x" * 500)).prompt_tokens_bound >= 500


# ── what the upstream gets ──────────────────────────────────────────────────────────────


def sent(request: ParsedRequest, *, dialect: str, model: str = "m", ask_usage: bool = True) -> bytes:
    return rewrite_body(request, model=model, dialect=DIALECTS[dialect], ask_usage=ask_usage)


def test_nothing_to_change_sends_the_same_bytes() -> None:
    """White space, odd numbers and order survive because nothing is touched."""
    request = accepted(Operation.CHAT, b'{ "messages": [{"role": "user"}], "seed": 1.50e+01, "model": "m" }')

    assert sent(request, dialect="openrouter") is request.body
    thinking = chat(enable_thinking=True)
    assert sent(thinking, dialect="dashscope") is thinking.body


def test_the_model_is_replaced_in_its_place() -> None:
    """Every other value keeps its bytes, even a number that no float can hold."""
    request = accepted(Operation.CHAT, b'{"a": 123456789012345678901234567890, "model": "m", "messages": [ {"role": "user"} ]}')

    assert (
        sent(request, dialect="vllm", model='sm"ol')
        == b'{"a":123456789012345678901234567890,"model":"sm\\"ol","messages":[ {"role": "user"} ]}'
    )


@pytest.mark.parametrize(
    ("members", "dialect", "ask", "expected"),
    [
        ({"stream": True}, "vllm", True, {"include_usage": True}),
        ({"stream": True, "stream_options": None}, "vllm", True, {"include_usage": True}),
        ({"stream": True, "stream_options": {"x": 1, "include_usage": False}}, "openai", True, {"x": 1, "include_usage": True}),
        ({"stream": True}, "openrouter", True, None),
        ({"stream": True}, "vllm", False, None),
        ({}, "vllm", True, None),
    ],
)
def test_usage_is_asked_for_where_asking_is_needed(members: dict[str, object], dialect: str, ask: bool, expected: object) -> None:
    """Only streams, only dialects that need it, only when the caller says so; other options stay."""
    assert expected == json.loads(sent(chat(**members), dialect=dialect, ask_usage=ask)).get("stream_options")


def test_caps_are_renamed_where_only_one_name_is_known() -> None:
    """DashScope and llama.cpp know `max_tokens`; the newer name's value wins where both are given, as it would where both are known."""
    assert json.loads(sent(chat(max_completion_tokens=9, top_p=1), dialect="llamacpp")) == {
        "model": "m",
        "messages": HI,
        "max_tokens": 9,
        "top_p": 1,
    }
    assert json.loads(sent(chat(max_tokens=5, max_completion_tokens=9), dialect="llamacpp")) == {
        "model": "m",
        "messages": HI,
        "max_tokens": 9,
    }
    nested = chat(metadata={"max_completion_tokens": 1})
    assert sent(nested, dialect="llamacpp") is nested.body
    vllm = chat(max_completion_tokens=9)
    assert sent(vllm, dialect="vllm") is vllm.body


@pytest.mark.parametrize(
    ("members", "expected"),
    [({}, False), ({"enable_thinking": True}, True), ({"thinking_budget": 100}, None), ({"reasoning_effort": "low"}, None)],
)
def test_thinking_is_never_left_open_at_dashscope(members: dict[str, object], expected: bool | None) -> None:
    """Off unless the client said something about it."""
    assert expected == json.loads(sent(chat(**members), dialect="dashscope")).get("enable_thinking")
    completion = accepted(Operation.COMPLETION, body_of(model="m", prompt="x"))
    assert sent(completion, dialect="dashscope") is completion.body


# ── shapes that cost more to build than to send ─────────────────────────────────────


def test_a_thousand_members_are_taken_and_no_more() -> None:
    """A mapping of a million members would hold the event loop for a second."""
    members = {f"k{number}": number for number in range(998)}

    assert chat(**members).body.count(b'"k') == 998
    assert "1001 members" in refused(Operation.CHAT, body_of(model="m", messages=HI, **members, one_more=1)).message


@pytest.mark.parametrize("entry", ['"a"', "[1]"])
def test_ten_thousand_prompts_are_taken_and_no_more(entry: str) -> None:
    """A million small lists would hold it longer; ids of one prompt may be many."""

    def inputs(count: int, of: str) -> bytes:
        return b'{"model":"m","input":[' + ",".join([of] * count).encode() + b"]}"

    assert accepted(Operation.EMBEDDING, inputs(10_000, entry)).model == "m"
    error = refused(Operation.EMBEDDING, inputs(10_001, entry))
    assert (error.param, "10000 entries" in error.message) == ("input", True)
    assert accepted(Operation.EMBEDDING, inputs(20_000, "7")).model == "m"
