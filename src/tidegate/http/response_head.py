"""Encodes the head of a response.

The application's fields are written as they are, after a check that none could end the head early or claim what the
server itself decides (`content-length`, `connection`, `date`, …). A violation is a fault of the application: an assertion, not a refusal.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from tidegate.domain.units import Headers

CLOSE: Final = b"connection: close\r\n"
KEEP_ALIVE: Final = b"connection: keep-alive\r\n"

_STATUS_LINES: Final = {int(status): f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
_OWNED: Final = frozenset((b"content-length", b"transfer-encoding", b"connection", b"keep-alive", b"date", b"trailer", b"upgrade"))
_JOIN_FIELD: Final = b": ".join
_LOWEST_FINAL: Final = 200
_HIGHEST: Final = 599
_WITHOUT_BODY: Final = frozenset((204, 304))


def status_line(status: int) -> bytes:
    """Give the status line; codes that HTTP does not name get an empty phrase."""
    line = _STATUS_LINES.get(status)
    if line is None or status < _LOWEST_FINAL:
        if not _LOWEST_FINAL <= status <= _HIGHEST:
            raise AssertionError(f"{status} is not a final HTTP status")
        return b"HTTP/1.1 %d \r\n" % status
    return line


def field_lines(headers: Headers) -> bytes:
    """Encode the application's header fields."""
    block = b"\r\n".join([*map(_JOIN_FIELD, headers), b""])
    count = len(headers)
    if block.count(b"\n") != count or block.count(b"\r") != count or b"\0" in block:
        raise AssertionError("a response header field has a CR, LF or NUL in it")
    for name, _ in headers:
        if name in _OWNED:
            raise AssertionError(f"the application set a header field that the server decides: one of {sorted(_OWNED)}")
    return block


def has_body(status: int) -> bool:
    """Say whether responses of this status have a body at all (RFC 9110, sections 15.3.5 and 15.4.5)."""
    return status not in _WITHOUT_BODY
