"""Server-sent events: what counts as an event, and how its lines are read."""

from __future__ import annotations

import pytest

from tidegate.wire.sse import EventSplitter, ServerSentEvent, parse_event, split_events


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (b"data: a\n\n", ServerSentEvent(data=b"a", dispatches=True)),
        (b"data:a\n\n", ServerSentEvent(data=b"a", dispatches=True)),
        (b"data:  a\n\n", ServerSentEvent(data=b" a", dispatches=True)),
        (b"data: a\ndata: b\r\ndata:c\r\n\r\n", ServerSentEvent(data=b"a\nb\nc", dispatches=True)),
        (b"data\n\n", ServerSentEvent(data=b"", dispatches=True)),
        (b"data: a:b\n\n", ServerSentEvent(data=b"a:b", dispatches=True)),
        (b": OPENROUTER PROCESSING\n\n", ServerSentEvent()),
        (b"\n", ServerSentEvent()),
        (
            b"event: error\nid: 7\nretry: 1500\ndata: x\n\n",
            ServerSentEvent(data=b"x", event="error", id="7", retry_ms=1500, dispatches=True),
        ),
        (b"id: a\0b\nretry: soon\nretry: 12345678901\nunknown: 1\n\n", ServerSentEvent()),
        (b"event: \xff\n\n", ServerSentEvent(event="\ufffd")),
        (b"\xef\xbb\xbfdata: a\n\n", ServerSentEvent()),
    ],
)
def test_lines_are_interpreted_as_the_standard_says(event: bytes, expected: ServerSentEvent) -> None:
    """Fields with and without space, colon or value, several data lines, comments and unknown fields."""
    assert expected == parse_event(event)


def test_one_byte_order_mark_is_skipped_at_the_start_of_the_stream() -> None:
    """The mark belongs to the stream, not to the first field's name; a second one would."""
    assert parse_event(b"\xef\xbb\xbfdata: a\n\n", first=True).data == b"a"
    assert not parse_event(b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n", first=True).dispatches


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_events_are_found_under_each_framing(line_end: bytes) -> None:
    """LF, CRLF and CR streams give the same two events, and hold back the third, unfinished one."""
    splitter = EventSplitter()
    stream = line_end.join([b"data: a", b"", b": c", b"", b"data: b"])

    assert split_events(splitter.feed(stream)) == [b"data: a" + line_end * 2, b": c" + line_end * 2]
    assert splitter.pending == len(b"data: b")
    assert splitter.take_rest() == b"data: b"
    assert splitter.pending == 0


def test_an_event_split_between_the_line_end_and_the_blank_line_is_found() -> None:
    """The search for the boundary looks back over what was already searched."""
    splitter = EventSplitter()

    assert splitter.feed(b"data: a\n") == b""
    assert splitter.feed(b"\n") == b"data: a\n\n"
    assert splitter.feed(b"data: b\r") == b""
    assert splitter.feed(b"\n\r") == b"data: b\r\n\r"
    assert splitter.feed(b"\n") == b"\n"


def test_a_blank_line_between_events_is_an_event_of_its_own() -> None:
    """Extra blank lines neither delay nor join their neighbours."""
    splitter = EventSplitter()

    assert splitter.feed(b"\ndata: a") == b"\n"
    assert split_events(splitter.feed(b"\n\n\n")) == [b"data: a\n\n", b"\n"]


def test_lines_over_64_kb_are_no_limit() -> None:
    """One event of 300 kB in small pieces comes out whole."""
    event = b"data: " + b"x" * 300_000 + b"\n\n"
    splitter = EventSplitter()
    out = b"".join(splitter.feed(event[at : at + 1000]) for at in range(0, len(event), 1000))

    assert out == event


def test_an_unfinished_event_over_the_bound_is_thrown_away_and_flagged() -> None:
    """Memory stays bounded; nothing is given after that."""
    splitter = EventSplitter(max_event_bytes=10)

    assert splitter.feed(b"data: a\n\ndata: 12345678") == b"data: a\n\n"
    assert splitter.overflowed
    assert splitter.feed(b"\n\n") == b""
    assert splitter.take_rest() == b""
