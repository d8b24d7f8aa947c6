"""The facts about Unicode that the prompt bound rests on, checked against Unicode itself."""

from __future__ import annotations

import unicodedata

import pytest

from tidegate.wire.prompt_bound import _HARMLESS_BYTES, nfc_surplus, pictures_in

EVERY_CHARACTER = [chr(point) for point in range(0x110000) if not 0xD800 <= point < 0xE000]


def grows(character: str) -> int:
    return len(unicodedata.normalize("NFC", character).encode()) - len(character.encode())


def test_every_character_that_can_lengthen_is_known() -> None:
    """Combining marks and whatever NFC makes longer begin with a byte that is not called harmless."""
    risky = [character for character in EVERY_CHARACTER if unicodedata.combining(character) or grows(character) > 0]

    assert len(risky) > 900
    assert [c for c in risky if c.encode()[0] in _HARMLESS_BYTES] == []


def test_no_character_costs_more_than_it_is_charged() -> None:
    """Alone, or (marks) behind any composed character."""
    composed = [c for c in EVERY_CHARACTER if unicodedata.decomposition(c)[:1] not in ("", "<") and unicodedata.normalize("NFC", c) == c]
    marks = [c for c in EVERY_CHARACTER if unicodedata.combining(c)]
    per_class = {(unicodedata.combining(mark), len(mark.encode()), unicodedata.is_normalized("NFC", f"a{mark}")): mark for mark in marks}

    assert max(grows(c) for c in EVERY_CHARACTER if len(c.encode()) < 4) <= 3
    assert max(grows(c) for c in EVERY_CHARACTER) <= 8
    assert max(grows(c + mark) for c in composed for mark in per_class.values()) <= 3


def test_common_text_is_not_surcharged() -> None:
    """English, accents, Chinese characters and Hangul cost their bytes."""
    for text in ("plain", "潮汐涨落", "naïve café", "안녕하세요"):
        assert nfc_surplus(text.encode()) == 0


def test_text_is_charged_per_risky_character() -> None:
    """Chinese pays for its punctuation only, four-byte characters most."""
    assert nfc_surplus(("潮汐涨落有时，" * 100).encode()) == 3 * 100
    assert nfc_surplus(("😀" * 200).encode()) == 8 * 200
    assert nfc_surplus("\u0958".encode()) >= 3


PICTURE = b'{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}'


@pytest.mark.parametrize(
    ("messages", "pictures"),
    [
        (b'[{"role":"user","content":"hi"}]', 0),
        (b'[{"role":"user","content":"an \\"image_url\\""}, {"role":"user"}]', 0),
        (b'[{"role":"user","content":[%b,%b,{"type":"text"}]},{"content":[%b]}]' % (PICTURE, PICTURE, PICTURE), 3),
        (b'[{"role":"user","content":[{"type":"text","text":"x"}]},{"content":"\\"image_url\\""},{"content":{"image_url":"odd"}}]', 0),
    ],
)
def test_pictures_are_counted_and_words_about_them_are_not(messages: bytes, pictures: int) -> None:
    """Of parts of unknown shape nothing is known."""
    assert pictures == pictures_in(b'{"messages":%b}' % messages)
