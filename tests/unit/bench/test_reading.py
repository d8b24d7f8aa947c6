"""What servers say in their own ways: figures, errors, and types that are not OpenAI's."""

import json

import pytest

from tidegate.bench import reading
from tidegate.bench.chunks import MAX_ERROR_CHARS, error_of
from tidegate.bench.reading import Answer

SSE = ((b"content-type", b"text/event-stream; charset=utf-8"),)
JSON = ((b"content-type", b"application/json"),)


def streamed(*chunks: object, keeps_text: bool = False) -> Answer:
    answer = Answer(SSE, asked_stream=True, keeps_text=keeps_text)
    for number, chunk in enumerate(chunks):
        answer.feed(b"data: %b\n\n" % json.dumps(chunk).encode(), float(number))
    answer.end(float(len(chunks)))
    return answer


def whole(content: object, *, stream: bool = False) -> Answer:
    answer = Answer(JSON, asked_stream=stream, keeps_text=True)
    answer.feed(content if isinstance(content, bytes) else json.dumps(content).encode(), 1.0)
    answer.end(1.0)
    return answer


def test_usage_beside_choices_counts() -> None:
    """Some servers send no chunk of its own for it; the cost is in millionths, the wait in seconds."""
    answer = streamed(
        {
            "choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 1, "cost": 0.0012345, "queue_time": 0.25},
        }
    )
    assert (7, 1, 1_234, 0.25, 0.0) == (answer.prompt_tokens, answer.completion_tokens, answer.cost_micro, answer.queue_s, answer.usage_at)


def test_timings_stand_in_for_usage() -> None:
    """llama.cpp's: fresh and cached tokens are the prompt."""
    timings = {"prompt_n": 5, "cache_n": 20, "predicted_n": 3, "prompt_ms": 10.0, "predicted_ms": 30.0}
    answer = streamed({"choices": [{"delta": {"content": "a"}}]}, {"choices": [], "timings": timings})
    assert (25, 20, 3, 1.0) == (answer.prompt_tokens, answer.cached_tokens, answer.completion_tokens, answer.usage_at)
    assert answer.server_s == pytest.approx(0.04)


def test_usage_is_believed_before_timings() -> None:
    """What is reported as usage stays; half a timing says no time."""
    answer = streamed({"choices": [], "usage": {"prompt_tokens": 9}, "timings": {"prompt_n": 5, "predicted_n": 3, "prompt_ms": 1}})
    assert (9, None, None) == (answer.prompt_tokens, answer.completion_tokens, answer.server_s)


@pytest.mark.parametrize(("metadata", "tries"), [({"attempts": [{}, {}]}, 2), ({"attempt": 3}, 3), ({"attempts": []}, None), (1, None)])
def test_hidden_tries_are_seen(metadata: object, tries: int | None) -> None:
    """OpenRouter's list of attempts, or their number."""
    assert tries == streamed({"choices": [], "openrouter_metadata": metadata}).upstream_tries


@pytest.mark.parametrize(
    ("chunk", "words"),
    [
        ({"error": {"message": "no", "code": 502}}, "502: no"),
        ({"error": {"message": "no", "code": None}}, "no"),
        ({"error": "no"}, "no"),
        ({"error": {"code": 1}}, '1: {"code":1}'),
        ({"code": "DataInspectionFailed", "message": "blocked"}, "DataInspectionFailed: blocked"),
        ({"choices": [{"finish_reason": "error", "delta": {}}]}, "the finish reason is error"),
        ({"choices": [{"finish_reason": "error", "delta": {}}], "error": {"message": "no"}}, "no"),
        ({"choices": [{"delta": 3}], "error": {"message": "no"}}, "no"),
    ],
)
def test_errors_within_an_answer(chunk: object, words: str) -> None:
    """However they are said."""
    answer = streamed(chunk)
    assert (True, words) == (answer.failed, answer.error)


@pytest.mark.parametrize("error", [None, False, "", 0, {}, []])
def test_no_error_is_none(error: object) -> None:
    """As OpenAI's SDKs see it: what is false."""
    assert not streamed({"choices": [{"delta": {"content": "a"}}], "error": error}).failed


@pytest.mark.parametrize(
    ("text", "words"), [(b'{"error":{"message":"no"}}', "no"), (b"no {", "an error that is not JSON"), (b'"no"', "no")]
)
def test_an_event_named_error_is_one(text: bytes, words: str) -> None:
    """Whatever is in it."""
    answer = Answer(SSE, asked_stream=True)
    answer.feed(b"event: error\ndata: " + text + b"\n\n", 0.0)
    assert (True, words) == (answer.failed, answer.error)


def test_the_first_error_is_kept() -> None:
    """What follows from it is less telling."""
    answer = streamed({"error": {"message": "first"}}, {"error": {"message": "second"}})
    assert "first" == answer.error


def test_other_types_are_read_where_they_make_sense() -> None:
    """Content in parts, arguments as an object, an index that is none, numbers as floats."""
    answer = streamed(
        {"choices": [{"index": "0", "delta": {"content": [{"type": "text", "text": "Hi"}, {"type": "image"}]}}]},
        {"choices": [{"delta": {"content": 3, "tool_calls": [{"function": {"arguments": {"a": 1}}}, None]}}]},
        {"choices": [{"delta": {"content": 3, "tool_calls": 5}}], "usage": {"completion_tokens": 2.0, "prompt_tokens": "many"}},
        {"choices": 5},
        5,
        keeps_text=True,
    )
    assert (2, "Hi", 2, None) == (answer.output_chunks, answer.text, answer.completion_tokens, answer.prompt_tokens)


def test_a_refusal_and_arguments_are_output() -> None:
    """A role, a name and emptiness are none."""
    answer = streamed(
        {"choices": [{"delta": {"role": "assistant", "content": ""}}]},
        {"choices": [{"delta": {"tool_calls": [{"function": {"name": "f", "arguments": ""}}]}}]},
        {"choices": [{"delta": {"tool_calls": [{"function": {"arguments": "{}"}}]}}]},
        {"choices": [{"delta": {"refusal": "No."}}]},
    )
    assert (2, 2.0, 3.0) == (answer.output_chunks, answer.first_content_at, answer.last_output_at)


def test_a_whole_answer_is_one_output() -> None:
    """Also where a stream was asked for."""
    answer = whole({"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]}, stream=True)
    assert (True, 1, "Hi", 1.0) == (answer.is_complete, answer.output_chunks, answer.text, answer.first_content_at)


@pytest.mark.parametrize("content", [b"", b"{", {"choices": []}, {"object": "list"}, [1]])
def test_what_is_no_answer_is_not_complete(content: object) -> None:
    """Under whatever status it comes."""
    answer = whole(content)
    assert (False, False) == (answer.is_complete, answer.failed)


def test_answers_beyond_the_bounds_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body that is no stream, an event, the text, the gaps: nothing grows for ever."""
    monkeypatch.setattr(reading, "MAX_WHOLE_BYTES", 10)
    monkeypatch.setattr(reading, "MAX_TEXT_CHARS", 2)
    monkeypatch.setattr(reading, "MAX_GAPS", 1)
    assert "the answer is longer than 10 bytes" == whole(b"x" * 11).error
    answer = streamed(*[{"choices": [{"delta": {"content": "ab"}}]}] * 4, keeps_text=True)
    assert ("ab", 1, 4) == (answer.text, len(answer.gaps_s), answer.output_chunks)
    huge = Answer(SSE, asked_stream=True)
    for _ in range(5):
        huge.feed(b"x" * 1_048_576, 0.0)
    assert "an event of the stream is larger than 4 MiB" == huge.error


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error":{"message":"no","code":"c"}}', "c: no"),
        (b'{"message":"no"}', "no"),
        (b'"no"', "no"),
        (b"<p>\n no", "<p> no"),
        (b"", ""),
        (b'{"detail":[]}', '{"detail":[]}'),
    ],
)
def test_the_words_of_an_errors_body(body: bytes, words: str) -> None:
    """Its message where it has one, else its beginning."""
    assert words == error_of(body)
    assert MAX_ERROR_CHARS == len(error_of(b"x" * 99_999))


@pytest.mark.parametrize(("value", "server_s"), [(b"12.5", 0.0125), (b"soon", None), (b"-1", None), (b"inf", None), (b"nan", None)])
def test_a_servers_own_time(value: bytes, server_s: float | None) -> None:
    """In milliseconds; Tidegate's before an Envoy's on the way."""
    headers = (*SSE, (b"x-model-response-time", value))
    assert server_s == Answer(headers, asked_stream=True).server_s
    assert (server_s or 0.03) == Answer((*headers, (b"x-envoy-upstream-service-time", b"30")), asked_stream=True).server_s


@pytest.mark.parametrize(("value", "tries"), [(b"2", 2), (b"", None), (b"two", None), (b"-1", None), (b"1000", None)])
def test_how_often_a_gateway_tried(value: bytes, tries: int | None) -> None:
    """It says so in a header where it was more than once."""
    assert tries == Answer((*SSE, (b"x-tidegate-attempts", value)), asked_stream=True).upstream_tries


@pytest.mark.parametrize("number", [1e308, 10**30, 10**400, -1, 2**64, True, "7"])
def test_figures_beyond_belief_are_none(number: object) -> None:
    """No encoder, sum or square fails because of what a server says."""
    told = {"cost": number, "queue_time": number}
    answer = streamed({"usage": told, "timings": {"prompt_ms": number, "predicted_ms": number}, "choices": 5})
    assert (None, None, None) == (answer.cost_micro, answer.queue_s, answer.server_s)


def test_half_an_emoji_is_read_all_the_same() -> None:
    """As a server's error, of which the half is a question mark, and beside choices of another kind."""
    answer = Answer(SSE, asked_stream=True)
    answer.feed(b'data: {"error":"\\ud83d no"}\n\n', 0.0)
    assert "? no" == answer.error
    deep = Answer(SSE, asked_stream=True)
    deep.feed(b'data: {"choices":5,"usage":{"prompt_tokens":3,"odd":1%b}}\n\n' % (b"0" * 4_000), 0.0)
    assert (False, 3) == (deep.failed, deep.prompt_tokens)
