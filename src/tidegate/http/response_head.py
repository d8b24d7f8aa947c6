"""The lines of a response's head that the server itself writes; the application's fields are encoded by `domain.header_lines`."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

CLOSE: Final = b"connection: close\r\n"
KEEP_ALIVE: Final = b"connection: keep-alive\r\n"

_STATUS_LINES: Final = {int(status): f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
OWNED: Final = frozenset((b"content-length", b"transfer-encoding", b"connection", b"keep-alive", b"date", b"trailer", b"upgrade"))
"""What the server itself says."""
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


def has_body(status: int) -> bool:
    """Say whether responses of this status have a body at all (RFC 9110, sections 15.3.5 and 15.4.5)."""
    return status not in _WITHOUT_BODY
