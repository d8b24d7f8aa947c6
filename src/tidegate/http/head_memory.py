"""Reads request heads like `request_head`, but what came before it does not parse again.

Clients send nearly the same head with every request: only `content-length` changes. A head that is equal, byte for byte, to one that was
good, but for the digits of its content-length, says the same with another length: which of up to 18 digits they are changes nothing else
of how a head is read. So the result is always that of `HeadReader`, and a head is remembered only once that has taken it.

Heads hold credentials. What is kept is bounded, stays within this server, and is dropped all together when it is full.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tidegate.domain.units import Headers
from tidegate.http.request_head import MAX_LENGTH_DIGITS, HeadReader, ParsedHead
from tidegate.ports import RequestHead

CAPACITY: Final = 512
MAX_HEAD_BYTES: Final = 2_048
MAX_FIELDS: Final = 48
"""With these three at worst some 6 MB are kept, and 2 KB of each head that SDKs send."""

REST: Final = 16
"""Where heads do not come again, one in so many is remembered: some proxies write something of its own into each."""

LENGTH: Final = b"content-length"
_CAPITALISED_LENGTH: Final = b"\r\nContent-Length: "
_LOWER_CASE_LENGTH: Final = b"\r\ncontent-length: "
_OF_ONE_REQUEST: Final = frozenset((b"traceparent", b"x-request-id", b"idempotency-key", b"last-event-id"))
"""A head with one of these does not come again."""


class _Known(msgspec.Struct, frozen=True):
    """A good head without its length, whose digits begin at `at`; its fields are those `before` and `after` the length."""

    at: int
    parsed: ParsedHead
    before: Headers
    after: Headers


class HeadMemory:
    """One serves a whole server."""

    __slots__ = ("_credit", "_known", "_reader")

    def __init__(self) -> None:
        self._reader = HeadReader()
        self._known: dict[bytes, _Known] = {}
        self._credit = CAPACITY
        """Heads that may be remembered before one must have come again; at most as many as there is room for."""

    def read(self, raw: bytes, peer: str) -> ParsedHead:
        """Read a head: all bytes from the request line to the empty line. Raises what `HeadReader.read` raises."""
        at = length_at(raw) if len(raw) <= MAX_HEAD_BYTES else 0
        if not at:
            return self._reader.read(raw, peer)
        end = raw.find(b"\r", at)
        digits = raw[at:end]
        if not digits.isdigit() or len(digits) > MAX_LENGTH_DIGITS:
            return self._reader.read(raw, peer)
        rest = raw[:at] + raw[end:]
        known = self._known.get(rest)
        if known is None or known.at != at:
            parsed = self._reader.read(raw, peer)
            self._remember(rest, at, parsed, digits)
            return parsed
        if self._credit < CAPACITY:
            self._credit = max(self._credit, 0) + 1
        parsed, head, length = known.parsed, known.parsed.head, ((LENGTH, digits),)
        return ParsedHead(
            RequestHead(head.method, head.path, head.query, known.before + length + known.after, peer, head.notes),
            int(digits),
            parsed.keep_alive,
            parsed.http_1_0,
            parsed.expectation,
            parsed.coded,
        )

    def _remember(self, rest: bytes, at: int, parsed: ParsedHead, digits: bytes) -> None:
        self._credit -= 1
        if self._credit < 0 and self._credit % REST:
            return
        fields, length = parsed.head.headers, (LENGTH, digits)
        if length not in fields or len(fields) > MAX_FIELDS or not _OF_ONE_REQUEST.isdisjoint([name for name, _ in fields]):
            return
        if len(self._known) >= CAPACITY:
            self._known.clear()
        place = fields.index(length)
        self._known[rest] = _Known(at, parsed, fields[:place], fields[place + 1 :])


def length_at(raw: bytes) -> int:
    """Give where the digits of an ordinary content-length begin; 0: there is none."""
    at = raw.find(_CAPITALISED_LENGTH)
    if at < 0:
        at = raw.find(_LOWER_CASE_LENGTH)
    return at + len(_LOWER_CASE_LENGTH) if at >= 0 else 0
