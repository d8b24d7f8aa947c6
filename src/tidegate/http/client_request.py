"""Requests as bytes: everything that does not change between two requests of a pool is put together once.

Invariant: what is built is exactly one request. A header or path that could end its line, or a field that decides where the request ends,
raises `AssertionError` (always, not only without `-O`): its source would be a fault of ours, and sent, it could smuggle a second request.
"""

from __future__ import annotations

import re

from tidegate.domain.header_lines import field_lines
from tidegate.http.origin import Origin
from tidegate.http.proxy import ProxyServer
from tidegate.ports import UpstreamRequest

SMALL_BODY_BYTES = 65_536
"""Bodies up to this size are copied behind their head, so that one write carries both; larger ones are not copied."""

REMEMBERED_LINES = 64
"""Request lines kept ready. A gateway asks for half a dozen paths; what comes beyond these is built each time."""

_METHOD = re.compile(r"[A-Z]{1,16}")
_PATH = re.compile(r"/[\x21\x22\x24-\x7e]*")
OWNED = frozenset({b"host", b"content-length", b"transfer-encoding", b"connection"})
"""Header fields that only the pool writes. Who hands over finished lines has them checked against this too."""


class RequestEncoder:
    """Encodes the requests of one pool. `proxy` is given where the request itself goes to a proxy, in absolute form."""

    __slots__ = ("_fields", "_lines", "_target")

    def __init__(self, origin: Origin, proxy: ProxyServer | None) -> None:
        self._lines: dict[tuple[str, str], bytes] = {}
        self._target = origin.prefix if proxy is None else f"http://{origin.host_field}{origin.prefix}"
        self._fields = f" HTTP/1.1\r\nhost: {origin.host_field}\r\n".encode("ascii")
        if proxy is not None and proxy.authorization:
            self._fields += f"proxy-authorization: {proxy.authorization.reveal()}\r\n".encode("ascii")

    def encode(self, request: UpstreamRequest) -> tuple[bytes, bytes]:
        """Give two pieces to send one after the other; the second is empty unless the body is large."""
        method, headers, body = request.method, request.headers, request.body
        line = self._lines.get((method, request.path)) or self._line(method, request.path)
        fields = field_lines(headers, OWNED) + request.lines
        if not body and method in {"GET", "HEAD"}:
            return b"%b%b\r\n" % (line, fields), b""
        if len(body) > SMALL_BODY_BYTES:
            return b"%b%bcontent-length: %d\r\n\r\n" % (line, fields, len(body)), body
        return b"".join((line, fields, b"content-length: ", str(len(body)).encode("ascii"), b"\r\n\r\n", body)), b""

    def _line(self, method: str, path: str) -> bytes:
        if not _METHOD.fullmatch(method) or not _PATH.fullmatch(path):
            raise AssertionError(f"not a request line: {method!r} {path!r}; a path begins with / and is percent-encoded ASCII without #")
        line = f"{method} {self._target}{path}".encode("ascii") + self._fields
        if len(self._lines) < REMEMBERED_LINES:
            self._lines[method, path] = line
        return line
