"""The facts about Unicode that the prompt bound rests on, checked against Unicode itself."""

from __future__ import annotations

import unicodedata

from tidegate.wire.prompt_bound import _HARMLESS_BYTES, _MAY_LENGTHEN, nfc_surplus

EVERY_CHARACTER = [chr(point) for point in range(0x110000) if not 0xD800 <= point < 0xE000]


def grows(character: str) -> int:
    return len(unicodedata.normalize("NFC", character).encode()) - len(character.encode())


def test_every_character_that_can_lengthen_is_known() -> None:
    """Combining marks and whatever NFC makes longer match the pattern, and begin with a byte that is not called harmless."""
    risky = [character for character in EVERY_CHARACTER if unicodedata.combining(character) or grows(character) > 0]

    assert len(risky) > 900
    assert [c for c in risky if not _MAY_LENGTHEN.fullmatch(c)] == []
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
    """English, Chinese with its punctuation, emoji and accents cost their bytes."""
    for text in ("plain", "潮汐，涨落。“引用”（一）", "naïve café", "안녕하세요", "😀 done"):
        assert nfc_surplus(text.encode(), text) == 0


def test_long_text_is_charged_per_risky_character() -> None:
    """Beyond 64 kB nothing is looked up: Chinese pays for its punctuation only, four-byte characters most."""
    chinese = "潮汐涨落有时，" * 10_000
    emoji = "😀" * 20_000

    assert nfc_surplus(chinese.encode(), chinese) == 3 * 10_000
    assert nfc_surplus(emoji.encode(), emoji) == 8 * 20_000
    assert nfc_surplus("\u0958".encode(), "\u0958") >= 3
