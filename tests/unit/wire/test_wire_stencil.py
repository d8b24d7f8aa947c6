"""Stencils: which events have the shape of an earlier one, what they count for, and what of them is relayed."""

from __future__ import annotations

import pytest

from tidegate.wire.stencil import NO_MATCH, Stencil, cut_stencil, is_plain

BEFORE, AFTER = b'data: {"choices":[{"index":0,"delta":{"content":"', b'"},"finish_reason":null}],"usage":null}\n\n'
RELAYED_AFTER = AFTER.replace(b',"usage":null', b"")


def event(text: bytes) -> bytes:
    return BEFORE + text + AFTER


def stencil(relayed: bytes = event(b"hello")) -> Stencil:
    cut = cut_stencil(event(b"hello"), relayed, b'"hello"', shortest=3)
    assert cut is not None
    return cut


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (b"and so on", 9),
        ("潮汐".encode(), 6),
        (b"\xff\x7f~", 3),
        (b"ab", 0),
        (b"", 0),
        (b"x" * 64, 64),
        (b"x" * 65, NO_MATCH),
        (b'x"y', NO_MATCH),
        (b"\\n.", NO_MATCH),
        (b"x\ny", NO_MATCH),
        (b"x\x1f", NO_MATCH),
        (b"x\x00", NO_MATCH),
    ],
)
def test_an_event_counts_for_its_text_where_that_is_plain(text: bytes, size: int) -> None:
    """A short one counts for nothing: it may be `null`, or an empty text."""
    assert stencil().measure(event(text)) == size


@pytest.mark.parametrize(
    "other", [b"", BEFORE, AFTER, BEFORE[:-1] + AFTER[1:], event(b"hello")[1:], event(b"hello")[:-1], b"x" + event(b"hello")]
)
def test_another_shape_does_not_match(other: bytes) -> None:
    """Nor does an event in which the two ends would overlap."""
    assert stencil().measure(other) == NO_MATCH


def test_what_is_relayed_is_the_event_or_all_but_what_was_left_out() -> None:
    """The event itself, not a copy, where nothing was."""
    other = event(b"and so on")
    assert stencil().relay(other) is other
    assert stencil(BEFORE + b"hello" + RELAYED_AFTER).relay(other) == BEFORE + b"and so on" + RELAYED_AFTER


def test_no_stencil_is_cut_where_the_text_is_found_twice_or_the_event_is_long() -> None:
    """It must be certain which bytes are the text, and what is kept has a bound."""
    twice = b'data: {"id":"hello","choices":[{"delta":{"content":"hello"}}]}\n\n'
    long = event(b"hello").replace(b"data: {", b'data: {"id":"%b",' % (b"i" * 4096))
    assert cut_stencil(twice, twice, b'"hello"', shortest=3) is None
    assert cut_stencil(event(b"hello"), twice, b'"hello"', shortest=3) is None
    assert cut_stencil(long, long, b'"hello"', shortest=3) is None


@pytest.mark.parametrize("text", [b'"hello"', b'""', '"潮汐"'.encode()])
def test_a_plain_string_stands_for_itself(text: bytes) -> None:
    """Any bytes do but those that JSON escapes."""
    assert is_plain(text)


@pytest.mark.parametrize("text", [b"null", b'"a\\n"', b'"a\\"b"', b"[1]", b'["a"]', b'"%b"' % (b"x" * 65)])
def test_other_values_are_not_plain_strings(text: bytes) -> None:
    """Escapes, arrays, `null`, and strings that the decoder reads quicker."""
    assert not is_plain(text)
