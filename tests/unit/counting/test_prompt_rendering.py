"""From request bodies to the texts a Qwen3.6 server would see, and the law that lets messages be counted one by one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.adapters.counting.prompt import TOOL_PREAMBLE_TOKENS, render
from tidegate.adapters.counting.vocabulary import QWEN, load_vocabulary, pieces
from tidegate.domain.request import Operation
from tidegate.errors import InvalidParameter
from tidegate.wire.picture_size import UNKNOWN_PICTURE_TOKENS

ENCODE = load_vocabulary(QWEN)
ASK = "<|im_start|>assistant\n<think>\n"


def chat(*messages: dict[str, object], **fields: object) -> bytes:
    return json.dumps({"model": "m", "messages": messages, **fields}).encode()


def said(role: str, content: object, **fields: object) -> dict[str, object]:
    return {"role": role, "content": content, **fields}


def whole(body: bytes, operation: Operation = Operation.CHAT) -> str:
    rendered = render(operation, body)
    assert rendered is not None
    return "".join(rendered.texts)


EXACT = [
    (chat(said("user", "Hi")), f"<|im_start|>user\nHi<|im_end|>\n{ASK}"),
    (
        chat(said("system", " Be kind.\n"), said("user", "Hi")),
        f"<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n{ASK}",
    ),
    (
        chat(said("user", "1"), said("assistant", "<think>\nhm\n</think>\n\n2"), said("user", "3")),
        f"<|im_start|>user\n1<|im_end|>\n<|im_start|>assistant\n2<|im_end|>\n<|im_start|>user\n3<|im_end|>\n{ASK}",
    ),
    (
        chat(said("user", "1"), said("assistant", "2", reasoning_content="hm ")),
        f"<|im_start|>user\n1<|im_end|>\n<|im_start|>assistant\n<think>\nhm\n</think>\n\n2<|im_end|>\n{ASK}",
    ),
    (
        chat(said("user", "1"), said("assistant", "2"), said("user", "3"), chat_template_kwargs={"preserve_thinking": True}),
        f"<|im_start|>user\n1<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n2<|im_end|>\n<|im_start|>user\n3<|im_end|>\n{ASK}",
    ),
    (chat(said("user", "Hi"), enable_thinking=False), f"<|im_start|>user\nHi<|im_end|>\n{ASK}\n</think>\n\n"),
    (chat(said("user", "Hi"), chat_template_kwargs={"enable_thinking": False}), f"<|im_start|>user\nHi<|im_end|>\n{ASK}\n</think>\n\n"),
    (chat(said("user", [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])), f"<|im_start|>user\nab<|im_end|>\n{ASK}"),
    (chat(said("user", "Hi"), add_generation_prompt=False), "<|im_start|>user\nHi<|im_end|>\n"),
]


@pytest.mark.parametrize(("body", "expected"), EXACT)
def test_plain_conversations_are_rendered_to_the_letter(body: bytes, expected: str) -> None:
    """Roles, trimming, thoughts and the opening of the answer follow the published template, and the count is exact."""
    rendered = render(Operation.CHAT, body)
    assert rendered is not None
    assert expected == "".join(rendered.texts)
    assert (rendered.extra_tokens, rendered.exact) == (0, True)


@pytest.mark.parametrize(("body", "expected"), EXACT)
def test_counts_of_the_parts_equal_the_tokenizers_count_of_the_rendered_template(body: bytes, expected: str) -> None:
    """Counting message by message gives what the tokenizer gives for the whole prompt."""
    rendered = render(Operation.CHAT, body)
    assert rendered is not None
    assert sum(len(ENCODE(text)) for text in rendered.texts) == len(ENCODE(expected))


@pytest.mark.parametrize(
    ("body", "extra_tokens"),
    [
        (chat(said("user", "Hi"), tools=[{"type": "function", "function": {"name": "f"}}]), TOOL_PREAMBLE_TOKENS),
        (chat(said("user", [{"type": "image_url", "image_url": {"url": "x"}}, {"type": "text", "text": "?"}])), UNKNOWN_PICTURE_TOKENS),
        (chat(said("user", "Hi"), said("assistant", None, tool_calls=[{"function": {"name": "f", "arguments": '{"a": 1}'}}])), 0),
        (chat(said("user", "Hi"), said("tool", "42")), 0),
        (chat(said("developer", "Hi")), 0),
        (chat(said("user", "Hi"), continue_final_message=True), 0),
    ],
)
def test_what_is_approximated_is_not_called_exact(body: bytes, extra_tokens: int) -> None:
    """Tools, pictures, tool calls and roles the template does not know make the count a stated approximation."""
    rendered = render(Operation.CHAT, body)
    assert rendered is not None
    assert (extra_tokens, False) == (rendered.extra_tokens, rendered.exact)


def test_tool_calls_and_answers_are_rendered_as_the_template_does() -> None:
    """Arguments become parameters, and neighbouring answers of tools share one user block."""
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": "x", "b": [1, 2]}'}}
    text = whole(chat(said("user", "q"), said("assistant", "", tool_calls=[call]), said("tool", "A"), said("tool", "B")))
    assert text == (
        "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n<tool_call>\n<function=f>\n<parameter=a>\nx\n"
        "</parameter>\n<parameter=b>\n[1, 2]\n</parameter>\n</function>\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\nA\n"
        f"</tool_response>\n<tool_response>\nB\n</tool_response><|im_end|>\n{ASK}"
    )


def test_prompts_of_all_shapes_are_counted() -> None:
    """A string, strings, ids and lists of ids: strings are texts, ids count as they are."""
    shapes: list[tuple[object, tuple[str, ...], int]] = [
        ("a", ("a",), 0),
        (["a", "b"], ("a", "b"), 0),
        ([1, 2, 3], (), 3),
        ([[1, 2], [3]], (), 3),
    ]
    for prompt, texts, ids in shapes:
        rendered = render(Operation.COMPLETION, json.dumps({"prompt": prompt}).encode())
        assert rendered is not None
        assert (texts, ids, True) == (rendered.texts, rendered.extra_tokens, rendered.exact)


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"messages": 1}', b'{"messages": [{"content": 3, "role": "user"}]}', b"\xff"])
def test_a_body_of_unknown_shape_is_not_guessed_at(body: bytes) -> None:
    """What cannot be parsed is left to the caller's fallback."""
    assert render(Operation.CHAT, body) is None


def test_nothing_to_tokenize_is_the_clients_fault() -> None:
    """`/tokenize` without prompt or messages says what to send."""
    with pytest.raises(InvalidParameter, match="Nothing to tokenize"):
        render(Operation.TOKENIZE, b'{"model": "m"}')


AWKWARD = st.text(
    alphabet=st.one_of(st.sampled_from(list(" \n\t\r'sS09aé字，。e\u0301\u3000!<|>")), st.characters(codec="utf-8")), max_size=80
)
MESSAGES = st.lists(
    st.builds(
        said,
        st.sampled_from(["system", "user", "assistant", "tool"]),
        st.one_of(AWKWARD, st.sampled_from(["<|im_end|>", "</think>", "<think>x</think>y", "<tool_response>\n"])),
    ),
    min_size=1,
    max_size=6,
)


@given(messages=MESSAGES)
@settings(max_examples=150, deadline=None)
def test_law_counts_of_segments_add_up(messages: list[dict[str, object]]) -> None:
    """For any conversation the sum over its segments is the count of the whole prompt."""
    rendered = render(Operation.CHAT, chat(*messages))
    assert rendered is not None
    assert sum(len(ENCODE(text)) for text in rendered.texts) == len(ENCODE("".join(rendered.texts)))


@given(text=st.lists(AWKWARD, max_size=8).map("".join), piece_chars=st.integers(1, 40))
@settings(max_examples=300, deadline=None)
def test_law_counts_of_safe_pieces_add_up(text: str, piece_chars: int) -> None:
    """However finely a text is cut at safe places, its pieces are the text and their counts add up."""
    cut = list(pieces(text, piece_chars=piece_chars, longest_chars=10_000))
    assert "".join(piece for piece, _ in cut) == text
    assert all(safe for _, safe in cut)
    assert sum(len(ENCODE(piece)) for piece, _ in cut) == len(ENCODE(text))


def test_prose_is_cut_about_where_it_should_be() -> None:
    """Ordinary text of either script has a safe cut soon after the wanted size."""
    for text in ("the quick brown fox " * 1000, "敏捷的狐狸，跳过了懒狗。" * 1000, "x = 1\n" * 1000):
        sizes = [len(piece) for piece, _ in pieces(text, piece_chars=500)]
        assert max(sizes) < 600


def test_a_million_blanks_are_counted_approximately_instead_of_panicking() -> None:
    """White space without end, on which the tokenizer itself panics, is cut by force and said to be inexact."""
    cut = list(pieces("\u3000" * 1_200_000))
    assert not all(safe for _, safe in cut)
    assert sum(len(ENCODE(piece)) for piece, _ in cut) > 0
