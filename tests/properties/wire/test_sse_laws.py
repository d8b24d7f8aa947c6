"""Laws of the event splitter: cutting a stream anywhere changes nothing."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tidegate.wire.sse import EventSplitter, parse_event, split_events

LINE_ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])
LINES = st.one_of(
    st.just(b""),
    st.text(max_size=12).map(lambda text: b"data: " + "".join(c for c in text if c not in "\r\n").encode()),
    st.sampled_from([b": comment", b"event: ping", b"id: 7", b"retry: 100", b"data", b"data:x"]),
)
STREAMS = st.lists(st.tuples(LINES, LINE_ENDS), max_size=14).map(lambda lines: b"".join(line + end for line, end in lines))


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    bounds = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return [stream[start:end] for start, end in pairwise(bounds)]


def fields(events: list[bytes]) -> list[tuple[bytes, str | None, str | None]]:
    """What a client's parser dispatches, in order."""
    parsed = [parse_event(event) for event in events]
    return [(event.data, event.event, event.id) for event in parsed if event.dispatches]


@given(STREAMS, st.lists(st.integers(0, 500), max_size=20))
def test_law_the_pieces_put_together_are_the_stream(stream: bytes, places: list[int]) -> None:
    """Whatever the framing and the cuts, what was given plus what was held back is what came in."""
    splitter = EventSplitter()
    given_out = b"".join(splitter.feed(chunk) for chunk in cut(stream, places))

    assert stream == given_out + splitter.take_rest()


@given(STREAMS, st.lists(st.integers(0, 500), max_size=20))
def test_law_any_cut_gives_the_same_events(stream: bytes, places: list[int]) -> None:
    """A client dispatches the same events, whether the stream came whole or in pieces."""
    whole, pieces = EventSplitter(), EventSplitter()
    expected = fields(split_events(whole.feed(stream)))
    seen: list[bytes] = []
    for chunk in cut(stream, places):
        seen += split_events(pieces.feed(chunk))

    assert expected == fields(seen)
    assert whole.take_rest() == pieces.take_rest()


@given(STREAMS)
def test_law_every_piece_ends_an_event(stream: bytes) -> None:
    """What is given out can be cut into whole events without remainder."""
    whole = EventSplitter().feed(stream)

    assert whole == b"".join(split_events(whole))


@given(st.binary(max_size=60))
def test_law_no_bytes_break_the_parser(noise: bytes) -> None:
    """Arbitrary bytes are read as some event, never as an exception."""
    assert isinstance(parse_event(noise, first=True).data, bytes)
