"""Trace context and request ids: strict reading, absent when wrong."""

from __future__ import annotations

import pytest

from tidegate.wire.trace_context import TraceContext, clean_request_id, parse_traceparent

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"


def test_a_valid_header_is_read() -> None:
    """Ids and the sampled flag come out."""
    context = parse_traceparent(f"00-{TRACE}-{SPAN}-01".encode())

    assert context == TraceContext(TRACE, SPAN, 1)
    assert context.flags == 1


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        f"00-{TRACE.upper()}-{SPAN}-01".encode(),
        f"ff-{TRACE}-{SPAN}-01".encode(),
        f"00-{'0' * 32}-{SPAN}-01".encode(),
        f"00-{TRACE}-{'0' * 16}-01".encode(),
        f"00-{TRACE}-{SPAN}-01-extra".encode(),
        f"00-{TRACE}-{SPAN}".encode(),
        f"00-{TRACE}-{SPAN}-01\n".encode(),
        f"01-{TRACE}-{SPAN}-01x".encode(),
        f"00-{TRACE[:-1]}-{SPAN}-01".encode(),
    ],
)
def test_an_invalid_header_is_treated_as_absent(value: bytes | None) -> None:
    """A wrong trace is worse than none."""
    assert parse_traceparent(value) is None


def test_a_future_version_is_tolerated() -> None:
    """Fields that a later version appends are ignored, and unknown flags are not handed on."""
    context = parse_traceparent(f"cc-{TRACE}-{SPAN}-ff-what-the-future-brings".encode())

    assert context == TraceContext(TRACE, SPAN, 3)
    assert context.child("1" * 16) == f"00-{TRACE}-{'1' * 16}-03".encode()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"req-1", "req-1"),
        (b"  padded\t", "padded"),
        (b"x" * 128, "x" * 128),
        (b"x" * 129, None),
        (b"", None),
        (b"   ", None),
        (None, None),
        (b"line\nbreak", None),
        ("ümlaut".encode(), None),
        (b"\x7f", None),
    ],
)
def test_a_request_id_is_printable_ascii_of_bounded_length(value: bytes | None, expected: str | None) -> None:
    """Anything else is replaced by an id of our own."""
    assert expected == clean_request_id(value)
