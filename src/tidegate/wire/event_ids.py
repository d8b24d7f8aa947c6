"""Number the events of a resumable stream, and read those numbers back from a client that returns.

Every event that a client's parser would dispatch gets the line `id: <stream id>-<n>`, with n from 1 and without gaps, in place of an id of
the upstream's own. What dispatches nothing (comments, a bare blank line) keeps its comment lines and loses its blank line: once an id was
sent, one widely used parser dispatches an empty event for each blank line that ends no event.

A stream's id begins with the number of the worker that holds it, so that any other worker knows where to send a client that returns.
"""

from __future__ import annotations

import re

import msgspec

from tidegate.wire.sse import BOM, parse_event, split_events

_RESUME_POINT = re.compile(rb"((\d{1,3})\.[0-9a-f]{24})(?:-(\d{1,15}))?")
_OWN_ID = re.compile(rb"(?:\A|(?<=[\r\n]))id(?::[^\r\n]*)?(?:\r\n?|\n)")
_KEPT_WITHOUT_DATA = (b":", b"retry:")
_NEWLINES_OF_ONE_LINE = 2  # its own and the blank line's


class ResumePoint(msgspec.Struct, frozen=True):
    """Where a client wants to go on: after event `number` of a stream (0: from its beginning)."""

    stream_id: str
    worker: int
    number: int


def make_stream_id(worker: int, random_bits: int) -> str:
    """Give a stream its id; `random_bits` are 96 random bits."""
    return f"{worker}.{random_bits:024x}"


def parse_resume_point(last_event_id: bytes) -> ResumePoint | None:
    """Read a `Last-Event-ID`; a stream's id alone stands for its beginning. None: it is no id of ours."""
    match = _RESUME_POINT.fullmatch(last_event_id)
    if match is None:
        return None
    return ResumePoint(match[1].decode("ascii"), int(match[2]), int(match[3] or 0))


class EventNumbering:
    """Numbers one stream."""

    __slots__ = ("_prefix", "number")

    def __init__(self, stream_id: str) -> None:
        self._prefix = b"id: %b-" % stream_id.encode("ascii")
        self.number = 0
        """Of the last event."""

    def apply(self, whole: bytes) -> list[tuple[int, bytes]]:
        """Take whole events, and comment lines between them; give the pieces to send, each with its number, or 0 where it has none."""
        pieces: list[tuple[int, bytes]] = []
        taken = 0
        for event in split_events(whole):
            taken += len(event)
            self._add(event, pieces)
        if taken < len(whole):
            self._add_comments(whole[taken:], pieces)
        return pieces

    def _add(self, event: bytes, pieces: list[tuple[int, bytes]]) -> None:
        is_plain = event.startswith(b"data:") and event.count(b"\n") == _NEWLINES_OF_ONE_LINE and b"\r" not in event
        if not is_plain:
            event = event.removeprefix(BOM)  # our line comes before it, and inside a stream it would be part of a field's name
            if not parse_event(event).dispatches:
                self._add_comments(event, pieces)
                return
            event = _OWN_ID.sub(b"", event)
        self.number += 1
        pieces.append((self.number, b"%b%d\n%b" % (self._prefix, self.number, event)))

    def _add_comments(self, block: bytes, pieces: list[tuple[int, bytes]]) -> None:
        kept = b"".join([line + b"\n" for line in block.splitlines() if line.startswith(_KEPT_WITHOUT_DATA)])
        if kept:
            pieces.append((0, kept))
