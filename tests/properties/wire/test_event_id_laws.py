"""Laws of numbered events, for any stream and any cut between events."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from tidegate.wire.event_ids import EventNumbering, parse_resume_point
from tidegate.wire.sse import parse_event, split_events

STREAM = "12.00000000000000000000abcd"
NEWLINES = st.sampled_from(["\n", "\r\n"])
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"), max_size=12)
LINES = st.one_of(
    TEXT.map("data: {}".format),
    TEXT.map("data:{}".format),
    TEXT.map(": {}".format),
    TEXT.map("event: {}".format),
    st.integers(0, 99).map("id: {}".format),
    st.just("id"),
    st.integers(0, 9999).map("retry: {}".format),
)


@st.composite
def events(draw: st.DrawFn) -> bytes:
    newline = draw(NEWLINES)
    lines = draw(st.lists(LINES, max_size=4))
    return "".join(line + newline for line in [*lines, ""]).encode()


@given(st.lists(events(), max_size=12), st.data())
def test_where_a_stream_is_cut_changes_nothing(stream: list[bytes], data: st.DataObject) -> None:
    """Numbers and pieces are the same whether events come one by one or several at a time."""
    cut = data.draw(st.integers(0, len(stream)))
    at_once, in_two = EventNumbering(STREAM), EventNumbering(STREAM)
    whole = at_once.apply(b"".join(stream))
    parts = in_two.apply(b"".join(stream[:cut])) + in_two.apply(b"".join(stream[cut:]))
    assert parts == whole
    assert in_two.number == at_once.number


@given(st.lists(events(), max_size=12))
def test_every_blank_line_ends_an_event_with_data(stream: list[bytes]) -> None:
    """A parser that dispatches at each blank line sees the same data in the same order, each with the next number, and nothing empty."""
    sent = b"".join(piece for _, piece in EventNumbering(STREAM).apply(b"".join(stream)))
    dispatched = [event for event in map(parse_event, stream) if event.dispatches]
    blocks = [parse_event(block) for block in split_events(sent)]
    assert [block.data for block in blocks] == [event.data for event in dispatched]
    assert [block.event for block in blocks] == [event.event for event in dispatched]
    points = [parse_resume_point((block.id or "").encode()) for block in blocks]
    assert [point.number if point is not None else None for point in points] == list(range(1, len(blocks) + 1))


@given(st.lists(events(), max_size=12))
def test_only_the_ids_are_ours(stream: list[bytes]) -> None:
    """Taken out again, what is left of an event is what the upstream sent, without an id of its own."""
    numbered = [piece for number, piece in EventNumbering(STREAM).apply(b"".join(stream)) if number]
    originals = [event for event in stream if parse_event(event).dispatches]
    for piece, original in zip(numbered, originals, strict=True):
        assert piece.partition(b"\n")[2] == re.sub(rb"^id(:[^\r\n]*)?\r?\n", b"", original, flags=re.MULTILINE)
