"""Reads whole answers of an upstream without the parser, where the last one that it read had the same head.

An upstream writes nearly the same head for every answer: within a second only `content-length` changes. An answer that came in one read is
known if its head is equal, byte for byte, to one that the parser took, but for the digits of its content-length, and if that many bytes
follow it and nothing else: which digits they are changes nothing else of how it is read. Remembered is only what can mean one thing alone:
`HTTP/1.1 200`, each field on its own line, one length, a body, and no more; all else is for the parser, each time.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tidegate.domain.units import Headers
from tidegate.http.head_memory import LENGTH, length_at
from tidegate.http.request_head import MAX_LENGTH_DIGITS

MAX_HEAD_BYTES: Final = 1_024

STATUS: Final = 200
"""Of every known answer."""

REST: Final = 16
"""Answers that are not remembered after one whose head did not come again: some upstreams never write the same head twice."""

_START: Final = b"HTTP/1.1 200 "


class WholeAnswer(msgspec.Struct, frozen=True):
    headers: Headers
    body: bytes
    keeps_alive: bool


class AnswerMemory:
    """One serves all connections to an upstream, and holds one head."""

    __slots__ = ("_after", "_before", "_fields_after", "_fields_before", "_keeps_alive", "_resting", "_was_of_use")

    def __init__(self) -> None:
        self._before = b""
        """The head up to the digits of its length; empty: there is none."""
        self._after = b""
        self._fields_before: Headers = ()
        self._fields_after: Headers = ()
        self._keeps_alive = False
        self._was_of_use = True
        self._resting = 0

    def read(self, answer: bytes) -> WholeAnswer | None:
        """Read what came in one read, the first since the request; None: let the parser do it."""
        before, after = self._before, self._after
        if not before or not answer.startswith(before):
            return None
        at = len(before)
        end = answer.find(b"\r", at, at + MAX_LENGTH_DIGITS + 1)
        if end < 0 or not answer.startswith(after, end):
            return None
        digits, body_at = answer[at:end], end + len(after)
        if not digits.isdigit() or not 0 < int(digits) == len(answer) - body_at:
            return None
        self._was_of_use, self._resting = True, 0
        length = ((LENGTH, digits),)
        return WholeAnswer(self._fields_before + length + self._fields_after, answer[body_at:], self._keeps_alive)

    def learn(self, answer: bytes, headers: Headers, *, keeps_alive: bool) -> None:
        """Remember the head of an answer to anything but HEAD, which the parser has read as one whole message with these fields."""
        if self._resting:
            self._resting -= 1
            return
        head_end = answer.find(b"\r\n\r\n", 0, MAX_HEAD_BYTES)
        lines = answer[: max(0, head_end)].split(b"\r\n")
        if not answer.startswith(_START) or len(lines) != len(headers) + 1 or any(b"\n" in line or b"\r" in line for line in lines):
            return
        at, body_at = length_at(answer[: head_end + 2]), head_end + 4
        length = (LENGTH, b"%d" % (len(answer) - body_at))
        end = at + len(length[1])
        if not at or answer[at : end + 1] != length[1] + b"\r" or length not in headers or len(answer) == body_at:
            return
        if any(name == b"transfer-encoding" for name, _ in headers):
            return
        place = headers.index(length)
        self._before, self._after = answer[:at], answer[end:body_at]
        self._fields_before, self._fields_after = headers[:place], headers[place + 1 :]
        self._keeps_alive = keeps_alive
        self._resting = 0 if self._was_of_use else REST
        self._was_of_use = False
