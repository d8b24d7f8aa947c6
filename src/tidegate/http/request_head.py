"""Reads one complete request head, or says why it is not one unambiguous HTTP/1.1 request.

llhttp (through httptools) splits and checks the head; this module refuses the rest of what two HTTP implementations could
read differently (RFC 9112, section 11.2: request smuggling): other versions and protocols that llhttp knows, targets other
than a path, missing or repeated `host`, and any `transfer-encoding` but `chunked`. `read` is a function of the bytes alone:
how they arrived cannot matter, and neither can what was read before.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote_to_bytes

import httptools
import msgspec

from tidegate.errors import HeadersTooLarge, InvalidHttp, MethodNotAllowed, TidegateError
from tidegate.ports import RequestHead

MAX_HEADER_FIELDS: Final = 256
"""Browsers and SDKs send some 30; each costs a callback, so bytes alone are no bound on the work."""

CHUNKED: Final = -1
"""`ParsedHead.body_length` of a body in chunks."""

MAX_LENGTH_DIGITS: Final = 18
_REQUEST_LINE: Final = re.compile(rb"([A-Z-]{1,20}) (/[!\"$-~]*|\*) HTTP/1\.([01])\r\n")
_METHOD_START: Final = re.compile(rb"[A-Z-]{1,20}(?: |\Z)")
_BARE_LF: Final = re.compile(rb"(?<!\r)\n")
_HOST: Final = re.compile(rb"[A-Za-z0-9.\-_~!$&'()*+;=%:\[\]]*")
_BAD_PERCENT: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_CONTROL: Final = re.compile("[\x00-\x1f\x7f]")
_SHORT_LINE_BYTES: Final = 256
_REMEMBERED_LINES: Final = 256
"""Together some 100 KB, whatever clients send."""
_PLAIN_CODINGS: Final = (b"identity", b"")


class ParsedHead(msgspec.Struct, frozen=True):
    """A request's head, and what it says about the rest."""

    head: RequestHead
    body_length: int
    """Bytes of the body, or `CHUNKED`."""
    keep_alive: bool
    http_1_0: bool
    expectation: bytes | None
    """The value of `expect` in lower case."""
    coded: bool
    """The body is compressed, or says so: `content-encoding` is there and is not `identity`."""


class _Line(msgspec.Struct, frozen=True, gc=False):
    method: str
    path: str
    query: str
    http_1_0: bool


class HeadReader:
    """The callbacks llhttp needs. One serves a whole server: between two calls of `read` it holds nothing of a request but what many
    have in common, their first lines."""

    __slots__ = ("_complete", "_fields", "_lines")

    def __init__(self) -> None:
        self._lines: dict[bytes, _Line] = {}
        self._fields: list[tuple[bytes, bytes]] = []
        self._complete = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._complete = True

    def read(self, raw: bytes, peer: str) -> ParsedHead:
        """Read a head: all bytes from the request line to the empty line. Raises `InvalidHttp` and its siblings."""
        line = self._line(raw)
        fields = self._split(raw)
        if len(fields) > MAX_HEADER_FIELDS:
            raise HeadersTooLarge(
                f"The request has {len(fields)} header fields; this gateway takes at most {MAX_HEADER_FIELDS}. Send fewer."
            )
        if b" \r\n" in raw or b"\t" in raw:
            fields = [(name, value.rstrip(b" \t")) for name, value in fields]
        by_name = dict(fields)
        http_1_0 = line.http_1_0
        if len(by_name) != len(fields):
            _check_repeated(fields)
        _check_host(by_name.get(b"host"), http_1_0=http_1_0)
        connection = by_name.get(b"connection")
        expectation = by_name.get(b"expect")
        return ParsedHead(
            RequestHead(line.method, line.path, line.query, tuple(fields), peer),
            _body_length(by_name, http_1_0=http_1_0),
            not http_1_0 if connection is None else _keeps_alive(connection, http_1_0=http_1_0),
            http_1_0,
            None if expectation is None else expectation.lower(),
            by_name.get(b"content-encoding", b"identity").lower() not in _PLAIN_CODINGS,
        )

    def _line(self, raw: bytes) -> _Line:
        """Read the request line."""
        first = raw[: raw.find(b"\n") + 1]
        known = self._lines.get(first)
        if known is not None:
            return known
        match = _REQUEST_LINE.match(raw)
        if match is None:
            raise _bad_request_line(raw)
        method, target, minor = match.groups()
        path, _, query = target.decode("ascii").partition("?")
        if "%" in path:
            path = _decode_path(path)
        line = _Line(method.decode("ascii"), path, query, minor == b"0")
        if len(first) <= _SHORT_LINE_BYTES:
            if len(self._lines) >= _REMEMBERED_LINES:
                self._lines.clear()
            self._lines[first] = line
        return line

    def _split(self, raw: bytes) -> list[tuple[bytes, bytes]]:
        fields: list[tuple[bytes, bytes]] = []
        self._fields = fields
        self._complete = False
        try:
            httptools.HttpRequestParser(self).feed_data(raw)
        except httptools.HttpParserUpgrade:
            # An offer to change the protocol, which a server may ignore (RFC 9110, section 7.8); Java's client makes it by default.
            pass
        except httptools.HttpParserError as error:
            # llhttp's reasons are fixed sentences: nothing of the request is in them.
            raise InvalidHttp(
                f"The request head is not valid HTTP/1.1: {error}. Check the client or the proxy in front of this gateway."
            ) from None
        finally:
            self._fields = []
        if not self._complete:
            raise InvalidHttp(
                "The request head is not valid HTTP/1.1: it ends where its fields do not. Check the client or the proxy in front of it."
            )
        return fields


def check_beginning(partial: bytes, *, searched_to: int) -> None:
    """Refuse what can no longer become a request head, so that a client of another protocol is told at once.

    `searched_to`: how much of it has been checked before.
    """
    if _METHOD_START.match(partial) is None:
        raise _bad_request_line(partial[:16])
    if _BARE_LF.search(partial, searched_to):
        raise InvalidHttp("A line of the request head ends in a bare LF. End lines with CR LF.")


def _bad_request_line(raw: bytes) -> TidegateError:
    if raw.startswith(b"\x16\x03"):
        return InvalidHttp("This port speaks plain HTTP, and the client began TLS. Use http:// in the base URL, or configure server.tls.")
    if raw.startswith(b"PRI * HTTP/2.0"):
        return InvalidHttp("This port speaks HTTP/1.1, and the client began HTTP/2. Turn HTTP/2 prior knowledge off in the client.")
    if raw.startswith(b"CONNECT "):
        return MethodNotAllowed("CONNECT is not supported: this gateway is not a proxy. Use its address as base URL, not as HTTP proxy.")
    first_line = raw.partition(b"\r\n")[0]
    if b" http://" in first_line or b" https://" in first_line:
        return InvalidHttp(
            "The request target is a whole URL. This gateway is not a proxy: use its address as base URL, not as HTTP proxy."
        )
    return InvalidHttp("The request line is not `METHOD /path HTTP/1.1` followed by CR LF. Check the client's address and protocol.")


def _check_repeated(fields: list[tuple[bytes, bytes]]) -> None:
    names = [name for name, _ in fields]
    for name in (b"host", b"content-length", b"transfer-encoding", b"expect"):
        if names.count(name) > 1:
            raise InvalidHttp(f"The header field {name.decode()} is repeated. Send it once.")


def _check_host(host: bytes | None, *, http_1_0: bool) -> None:
    if host is None:
        if not http_1_0:
            raise InvalidHttp("The header field host is missing, which HTTP/1.1 requires. Send it once.")
    elif _HOST.fullmatch(host) is None:
        raise InvalidHttp("The header field host is not a host name with an optional port. Check the base URL.")


def _body_length(by_name: dict[bytes, bytes], *, http_1_0: bool) -> int:
    encoding = by_name.get(b"transfer-encoding")
    length = by_name.get(b"content-length")
    if encoding is None:
        if length is None:
            return 0
        if not length.isdigit() or len(length) > MAX_LENGTH_DIGITS:
            raise InvalidHttp("The header field content-length is not a decimal number. Send the body's length in bytes, digits only.")
        return int(length)
    if length is not None:
        raise InvalidHttp("The request has both content-length and transfer-encoding, so its end is ambiguous. Send one of them.")
    if encoding.lower() != b"chunked" or http_1_0:
        raise InvalidHttp("The only transfer-encoding understood is `chunked`, in HTTP/1.1. Send the body so, or with a content-length.")
    return CHUNKED


def _keeps_alive(connection: bytes, *, http_1_0: bool) -> bool:
    if connection == b"keep-alive":
        return True
    options = [option.strip() for option in connection.lower().split(b",")]
    return b"close" not in options and (not http_1_0 or b"keep-alive" in options)


def _decode_path(path: str) -> str:
    raw = path.encode("ascii")
    if _BAD_PERCENT.search(raw):
        raise InvalidHttp("The path has a `%` that two hexadecimal digits do not follow. Percent-encode it as %25.")
    try:
        decoded = unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        raise InvalidHttp("The path is not UTF-8 after percent-decoding. Percent-encode its UTF-8 bytes.") from None
    if _CONTROL.search(decoded):
        raise InvalidHttp("The path has a control character. Check how the client builds its URL.")
    return decoded
