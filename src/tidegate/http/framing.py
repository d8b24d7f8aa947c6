"""Finds where a request's body ends: by `content-length`, or by strict decoding of `chunked` (RFC 9112, section 7.1).

Both readers take pieces as they come off the socket, split anywhere, and give the same body. They never take a byte that
follows the body: `feed` says where it stopped. A chunked body is refused rather than repaired: sizes are plain hexadecimal,
every line ends in CR LF, nothing stands between a chunk and its CR LF. (llhttp decodes chunks as strictly, but through
httptools cannot say at which byte a body ended, which pipelining must know.)

`Chunks` writes a chunk, and reads one that is written as nearly all are; the size lines of both come from one table.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final

from tidegate.domain.units import Headers
from tidegate.errors import InvalidHttp
from tidegate.http.request_refusals import body_too_large

MAX_SIZE_LINE_BYTES: Final = 256
"""A chunk's size and extensions. Nobody sends extensions; this leaves room for a signature in one."""

MAX_EXTENSION_BYTES: Final = 4096
"""All extensions of one body together, so that they cannot be a way to send without being counted."""

MAX_TRAILER_BYTES: Final = 8192
"""The whole trailer section, which is checked and dropped."""

FREE_CHUNKS: Final = 16_384
MIN_MEAN_CHUNK_BYTES: Final = 128
"""Beyond `FREE_CHUNKS` (some 25 ms of decoding), chunks must hold this much on average; else decoding costs more than sending."""

_SIZE_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,16})(;[\t\x20-\x7e]*)?\r\n")
_ORDINARY_BYTES: Final = 1024
_SIZE_LINES: Final = [b"%x\r\n" % size for size in range(_ORDINARY_BYTES)]
_SIZE_LINES_BY_LENGTH: Final = [b""] * (_ORDINARY_BYTES + 8)
"""By the length of the whole chunk; empty where there is none."""
for _size, _line in enumerate(_SIZE_LINES[1:], 1):
    _SIZE_LINES_BY_LENGTH[len(_line) + _size + 2] = _line

_TRAILER: Final = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[\t\x20-\x7e\x80-\xff]*\r\n")
_FRAMING_FIELDS: Final = frozenset((b"content-length", b"transfer-encoding", b"host", b"connection", b"trailer"))


def ends_with_connection(headers: Headers) -> bool:
    """Say whether a body goes on until the connection closes (RFC 9112, 6.3)."""
    last_coding = b""
    for name, value in headers:
        if name == b"content-length":
            return False
        if name == b"transfer-encoding":
            last_coding = value.rpartition(b",")[2].strip().lower()
    return last_coding != b"chunked"


def head_bytes(headers: list[tuple[bytes, bytes]]) -> int:
    """Give the length of a head on the wire, but for padding and the reason phrase."""
    return sum(len(name) + len(value) + 4 for name, value in headers) + len(b"HTTP/1.1 200 \r\n\r\n")


class Chunks:
    """Puts content into chunks and takes it out of them. Belongs to one loop.

    It keeps the last chunk that was read, and what is in it: a relay mostly writes what it has just read.
    """

    __slots__ = ("_chunk", "_content")

    def __init__(self) -> None:
        self._chunk = self._content = b""

    def framed(self, content: bytes) -> bytes:
        """Make a chunk of this content, which is not empty."""
        if content is self._content:
            return self._chunk
        size = len(content)
        line = _SIZE_LINES[size] if size < _ORDINARY_BYTES else b"%x\r\n" % size
        return b"%b%b\r\n" % (line, content)

    def content_of(self, piece: bytes) -> bytes:
        """Give what is in a piece that is one whole chunk, written and sized as nearly all are; of any other nothing."""
        length = len(piece)
        line = _SIZE_LINES_BY_LENGTH[length] if length < _ORDINARY_BYTES else b""
        if not line or not piece.endswith(b"\r\n") or not (piece.startswith(line) or piece.startswith(line.upper())):  # noqa: PIE810
            return b""
        self._chunk = piece
        self._content = content = piece[len(line) : -2]
        return content


class LengthReader:
    """Collects a body of a known length."""

    __slots__ = ("_body", "_length")

    def __init__(self, length: int) -> None:
        self._length = length
        self._body = bytearray()

    @property
    def complete(self) -> bool:
        return len(self._body) == self._length

    @property
    def received(self) -> int:
        """Body bytes held."""
        return len(self._body)

    def feed(self, piece: bytes, at: int) -> int:
        """Take what belongs to the body from `piece[at:]`; give the index after it."""
        end = min(len(piece), at + self._length - len(self._body))
        self._body += piece[at:end] if at or end < len(piece) else piece
        return end

    def take(self) -> bytes:
        return bytes(self._body)


class _Expecting(Enum):
    SIZE = auto()
    CONTENT = auto()
    CONTENT_END = auto()
    TRAILER = auto()
    NOTHING = auto()


class ChunkedReader:
    """Decodes a chunked body of at most `limit` bytes; raises `InvalidHttp` or `BodyTooLarge`."""

    __slots__ = ("_body", "_chunks", "_expecting", "_extension_bytes", "_left", "_limit", "_line", "_trailer_bytes")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._body = bytearray()
        self._expecting = _Expecting.SIZE
        self._left = 0
        self._line = b""  # the beginning of a line; bounded by `_check_line`
        self._chunks = 0
        self._extension_bytes = 0
        self._trailer_bytes = 0

    @property
    def complete(self) -> bool:
        return self._expecting is _Expecting.NOTHING

    @property
    def received(self) -> int:
        """Body bytes held."""
        return len(self._body)

    def feed(self, piece: bytes, at: int) -> int:
        """Take what belongs to the body from `piece[at:]`; give the index after it."""
        end = len(piece)
        while at < end and self._expecting is not _Expecting.NOTHING:
            if self._expecting is _Expecting.CONTENT:
                content_end = min(end, at + self._left)
                self._body += piece[at:content_end]
                self._left -= content_end - at
                at = content_end
                if not self._left:
                    self._expecting = _Expecting.CONTENT_END
                continue
            newline = piece.find(b"\n", at)
            if newline < 0:
                self._line += piece[at:]
                self._check_line(self._line)
                return end
            line = self._line + piece[at : newline + 1]
            self._line = b""
            at = newline + 1
            self._check_line(line)
            self._end_line(line)
        return at

    def take(self) -> bytes:
        return bytes(self._body)

    def _check_line(self, line: bytes) -> None:
        limit = MAX_TRAILER_BYTES if self._expecting is _Expecting.TRAILER else MAX_SIZE_LINE_BYTES
        if len(line) > limit:
            raise InvalidHttp(
                f"A line between the chunks of the request body is longer than {limit} bytes. "
                "Check the client's chunked encoding; chunk extensions and trailers are not used here."
            )

    def _end_line(self, line: bytes) -> None:
        if self._expecting is _Expecting.SIZE:
            self._begin_chunk(line)
        elif self._expecting is _Expecting.CONTENT_END:
            if line != b"\r\n":
                raise InvalidHttp("A chunk of the request body is longer than its declared size. Check the client's chunked encoding.")
            self._expecting = _Expecting.SIZE
        elif line == b"\r\n":
            self._expecting = _Expecting.NOTHING
        else:
            self._skip_trailer(line)

    def _begin_chunk(self, line: bytes) -> None:
        match = _SIZE_LINE.fullmatch(line)
        if match is None:
            raise InvalidHttp(
                "A chunk size of the request body is not a plain hexadecimal number followed by CR LF. Check the client's chunked encoding."
            )
        digits, extension = match.groups()
        self._extension_bytes += len(extension or b"")
        self._chunks += 1
        size = int(digits, 16)
        if len(self._body) + size > self._limit:
            raise body_too_large(self._limit)
        if self._extension_bytes > MAX_EXTENSION_BYTES:
            raise InvalidHttp(f"The chunk extensions of the request body are longer than {MAX_EXTENSION_BYTES} bytes. Send none.")
        if self._chunks > FREE_CHUNKS + len(self._body) // MIN_MEAN_CHUNK_BYTES:
            raise InvalidHttp("The request body comes in too many tiny chunks. Buffer it in the client, or send it with a content-length.")
        self._left = size
        self._expecting = _Expecting.CONTENT if size else _Expecting.TRAILER

    def _skip_trailer(self, line: bytes) -> None:
        self._trailer_bytes += len(line)
        match = _TRAILER.fullmatch(line)
        if match is None or self._trailer_bytes > MAX_TRAILER_BYTES or match[1].lower() in _FRAMING_FIELDS:
            raise InvalidHttp("The trailer of the request body is malformed or too long. Send the request without a trailer.")
