"""Read and write the identity of a request: W3C Trace Context's `traceparent` (Level 2) and `X-Request-ID`.

An attempt's span is the request's with its number added to the last two digits: whoever has the one knows the others.

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
_SAMPLED = 0b01
_KNOWN_FLAGS = 0b11
_PRINTABLE = re.compile(rb"[\x20-\x7e]+")
_LAST_AT = 50  # of the last two digits of a span's id in a `traceparent`
_SPAN_END = 52
_HEX = tuple(b"%02x" % number for number in range(256))
_NUMBER = {digits: number for number, digits in enumerate(_HEX)}
_RANDOM_AT = 18  # to 32: the last 56 bits of a trace's id are random (Level 2), and decide
_RANDOM_END = 32
_RANDOM_BITS = 56

NO_SHARE = "g"
"""A threshold above all ids."""


class TraceContext(msgspec.Struct, frozen=True, gc=False):
    """A caller's place in its trace: 32 and 16 lower-case hex digits, and the flags known to Level 2."""

    trace_id: str
    parent_id: str
    flags: int = 0

    @property
    def sampled(self) -> bool:
        return self.flags & _SAMPLED != 0

    def child(self, span_id: str) -> bytes:
        """Write the header for a call made within this trace by our span (16 lower-case hex digits)."""
        return f"00-{self.trace_id}-{span_id}-0{self.flags & _KNOWN_FLAGS}".encode("ascii")


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


def attempt_span_id(span_id: str, attempt: int) -> str:
    """Give the id of the span of an attempt (from 1) of the request that has this span. Two of one trace are equal after 255 only."""
    return span_id[:-2] + _HEX[int(span_id[-2:], 16) + attempt & 0xFF].decode("ascii")


def for_attempt(traceparent: bytes, attempt: int) -> bytes:
    """Write the header that an attempt of ours sends: the request's own, with the attempt's span for its."""
    number = _NUMBER[traceparent[_LAST_AT:_SPAN_END]]
    return traceparent[:_LAST_AT] + _HEX[number + attempt & 0xFF] + traceparent[_SPAN_END:]


def share_threshold(keep_ratio: float) -> str:
    """Give the threshold that so many traces of all (0 to 1) come up to, as OpenTelemetry's consistent probability sampling has it."""
    rejected = round((1.0 - keep_ratio) * (1 << _RANDOM_BITS))
    return f"{rejected:014x}" if rejected < 1 << _RANDOM_BITS else NO_SHARE


def is_in_share(trace_id: str, threshold: str) -> bool:
    """Tell whether a trace is in the share that is kept; the same for all who see it, and larger shares hold smaller ones."""
    return trace_id[_RANDOM_AT:_RANDOM_END] >= threshold


def clean_request_id(value: bytes | None) -> str | None:
    """Accept a caller's request id of printable ASCII, at most 128 characters; None when there is no such id."""
    if value is None:
        return None
    stripped = value.strip(b" \t")
    if len(stripped) > MAX_REQUEST_ID_CHARS or _PRINTABLE.fullmatch(stripped) is None:
        return None
    return stripped.decode("ascii")
