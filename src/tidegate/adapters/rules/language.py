"""The language of a short question, as far as its script tells: what rule files may ask for as `language`."""

from __future__ import annotations

from tidegate.domain.features import Script
from tidegate.wire.text_statistics import measure


def language_of(question: str) -> str:
    """Give the `Script` that there is most of; `other` for a text without letters.

    Any kana make a question Japanese: Chinese has none. Two Latin letters weigh as much as one of the others, which say more in one.
    """
    letters = dict(measure(question).letters)
    if Script.JA in letters:
        return Script.JA.value
    if Script.LATIN in letters:
        letters[Script.LATIN] //= 2
    return max(letters, key=letters.__getitem__).value if letters else Script.OTHER.value
