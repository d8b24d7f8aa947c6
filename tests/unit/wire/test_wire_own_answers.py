"""Answers without a model: the official SDK decodes all of them, and the question is found wherever a client puts it."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import openai
import pytest

from tidegate.domain.request import Operation, ParsedRequest
from tidegate.errors import ClientError
from tidegate.wire.openai import parse_request
from tidegate.wire.own_answers import LONGEST_QUESTION, MAX_CHOICES, encode_prepared, question_of, takes_words

TEXT = "请稍候。\n\n- [FAQ](https://example.com/faq)"
CREATED = 1_700_000_000


def parsed(operation: Operation = Operation.CHAT, /, **members: object) -> ParsedRequest:
    usual: dict[str, object] = {"model": "qwen3.6-plus"}
    usual |= {"messages": [{"role": "user", "content": "hello"}]} if operation is Operation.CHAT else {"prompt": "hello"}
    request = parse_request(operation, json.dumps(usual | members).encode())
    assert not isinstance(request, ClientError), request
    return request


class Answering(http.server.BaseHTTPRequestHandler):
    """Answers every call with the prepared answer."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        operation = Operation.CHAT if self.path.endswith("/chat/completions") else Operation.COMPLETION
        request = parse_request(operation, body)
        assert isinstance(request, ParsedRequest)
        answer = encode_prepared(request, TEXT, request_id="req_1", created=CREATED)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if request.stream else "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def client() -> Iterator[openai.OpenAI]:
    server = http.server.HTTPServer(("127.0.0.1", 0), Answering)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        with openai.OpenAI(base_url=f"http://127.0.0.1:{server.server_port}/v1", api_key="k", max_retries=0, timeout=5.0) as made:
            yield made
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


# ── the SDK's view ──────────────────────────────────────────────────────────────


def test_a_whole_chat_answer(client: openai.OpenAI) -> None:
    """Every choice that was asked for, the model's name as asked, and nothing to pay."""
    answer = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "?"}], n=2)
    assert [(0, TEXT, "stop"), (1, TEXT, "stop")] == [(c.index, c.message.content, c.finish_reason) for c in answer.choices]
    assert ("chatcmpl-req_1", "chat.completion", "m", CREATED) == (answer.id, answer.object, answer.model, answer.created)
    assert answer.usage is not None
    assert (0, 0, 0) == (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens)
    assert answer.system_fingerprint is None
    assert "system_fingerprint" not in answer.model_fields_set


def test_a_streamed_chat_answer(client: openai.OpenAI) -> None:
    """The role, the text and a finish reason for each choice, and no usage that was not asked for."""
    chunks = list(client.chat.completions.create(model="m", messages=[{"role": "user", "content": "?"}], n=2, stream=True))
    for index in range(2):
        mine = [choice for chunk in chunks for choice in chunk.choices if choice.index == index]
        assert TEXT == "".join(choice.delta.content or "" for choice in mine)
        assert ("assistant", "stop") == (mine[0].delta.role, mine[-1].finish_reason)
    assert {("chatcmpl-req_1", "m", "chat.completion.chunk", None)} == {(c.id, c.model, c.object, c.usage) for c in chunks}


def test_a_streamed_chat_answer_with_usage(client: openai.OpenAI) -> None:
    """The last chunk is the usage, without choices; the chunks before it say null, as OpenAI's do."""
    options: Any = {"include_usage": True}
    chunks = list(
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "?"}], stream=True, stream_options=options)
    )
    assert [] == chunks[-1].choices
    assert chunks[-1].usage is not None
    assert 0 == chunks[-1].usage.total_tokens
    assert all(chunk.usage is None and "usage" in chunk.model_fields_set for chunk in chunks[:-1])


def test_a_chat_stream_read_by_the_sdks_helper(client: openai.OpenAI) -> None:
    """The accumulating reader gives a whole completion at the end."""
    with client.chat.completions.stream(model="m", messages=[{"role": "user", "content": "?"}]) as stream:
        final = stream.get_final_completion()
    assert (TEXT, "stop") == (final.choices[0].message.content, final.choices[0].finish_reason)


def test_a_whole_text_answer(client: openai.OpenAI) -> None:
    """As many as there are prompts, times `n`; what `best_of` would have thrown away is not sent."""
    answer = client.completions.create(model="m", prompt=["a", "b"], n=2, best_of=4)
    assert [(index, TEXT, "stop") for index in range(4)] == [(c.index, c.text, c.finish_reason) for c in answer.choices]
    assert ("cmpl-req_1", "text_completion", "m") == (answer.id, answer.object, answer.model)


def test_a_streamed_text_answer(client: openai.OpenAI) -> None:
    """Text, then a finish reason, and the usage where it was asked for."""
    options: Any = {"include_usage": True}
    chunks = list(client.completions.create(model="m", prompt="a", stream=True, stream_options=options))
    assert TEXT == "".join(choice.text for chunk in chunks for choice in chunk.choices)
    assert "stop" == chunks[-2].choices[0].finish_reason
    assert chunks[-1].usage is not None


# ── bounds ──────────────────────────────────────────────────────────────────────


def test_a_stream_ends_with_done() -> None:
    """As every stream of this API does."""
    assert encode_prepared(parsed(stream=True), "x", request_id="r", created=0).endswith(b"data: [DONE]\n\n")


def test_the_number_of_choices_is_bounded() -> None:
    """A request for a million answers does not fill the memory with equal ones."""
    request = parsed(Operation.COMPLETION, prompt=["p"] * 10_000, n=128)
    assert MAX_CHOICES == len(json.loads(encode_prepared(request, "x", request_id="r", created=0))["choices"])


def test_what_cannot_be_encoded_is_replaced() -> None:
    """A lone surrogate in a rule's answer does not lose the whole answer."""
    answer = json.loads(encode_prepared(parsed(), "a\ud800b", request_id="r", created=0))
    assert "a?b" == answer["choices"][0]["message"]["content"]


# ── what was asked ──────────────────────────────────────────────────────────────

PICTURE: Mapping[str, object] = {"type": "image_url", "image_url": {"url": "data:,"}}


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([{"role": "user", "content": " 密码忘了怎么办 "}], "密码忘了怎么办"),
        ([{"role": "user", "content": "first"}, {"role": "assistant", "content": "a"}, {"role": "user", "content": "second"}], "second"),
        ([{"role": "user", "content": "asked"}, {"role": "tool", "content": "result"}], "asked"),
        ([{"role": "user", "content": [{"type": "text", "text": "one"}, PICTURE, {"type": "text", "text": "two"}]}], "one\ntwo"),
        ([{"role": "user", "content": [PICTURE]}], ""),
        ([{"role": "user", "content": []}], ""),
        ([{"role": "user", "content": ["one", "two"]}], "two"),
        ([{"role": "user", "content": None}], ""),
        ([{"role": "user"}], ""),
        ([{"role": "user", "content": 5}], ""),
        ([{"role": "system", "content": "be nice"}], ""),
        ([{"role": "user", "content": "x" * 9_000}], "x" * LONGEST_QUESTION),
    ],
)
def test_the_question_is_the_text_of_the_last_user_message(messages: list[object], expected: str) -> None:
    """Whole, from parts, or none; and its beginning only, where it is long."""
    assert expected == question_of(parsed(messages=messages))


@pytest.mark.parametrize(("prompt", "expected"), [("hello", "hello"), (["a", "b"], "b"), ([1, 2], ""), ([[1], [2]], "")])
def test_the_question_of_a_completion_is_its_last_prompt(prompt: object, expected: str) -> None:
    """Ids of tokens say nothing here."""
    assert expected == question_of(parsed(Operation.COMPLETION, prompt=prompt))


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({}, True),
        ({"response_format": None, "tool_choice": "auto"}, True),
        ({"response_format": {"type": "text"}, "tool_choice": "none"}, True),
        ({"response_format": {"type": "json_object"}}, False),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, False),
        ({"tool_choice": "required"}, False),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, False),
        ({"response_format": 5}, True),
    ],
)
def test_words_do_for_clients_that_demand_no_structure(members: dict[str, object], expected: bool) -> None:
    """A program that parses the answer as JSON is better served with an error."""
    assert expected is takes_words(parsed(**members))
