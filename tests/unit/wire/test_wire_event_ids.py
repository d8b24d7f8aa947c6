"""Heartbeats and event ids: what they look like, and that no parser trips over them."""

from __future__ import annotations

import pytest

from tidegate.wire.event_ids import EventNumbering, ResumePoint, make_stream_id, parse_resume_point
from tidegate.wire.heartbeat import heartbeat
from tidegate.wire.sse import BOM

STREAM = "3.0000000000000000000000ff"


def numbered(whole: bytes) -> list[tuple[int, bytes]]:
    return EventNumbering(STREAM).apply(whole)


def test_a_heartbeat_is_one_comment_line() -> None:
    """Time to the millisecond, sequence number, exactly one line end."""
    assert heartbeat(1_700_000_000.25, 7) == b": heartbeat 1700000000.250 7\n"


def test_a_stream_id_names_its_worker() -> None:
    """The id can be read back, alone or as part of an event's id."""
    stream_id = make_stream_id(3, 255)
    assert stream_id == STREAM
    assert parse_resume_point(stream_id.encode()) == ResumePoint(STREAM, 3, 0)
    assert parse_resume_point(f"{stream_id}-12".encode()) == ResumePoint(STREAM, 3, 12)


@pytest.mark.parametrize("foreign", [b"", b"12", b"evt_1", b"3.ff-1", STREAM.encode() + b"-", STREAM.encode() + b"-1x", b"-1." + b"0" * 24])
def test_other_ids_are_not_ours(foreign: bytes) -> None:
    """An id that an upstream or another program made is left alone."""
    assert parse_resume_point(foreign) is None


def test_each_event_gets_the_next_number() -> None:
    """Numbers run on over chunks, without gaps."""
    numbering = EventNumbering(STREAM)
    first = numbering.apply(b"data: {}\n\ndata: [1]\n\n")
    second = numbering.apply(b"data: [DONE]\n\n")
    assert first == [(1, f"id: {STREAM}-1\ndata: {{}}\n\n".encode()), (2, f"id: {STREAM}-2\ndata: [1]\n\n".encode())]
    assert second == [(3, f"id: {STREAM}-3\ndata: [DONE]\n\n".encode())]
    assert numbering.number == 3


@pytest.mark.parametrize(
    ("event", "rest"),
    [
        (b"event: error\r\ndata: {}\r\n\r\n", b"event: error\r\ndata: {}\r\n\r\n"),
        (b"data: a\rdata: b\r\r", b"data: a\rdata: b\r\r"),
        (b"id: 7\ndata: a\n\n", b"data: a\n\n"),
        (b"data: a\r\nid\r\n\r\n", b"data: a\r\n\r\n"),
        (b"data: a\rid:9\r\r", b"data: a\r\r"),
        (b"data: a\nident: 9\n\n", b"data: a\nident: 9\n\n"),
        (BOM + b"data: a\n\n", b"data: a\n\n"),
        (b": note\ndata: a\n\n", b": note\ndata: a\n\n"),
    ],
)
def test_an_event_keeps_its_lines(event: bytes, rest: bytes) -> None:
    """All but an id of its own, whatever ends its lines."""
    assert numbered(event) == [(1, f"id: {STREAM}-1\n".encode() + rest)]


@pytest.mark.parametrize(
    ("block", "kept"),
    [
        (b": PROCESSING\n\n", b": PROCESSING\n"),
        (b": a\r\n: b\r\n\r\n", b": a\n: b\n"),
        (b"retry: 500\n\n", b"retry: 500\n"),
        (b": heartbeat 1.000 1\n", b": heartbeat 1.000 1\n"),
    ],
)
def test_what_dispatches_nothing_has_no_number_and_no_blank_line(block: bytes, kept: bytes) -> None:
    """A comment stays a comment and ends no event."""
    assert numbered(block) == [(0, kept)]


@pytest.mark.parametrize("block", [b"\n", b"\r\n", b"event: ping\n\n"])
def test_what_says_nothing_is_left_out(block: bytes) -> None:
    """A bare blank line, or the name of an event without data."""
    assert numbered(block) == []
