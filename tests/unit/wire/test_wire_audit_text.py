"""What audit keeps of a body: summaries without words, texts without secrets, also where a secret hides."""

from __future__ import annotations

import json

import pytest

from tidegate.wire.audit_text import CUT_CHARS, SUMMARY_BYTES, stream_text, summary, whole_text
from tidegate.wire.masking import Masker, mask_credentials

MASK = Masker().mask
KEY = "sk-abcdefghijklmnop1234"


def stream(*deltas: object, end: str = "\n\n") -> bytes:
    events = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    return "".join(f"data: {json.dumps(event)}{end}" for event in events).encode()


def test_a_summary_counts_and_says_no_word() -> None:
    """Messages by role, tools, and parameters that are numbers, flags or words of a standard."""
    body = {
        "model": "m-secret",
        "messages": [{"role": "system", "content": "secret"}, {"role": "user", "content": ["secret"]}, {"role": "secret"}],
        "tools": [{"secret": 1}],
        "temperature": 0.3,
        "stream": True,
        "tool_choice": "auto",
        "reasoning_effort": "secret",
        "max_tokens": [1],
        "top_p": None,
        "n": "x" * 40,
        "user": "secret",
        "response_format": {"type": "json_schema", "json_schema": "secret"},
    }
    assert {
        "messages": 3,
        "roles": {"system": 1, "user": 1, "other": 1},
        "tools": 1,
        "parameters": {"temperature": 0.3, "stream": True, "tool_choice": "auto", "response_format": "json_schema"},
    } == json.loads(summary(json.dumps(body).encode()))


@pytest.mark.parametrize(
    "body", [b"", b"no json", b"[1]", b'{"messages":5,"tools":{}}', b'{"response_format":{"type":"other"}}', b"[" * 9_999]
)
def test_what_cannot_be_read_has_an_empty_summary(body: bytes) -> None:
    """Nothing is guessed."""
    assert "{}" == summary(body)


def test_a_body_that_takes_long_to_read_has_an_empty_summary() -> None:
    """Its size and hash stand in the line all the same."""
    assert "{}" == summary(b'{"n":1,"x":"' + b"x" * SUMMARY_BYTES + b'"}')


@pytest.mark.parametrize(
    "body",
    [
        json.dumps({"content": f"first\n{KEY}"}),  # behind the n of an escape it would be part of a word
        '{"content":"' + "".join(f"\\u{ord(char):04x}" for char in KEY) + '"}',
        json.dumps({"arguments": json.dumps({"x": f"a\t{KEY}"})}),
        json.dumps({"api_key": KEY[3:]}),
        json.dumps({"x-Password": "a b, c"}),
        f"no json at all: {KEY}",
    ],
)
def test_no_key_stays_however_it_is_written(body: str) -> None:
    """Escapes hide nothing, and members with telling names are masked whole; under every policy that keeps text."""
    for mask in (MASK, mask_credentials):
        kept = whole_text(body.encode(), mask, cut=False)
        assert "[key]" in kept
        assert KEY[3:] not in kept
        assert "b, c" not in kept


def test_a_redacted_body_is_the_body_but_for_what_is_masked() -> None:
    """Structure, white space and other text stay; numbers outside of strings are looked at, too."""
    body = '{ "model": "m", "phone": 13800138000, "note": "call a@b.cn, \\"now\\" 限" }'
    assert '{ "model": "m", "phone": [phone], "note": "call [email], \\"now\\" 限" }' == whole_text(body.encode(), MASK, cut=False)
    assert body == whole_text(body.encode(), mask_credentials, cut=False)


def test_a_name_tells_of_its_own_value_only() -> None:
    """What follows something else than a colon is no value of that name."""
    body = '["password", "plain", {"password": {"a": "b"}}]'
    assert body == whole_text(body.encode(), MASK, cut=False)


@pytest.mark.parametrize("torn", ['{"a":"text', '{"a":"text\\', '{"a":"text\\u00', '{"a":"bad \\x', '{"a":"', '{"a":"b"'])
def test_a_torn_string_is_kept_as_far_as_it_goes(torn: str) -> None:
    """A body may end anywhere, also within an escape."""
    assert torn == whole_text(torn.encode(), MASK, cut=False)


def test_the_end_of_a_body_that_was_cut_goes() -> None:
    """A key that is only begun there would not be known as one."""
    begun = f'{{"a":"{"word, " * 100}{KEY[:12]}'
    kept = whole_text(begun.encode(), MASK, cut=True)
    assert begun[:-CUT_CHARS] == kept


def test_a_run_that_is_no_text_is_left_out() -> None:
    """A picture in base64 is nothing to read, and too long to be searched at once."""
    body = json.dumps({"url": "data:image/png;base64," + "QUJD" * 2000, "text": "a, " * 3000})
    assert json.dumps({"url": "data:image/png;base64,[unbroken]", "text": "a, " * 3000}) == whole_text(body.encode(), MASK, cut=False)
    assert "a,[unbroken]" == whole_text(b"a," + b"x" * 5000, MASK, cut=False)
    assert "[unbroken],b" == whole_text(b"x" * 9000 + b",b", MASK, cut=False)


def test_a_stream_is_joined_before_it_is_searched() -> None:
    """Its texts stand by choice and place; a secret that came letter by letter is masked."""
    letters = [{"role": "assistant", "content": char} for char in f"key {KEY}, ok"]
    tools = [{"tool_calls": [{"index": 1, "id": "c", "function": {"name": "f" * first, "arguments": "{}"}}]} for first in (1, 0)]
    kept = json.loads(stream_text(stream(*letters, *tools) + b"data: [DONE]\n\n", MASK, cut=False))
    assert {
        "choices": [{"index": 0, "content": "key [key], ok", "tool_calls.1.function.name": "f", "tool_calls.1.function.arguments": "{}{}"}]
    } == kept


def test_completions_and_errors_are_texts_of_a_stream_too() -> None:
    """`text` of `/v1/completions`, and what a failure says in the stream."""
    events = [
        {"choices": [{"index": 1, "text": "a"}, {"text": "b"}, "no choice"]},
        {"choices": "none"},
        {"error": {"message": f"no key {KEY}"}},
    ]
    text = "".join(f"data: {json.dumps(event)}\r\n\r\n" for event in events)
    kept = json.loads(stream_text(f": comment\n\nevent: x\ndata: no json\n\n{text}data: {{".encode(), MASK, cut=False))
    assert {
        "choices": [{"index": 0, "text": "b"}, {"index": 1, "text": "a"}],
        "errors": ['{"message":"no key [key]"}'],
    } == kept


def test_a_stream_without_an_answer_may_have_an_error_all_the_same() -> None:
    """And one with neither is empty."""
    assert {"errors": ['"busy"']} == json.loads(stream_text(b'data: {"error":"busy"}\n\n', MASK, cut=False))
    assert "{}" == stream_text(b": nothing\n\n", MASK, cut=False)


def test_the_end_of_every_text_of_a_stream_that_was_cut_goes() -> None:
    """It may be the beginning of a key."""
    kept = json.loads(stream_text(stream({"content": "a" * 900}), MASK, cut=True))
    assert [{"index": 0, "content": "a" * (900 - CUT_CHARS)}] == kept["choices"]


def test_halves_of_a_character_are_joined() -> None:
    """Some servers cut between two surrogates; one that stays alone is replaced."""
    halves = b'data: {"choices":[{"delta":{"content":"\\ud83d"}}]}\n\ndata: {"choices":[{"delta":{"content":"\\ude00\\ud83d"}}]}\n\n'
    assert "😀\ufffd" == json.loads(stream_text(halves, MASK, cut=False))["choices"][0]["content"]
    assert '"\ufffd [email]"' == whole_text(b'"\\ud83d a@b.cn"', MASK, cut=False)


def test_a_stream_with_more_places_than_any_answer_is_bounded() -> None:
    """Choices, texts of a choice, and how deep they stand."""
    many = [{"index": number, "delta": {"content": "x"}} for number in range(200)]
    texts = {f"name{number}": "x" for number in range(600)}
    deep: object = "x"
    for _ in range(10):
        deep = {"d": deep}
    events = [{"choices": many}, {"choices": [{"index": 0, "delta": texts}]}, {"choices": [{"index": 0, "delta": {"d": deep, "n": 5}}]}]
    kept = json.loads(stream_text("".join(f"data: {json.dumps(event)}\n\n" for event in events).encode(), MASK, cut=False))
    assert 128 == len(kept["choices"])
    assert 513 == len(kept["choices"][0])
