"""Answers: reading an upstream's, writing the gateway's own."""

from __future__ import annotations

import json

import pytest

from tidegate.domain.error_object import encode_error
from tidegate.domain.request import Operation
from tidegate.domain.upstream import FailureScope
from tidegate.domain.usage import Usage
from tidegate.errors import InvalidParameter, RateLimited, UpstreamRejected
from tidegate.ports import TokenCount
from tidegate.wire import lenient
from tidegate.wire.dialects import DIALECTS
from tidegate.wire.lenient import MAX_COUNT
from tidegate.wire.openai import AnswerFacts, encode_error_event, model_object, models_list, read_answer, token_count_answer

DIALECT = DIALECTS["openrouter"]
USAGE = {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 2}}


def read(body: object, operation: Operation = Operation.CHAT) -> AnswerFacts:
    return read_answer(operation, json.dumps(body).encode(), DIALECT)


def test_an_answer_gives_usage_reason_and_identity() -> None:
    """The text itself is skipped."""
    answer = read({"id": "c-1", "model": "m", "choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}], "usage": USAGE})

    assert answer == AnswerFacts(Usage(9, 4, 2, 0), "stop", None, "c-1", "m")


@pytest.mark.parametrize("figure", ["1e300", "9" * 400, str(2**64), str(MAX_COUNT + 1), "1e999", "NaN", "-5", '"5"', "true"])
def test_a_usage_that_cannot_be_true_is_none(figure: str) -> None:
    """Nobody is billed for it, or served for nothing because of it: the gateway's own estimate stands in for all of it."""
    for usage in (f'"prompt_tokens": {figure}, "completion_tokens": 1', f'"prompt_tokens": 1, "completion_tokens": {figure}'):
        body = f'{{"choices": [], "usage": {{{usage}}}}}'.encode()
        assert read_answer(Operation.CHAT, body, DIALECT).usage is None


@pytest.mark.parametrize(("figure", "expected"), [(str(MAX_COUNT), MAX_COUNT), ("7.0", 7), ("null", 0)])
def test_a_usage_is_read_generously(figure: str, expected: int) -> None:
    """Whole numbers written as others, and one of two figures left out."""
    body = f'{{"choices": [], "usage": {{"prompt_tokens": {figure}, "completion_tokens": 1}}}}'.encode()

    assert Usage(expected, 1, 0, 0) == read_answer(Operation.CHAT, body, DIALECT).usage


@pytest.mark.parametrize(
    ("figure", "expected"), [("1e300", MAX_COUNT), (str(2**64), MAX_COUNT), ("1e999", 0), ("NaN", 0), ("-5", 0), ('"5"', 0), ("true", 0)]
)
def test_an_absurd_detail_is_bounded(figure: str, expected: int) -> None:
    """What no encoder or database could hold never gets in."""
    usage = f'"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {{"cached_tokens": {figure}}}'
    body = f'{{"choices": [], "usage": {{{usage}}}}}'.encode()

    assert Usage(9, 1, expected, 0) == read_answer(Operation.CHAT, body, DIALECT).usage


def test_several_choices_give_the_most_telling_reason() -> None:
    """As for streams."""
    choices = [{"finish_reason": reason} for reason in ("stop", "content_filter", None, "length")]

    assert read({"choices": choices}).finish_reason == "content_filter"
    assert read({"choices": []}) == AnswerFacts()


def test_an_embedding_has_data_in_place_of_choices() -> None:
    """Vectors are skipped, not built."""
    body = {"data": [{"embedding": [0.1] * 10}], "usage": {"prompt_tokens": 8, "total_tokens": 8}, "model": "e"}

    assert read(body, Operation.EMBEDDING) == AnswerFacts(usage=Usage(prompt_tokens=8), response_model="e")
    assert read({"choices": []}, Operation.EMBEDDING).failure is not None


@pytest.mark.parametrize(
    "body",
    [
        b'{"choices":[{"message":{"content":"\\ud83d"},"finish_reason":"stop"}],"id":"c"}',
        b'{"choices":[{"logprobs":NaN,"finish_reason":"stop"}],"id":"c"}',
        b'{"choices":["odd",{"finish_reason":"stop"}],"id":"c"}',
    ],
)
def test_answers_that_strict_json_forbids_are_read_all_the_same(body: bytes) -> None:
    """What every client's parser accepts is an answer."""
    assert read_answer(Operation.CHAT, body, DIALECT) == AnswerFacts(finish_reason="stop", response_id="c")


def test_odd_embeddings_are_read_all_the_same() -> None:
    """A NaN in a vector is the model's business."""
    assert read_answer(Operation.EMBEDDING, b'{"data":[NaN],"x":NaN}', DIALECT) == AnswerFacts()


@pytest.mark.parametrize(
    ("body", "scope", "phrase"),
    [
        (b'{"error":{"code":429,"message":"slow down"}}', FailureScope.KEY, "slow down"),
        (b'{"error":{"code":502,"message":"gone"},"choices":[]}', FailureScope.REPLICA, "gone"),
        (b'{"code":"data_inspection_failed","message":"blocked"}', FailureScope.REQUEST, "blocked"),
        (b'{"choices":[{"finish_reason":"error"}]}', FailureScope.REPLICA, "no reason"),
        (b"{}", FailureScope.REPLICA, "neither an answer nor an error"),
        (b'{"choices":null}', FailureScope.REPLICA, "neither an answer nor an error"),
        (b'{"choices":{"a":1}}', FailureScope.REPLICA, "neither an answer nor an error"),
        (b"", FailureScope.REPLICA, "an empty body"),
        (b"<html>secret</html>", FailureScope.REPLICA, "not a JSON object"),
        (b"[1]", FailureScope.REPLICA, "not a JSON object"),
        (b"[" * 100_000, FailureScope.REPLICA, "not a JSON object"),
    ],
)
def test_a_200_without_an_answer_is_a_failure(body: bytes, scope: FailureScope, phrase: str) -> None:
    """Never a cheerful empty success; never somebody's page quoted."""
    failure = read_answer(Operation.CHAT, body, DIALECT).failure

    assert failure is not None
    assert scope == failure.scope
    assert phrase in failure.message
    assert "secret" not in failure.message


def test_errors_have_all_four_keys() -> None:
    """As OpenAI's specification requires; SDKs read each."""
    error = json.loads(encode_error(RateLimited("wait", retry_after_s=3)))

    assert error == {"error": {"message": "wait", "type": "rate_limit_error", "param": None, "code": "rate_limit_exceeded"}}
    assert json.loads(encode_error(InvalidParameter("bad", param="n")))["error"]["param"] == "n"


def test_a_rejection_keeps_the_upstreams_code() -> None:
    """Clients branch on `context_length_exceeded` and its like."""
    assert (
        json.loads(encode_error(UpstreamRejected("x", upstream_code="context_length_exceeded")))["error"]["code"]
        == "context_length_exceeded"
    )
    assert json.loads(encode_error(UpstreamRejected("x")))["error"]["code"] == "upstream_rejected"


def test_a_message_that_json_cannot_carry_is_still_sent() -> None:
    """A lone surrogate becomes a question mark rather than a second failure."""
    assert json.loads(encode_error(InvalidParameter("a\ud800b", param="\ud800")))["error"]["message"] == "a?b"


def test_an_error_event_is_one_event() -> None:
    """The SDK raises when it sees a top-level `error`."""
    event = encode_error_event(InvalidParameter("two\nlines"))

    assert event.startswith(b'data: {"error":')
    assert event.endswith(b"\n\n")
    assert event.count(b"\n") == 2


def test_models_are_listed_as_openai_lists_them() -> None:
    """One object per name."""
    one = {"id": "m", "object": "model", "created": 5, "owned_by": "tidegate"}

    assert json.loads(models_list(["m"], 5)) == {"object": "list", "data": [one]}
    assert json.loads(model_object("m", 5)) == one


def test_a_token_count_is_answered_in_vllms_shape() -> None:
    """With which tokenizer counted, and whether exactly."""
    answer = json.loads(token_count_answer(TokenCount(3, "qwen3.6", exact=True, tokens=(1, 2, 3)), 4096))

    assert answer == {"count": 3, "max_model_len": 4096, "tokens": [1, 2, 3], "token_strs": None, "tokenizer": "qwen3.6", "exact": True}
    assert json.loads(token_count_answer(TokenCount(3, "bytes", exact=False), None))["tokens"] is None


def test_an_odd_answer_that_says_it_failed_is_a_failure() -> None:
    """Also where only the lenient reader can read it, and no error object says why."""
    body = b'{"choices":[{"index":0,"finish_reason":"error"}],"x":NaN}'
    answer = read_answer(Operation.CHAT, body, DIALECT)
    assert answer.failure is not None
    assert answer.finish_reason == "error"


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": 9, "prompt_tokens_details": {"cache_write_tokens": 5}},
        {"prompt_tokens": 9, "prompt_tokens_details": {"cache_creation_input_tokens": 5, "cached_tokens": 0}},
        {"prompt_tokens": 9, "cache_creation_input_tokens": 5, "prompt_tokens_details": None},
    ],
)
def test_tokens_put_into_a_providers_cache_are_lifted_whatever_they_are_called(usage: dict[str, object]) -> None:
    """OpenRouter, DashScope, and servers that keep Anthropic's name for them."""
    assert Usage(prompt_tokens=9, cache_write_tokens=5) == lenient.read_usage(usage)
