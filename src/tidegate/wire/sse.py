"""Find and read server-sent events in bytes (WHATWG HTML, "Server-sent events", parsing and interpreting an event stream).

Invariants: an event is every line up to and including its blank line, whatever mixture of LF, CRLF and CR ends the lines;
the events of a stream, concatenated, are the stream; and where the stream was cut into chunks makes no difference to them, with
one visible exception: an event whose blank line is a CR at the very end of a chunk is given at once, and an LF that then opens
the next chunk, the second half of that line end, is given as a piece of its own.
"""

from __future__ import annotations

import re

import msgspec

MAX_EVENT_BYTES = 4 * 1024 * 1024
"""Bound of the unfinished event held back: far above any real one (a tool call with a file in it), far below what hurts."""

BOM = b"\xef\xbb\xbf"
"""UTF-8's byte order mark."""
_MAX_RETRY_DIGITS = 9
_DATA = b"data: "
_BLANK_LINE = re.compile(rb"(?:\A|(?<=\n)|(?<=\r)(?!\n))(?:\r\n?|\n)")
"""A line end that follows a line end (or the event's start). An LF after a CR is the same line end, not the next."""


class ServerSentEvent(msgspec.Struct, frozen=True):
    """One event after interpretation; `data` has its lines joined by LF."""

    data: bytes = b""
    event: str | None = None
    id: str | None = None
    retry_ms: int | None = None
    dispatches: bool = False
    """False for comments, blank lines and fields without `data`: a client's parser shows nothing to the application."""


def parse_event(event_bytes: bytes, *, first: bool = False) -> ServerSentEvent:
    """Interpret the lines of one event; `first` says that it opens the stream, where one byte order mark is skipped."""
    if first and event_bytes.startswith(BOM):
        event_bytes = event_bytes[len(BOM) :]
    written = event_bytes.splitlines()
    if len(written) == 2 and not written[1] and written[0].startswith(_DATA):  # noqa: PLR2004  a line and a blank one, as nearly all are
        return ServerSentEvent(data=written[0][len(_DATA) :], dispatches=True)
    lines: list[bytes] = []
    name: str | None = None
    last_id: str | None = None
    retry_ms: int | None = None
    for line in written:
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            lines.append(value)
        elif field == b"event":
            name = value.decode("utf-8", "replace")
        elif field == b"id" and b"\0" not in value:
            last_id = value.decode("utf-8", "replace")
        elif field == b"retry" and value.isdigit() and len(value) <= _MAX_RETRY_DIGITS:
            retry_ms = int(value)
    return ServerSentEvent(data=b"\n".join(lines), event=name, id=last_id, retry_ms=retry_ms, dispatches=bool(lines))


def split_events(whole: bytes) -> list[bytes]:
    """Cut bytes that end at an event's end (as `EventSplitter.feed` gives them) into the single events."""
    if whole.find(b"\r") < 0 and whole.find(b"\n\n\n") < 0 and not whole.startswith(b"\n"):  # no empty events, as nearly always
        if whole.find(b"\n\n") == len(whole) - 2:
            return [whole]
        return [event + b"\n\n" for event in whole.split(b"\n\n")[:-1]]
    events: list[bytes] = []
    start = 0
    for blank in _BLANK_LINE.finditer(whole):
        events.append(whole[start : blank.end()])
        start = blank.end()
    return events


class EventSplitter:
    """Turn chunks, cut anywhere, into whole events, holding back only the unfinished one."""

    __slots__ = ("_has_cr", "_max_event_bytes", "_searched", "_tail", "overflowed")

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._tail = bytearray()
        self._searched = 0
        """Bytes of the tail known to end no event, so that a long event in many chunks is searched once, not quadratically."""
        self._has_cr = False
        self.overflowed = False
        """The unfinished event grew over the bound and was thrown away; nothing more is given."""

    @property
    def pending(self) -> int:
        """Bytes held back."""
        return len(self._tail)

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk; give every event that is now complete, byte for byte."""
        if self.overflowed:
            return b""
        self._has_cr = self._has_cr or chunk.find(b"\r") >= 0
        tail = self._tail
        if not tail and not self._has_cr and chunk.endswith(b"\n\n"):
            return chunk
        tail += chunk
        cut = self._last_boundary()
        whole = bytes(tail[:cut])
        del tail[:cut]
        self._searched = len(tail)
        if len(tail) > self._max_event_bytes:
            self.overflowed = True
            tail.clear()
        return whole

    def take_rest(self) -> bytes:
        """Give what is held back, at the end of the stream."""
        rest = bytes(self._tail)
        self._tail.clear()
        self._searched = 0
        return rest

    def _last_boundary(self) -> int:
        tail = self._tail
        if self._has_cr:
            cut = 0
            for blank in _BLANK_LINE.finditer(tail, max(0, self._searched - 1)):
                cut = blank.end()
            return cut
        found = tail.rfind(b"\n\n", max(0, self._searched - 1))
        if found >= 0:
            return found + 2
        return 1 if tail.startswith(b"\n") else 0  # a blank line between events is an (empty) event of its own
