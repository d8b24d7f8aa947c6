"""Header fields of our own making: each is one line, whatever is in it, or none is written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.domain.header_lines import field_lines

OWNED = frozenset({b"content-length"})
FIELDS = st.lists(st.tuples(st.binary(max_size=6), st.binary(max_size=6)), max_size=4).map(tuple)


@given(FIELDS)
def test_fields_are_lines_or_refused(headers: tuple[tuple[bytes, bytes], ...]) -> None:
    """Law: what is written is each field and the end of its line; a field with a CR, LF or NUL, wherever it is, is not written."""
    plain = b"".join([b"%b: %b\r\n" % field for field in headers])
    if any(byte in part for field in headers for part in field for byte in (b"\r", b"\n", b"\0")):
        with pytest.raises(AssertionError, match="a CR, LF or NUL"):
            field_lines(headers, OWNED)
    else:
        assert plain == field_lines(headers, OWNED)


@pytest.mark.parametrize("value", [b"a\r", b"\na", b"\r\n", b"a\rb", b"\0", b"a\r\nx: y"])
def test_no_field_ends_its_line_early(value: bytes) -> None:
    """Where a CR or LF meets the line's own end, too; in the first field and in the last."""
    for headers in (((b"x", value), (b"y", b"z")), ((b"y", b"z"), (b"x", value))):
        with pytest.raises(AssertionError, match="a CR, LF or NUL"):
            field_lines(headers, OWNED)


def test_what_the_connection_says_is_not_for_others_to_say() -> None:
    """A name that is the connection's own is a fault of whoever built the headers."""
    with pytest.raises(AssertionError, match="content-length"):
        field_lines(((b"content-length", b"1"),), OWNED)
