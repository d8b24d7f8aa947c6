"""The shape that the ordinary events of one stream share: all of an event but its text.

An engine writes the same bytes around each piece of text. So an event that begins and ends like one which the decoder has read, and between
has nothing that JSON escapes or forbids, says the same with another text, and need not be decoded. (Nor does the decoder ask whether a text
that it skips is UTF-8.) A property test holds what follows from a stencil against what follows without.

Bound: a stencil keeps at most what is around the texts of two events of `_LONGEST_EVENT` bytes.
"""

from __future__ import annotations

from typing import Final

NO_MATCH: Final = -1

_SPACE: Final = 0x20
_QUOTE: Final = 0x22
_BACKSLASH: Final = 0x5C
_SPECIAL: Final = bytes([*range(_SPACE), _QUOTE, _BACKSLASH])
"""What cannot stand in a JSON string as it is (RFC 8259, section 7)."""

_LONGEST_TEXT: Final = 64
"""Longer ones are left to the decoder, which is quicker over many bytes."""

_LONGEST_EVENT: Final = 4096


class Stencil:
    """Made by `cut_stencil`."""

    __slots__ = ("_after", "_around", "_before", "_relayed_after", "_relayed_before", "_shortest", "_verbatim")

    def __init__(self, event: bytes, relayed: bytes, text: bytes, *, shortest: int) -> None:
        self._before, self._after = _around(event, text)
        self._around = len(self._before) + len(self._after)
        self._shortest = shortest
        self._verbatim = event == relayed
        self._relayed_before, self._relayed_after = (self._before, self._after) if self._verbatim else _around(relayed, text)

    def measure(self, event: bytes) -> int:
        """Give the bytes of text that an event of this shape counts for; `NO_MATCH` for any other."""
        size = len(event) - self._around
        if size < 0 or size > _LONGEST_TEXT or not event.startswith(self._before) or not event.endswith(self._after):
            return NO_MATCH
        at = len(self._before)
        end = at + size
        while at < end:
            byte = event[at]
            if byte < _SPACE or byte in (_QUOTE, _BACKSLASH):
                return NO_MATCH
            at += 1
        return size if size >= self._shortest else 0

    def relay(self, event: bytes) -> bytes:
        """Give what is relayed of an event that has this shape."""
        if self._verbatim:
            return event
        return self._relayed_before + event[len(self._before) : len(event) - len(self._after)] + self._relayed_after


def is_plain(text: bytes) -> bool:
    """Say whether this JSON value is a string that stands for itself, and not too long for a stencil."""
    return len(text) - 2 <= _LONGEST_TEXT and b'"%b"' % text.translate(None, _SPECIAL) == text


def cut_stencil(event: bytes, relayed: bytes, text: bytes, *, shortest: int) -> Stencil | None:
    """Make a stencil of an event, what is relayed of it, and the plain string with its text.

    None if the event is too long to keep, or it is not certain where its text is. A text of fewer than `shortest` bytes counts for
    nothing, any other for its own.
    """
    if len(event) > _LONGEST_EVENT or event.count(text) != 1 or relayed.count(text) != 1:
        return None
    return Stencil(event, relayed, text, shortest=shortest)


def _around(event: bytes, text: bytes) -> tuple[bytes, bytes]:
    at = event.index(text)
    return event[: at + 1], event[at + len(text) - 1 :]
