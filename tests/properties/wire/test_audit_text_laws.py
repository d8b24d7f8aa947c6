"""Laws of audit: no key stays wherever a body is cut and however it is written, and masking in pieces is masking at once."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from tidegate.wire import masking
from tidegate.wire.audit_text import stream_text, whole_text
from tidegate.wire.masking import Masker, MaskPattern, mask_credentials

KEY = "sk-abcdefghijklmnop1234"
MASKER = Masker([MaskPattern("staff", r"E\D\d{3,}"), MaskPattern("line", r"end\snow")])
PARTS = st.sampled_from(
    (
        *("13800138000", "a@b.cn", KEY, "password = hunter22,", "Bearer ", "https://ann:secret@h/ ", "Basic YTpi ", "E,123", "end\nnow"),
        *("word ", "，", "\n", " ", "x", "9", "-----BEGIN PRIVATE KEY-----", "QUJD" * 9, "6222 0200 0000 0000 "),
    )
)


@given(st.lists(PARTS, max_size=30).map("".join), st.integers(1, 64))
def test_masking_in_pieces_is_masking_at_once(text: str, size: int) -> None:
    """Law: where a text is cut for the work's sake makes no difference."""
    whole = MASKER.mask(text)
    usual, masking._PIECE_CHARS = masking._PIECE_CHARS, size
    try:
        assert whole == MASKER.mask(text)
    finally:
        masking._PIECE_CHARS = usual


@given(st.text(alphabet='ab 限\n"\\/{}', max_size=40), st.integers(0, 400), st.sampled_from([True, False]))
def test_of_a_key_nothing_stays_wherever_a_body_is_cut(before: str, cut_at: int, ascii_only: bool) -> None:
    """Law: a body's beginning, however long, has no more of a key than its general shape."""
    body = json.dumps({"messages": [{"role": "user", "content": f"{before} {KEY} {'and on, ' * 40}"}]}, ensure_ascii=ascii_only).encode()
    for mask in (MASKER.mask, mask_credentials):
        assert "abcdefgh" not in whole_text(body[:cut_at], mask, cut=cut_at < len(body))


@given(st.lists(st.integers(1, 6), min_size=1, max_size=40))
def test_of_a_key_nothing_stays_however_a_stream_is_cut(sizes: list[int]) -> None:
    """Law: in whatever pieces a key comes, it is masked."""
    text, pieces = f"It is {KEY}, yes.", []
    for size in sizes * 40:
        pieces.append(text[:size])
        text = text[size:]
    stream = "".join(f"data: {json.dumps({'choices': [{'delta': {'content': piece}}]})}\n\n" for piece in pieces if piece)
    assert {"choices": [{"index": 0, "content": "It is [key], yes."}]} == json.loads(stream_text(stream.encode(), MASKER.mask, cut=False))
