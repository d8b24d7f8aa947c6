"""Take out of an upstream's message what it repeats of the request: prompts do not belong into records, logs and spans.

A run of 24 characters or more of the message that stands in the request's body, too, is replaced by `[request text]`. Both are compared
without the escapes of JSON, however often they were escaped, and with every run of blanks, control characters and characters beyond the
basic plane as one blank: so an echo is found whole, in part, or quoted as JSON. Shorter runs stay: they are words that anybody uses.

Bounds: the message is one of `vendor_errors` (500 characters); of a body over 32 KiB the first and the last 16 KiB are looked at, so what
an upstream repeats of the middle of a longer one is not known as such. Some 10 ms at worst, and less than half of one for most.
"""

from __future__ import annotations

import re
from typing import Final

PLACEHOLDER: Final = "[request text]"
SHORTEST_RUN: Final = 24
LOOKED_AT_BYTES: Final = 16 * 1024
"""Of either end of a body."""

_HALF: Final = SHORTEST_RUN // 2
"""A text that is cut into pieces of 12 characters has a whole one in every run of 24."""
_ESCAPES: Final = r"\\+(?:u([0-9a-fA-F]{4})|[bfnrt])?"
_BLANKS: Final = r"[\s\x00-\x1f\x7f-\x9f\ud800-\udfff\U00010000-\U0010ffff]+"
_ESCAPE: Final = re.compile(_ESCAPES)
_BLANK: Final = re.compile(_BLANKS)
_PIECE: Final = re.compile(f"{_ESCAPES}|{_BLANKS}|.", re.DOTALL)


def without_request_text(message: str, body: bytes, *, model: str = "") -> str:
    """Give an upstream's message with a placeholder for each run of characters that stands in the request's body.

    The name of the model stays: the record has it anyway, and an operator looks for it.
    """
    characters, spans = _characters(message)
    starts = range(len(characters) - SHORTEST_RUN + 1)
    if not starts:
        return message
    text, name = _text(body), _plain(model)
    repeated = _repeated(characters, text.replace(name, "\n") if name else text)
    parts: list[str] = []
    kept = until = 0
    for at in starts:
        if characters[at : at + SHORTEST_RUN] not in repeated:
            continue
        if at > until or not parts:
            parts += (message[kept : spans[at][0]], PLACEHOLDER)
        until = at + SHORTEST_RUN
        kept = spans[until - 1][1]
    return "".join((*parts, message[kept:]))


def _repeated(characters: str, text: str) -> set[str]:
    """Give the shortest runs of a message that a text has, too. Most texts have none of their halves, and no more is looked at."""
    halves = {characters[at : at + _HALF] for at in range(len(characters) - _HALF + 1)}
    runs = {characters[at : at + SHORTEST_RUN] for at in range(len(characters) - SHORTEST_RUN + 1)}
    return {
        run
        for half in range(0, len(text), _HALF)
        if text[half : half + _HALF] in halves
        for at in range(max(0, half - _HALF), half + 1)
        if (run := text[at : at + SHORTEST_RUN]) in runs
    }


def _text(body: bytes) -> str:
    ends = (body,) if len(body) <= 2 * LOOKED_AT_BYTES else (body[:LOOKED_AT_BYTES], body[-LOOKED_AT_BYTES:])
    return "\n".join(_plain(end.decode(errors="replace")) for end in ends)


def _characters(message: str) -> tuple[str, list[tuple[int, int]]]:
    """Give a message as it is compared, and where in it each of those characters stands."""
    characters: list[str] = []
    spans: list[tuple[int, int]] = []
    for piece in _PIECE.finditer(message):
        character = _plain(piece[0])
        if character == " " and characters and characters[-1] == " ":
            spans[-1] = (spans[-1][0], piece.end())
        elif character:
            characters.append(character)
            spans.append(piece.span())
    return "".join(characters), spans


def _plain(text: str) -> str:
    return _BLANK.sub(" ", _ESCAPE.sub(_unescaped, text) if "\\" in text else text)


def _unescaped(escape: re.Match[str]) -> str:
    """Give what an escape stands for; a backslash before anything else is the escape of that, and stands for nothing."""
    if escape[1]:
        return chr(int(escape[1], 16))
    return "" if escape[0].endswith("\\") else " "
