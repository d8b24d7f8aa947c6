"""Read and write the identity of a request: W3C Trace Context's `traceparent` (Level 2) and `X-Request-ID`.

A header that breaks the rules is treated as absent: the trace starts here rather than continue a wrong one.
"""

from __future__ import annotations

import re

import msgspec

MAX_REQUEST_ID_CHARS = 128
"""Long enough for two UUIDs and a prefix, short enough for a log line."""

_TRACEPARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)
_INVALID_VERSION = b"ff"
_KNOWN_VERSION = b"00"
_NO_TRACE = b"0" * 32
_NO_SPAN = b"0" * 16
_KNOWN_FLAGS = 0b11
_PRINTABLE = re.compile(rb"[\x20-\x7e]+")


class TraceContext(msgspec.Struct, frozen=True, gc=False):
    """A caller's place in its trace: 32 and 16 lower-case hex digits, and the flags known to Level 2."""

    trace_id: str
    parent_id: str
    flags: int = 0

    def child(self, span_id: str) -> bytes:
        """Write the header for a call made within this trace by our span (16 lower-case hex digits)."""
        return f"00-{self.trace_id}-{span_id}-{self.flags & _KNOWN_FLAGS:02x}".encode("ascii")


def parse_traceparent(value: bytes | None) -> TraceContext | None:
    """Read a `traceparent`; None when absent or invalid. Later versions may append fields, which are ignored."""
    match = _TRACEPARENT.fullmatch(value) if value is not None else None
    if match is None:
        return None
    version, trace_id, parent_id, flags, rest = match.groups()
    if version == _INVALID_VERSION or trace_id == _NO_TRACE or parent_id == _NO_SPAN:
        return None
    if version == _KNOWN_VERSION and rest is not None:
        return None
    return TraceContext(trace_id.decode("ascii"), parent_id.decode("ascii"), int(flags, 16) & _KNOWN_FLAGS)


def clean_request_id(value: bytes | None) -> str | None:
    """Accept a caller's request id of printable ASCII, at most 128 characters; None when there is no such id."""
    stripped = value.strip(b" \t") if value is not None else b""
    if len(stripped) > MAX_REQUEST_ID_CHARS or _PRINTABLE.fullmatch(stripped) is None:
        return None
    return stripped.decode("ascii")
