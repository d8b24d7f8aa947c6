"""What a connection plays for one request: a head, pieces with waits between them, and an ending."""

from __future__ import annotations

import http
from enum import StrEnum

import msgspec


class Ending(StrEnum):
    """What happens after the last piece."""

    CLEAN = "clean"
    HANG = "hang"
    CLOSE = "close"
    RESET = "reset"
    BAD_FRAMING = "bad_framing"
    """A chunk size that is none, then the connection closes."""
    CLOSE_AFTER = "close_after"
    """A proper end, then the connection closes."""


class Piece(msgspec.Struct, frozen=True, gc=False):
    """Some bytes of a body, sent `delay_s` after the piece before it."""

    delay_s: float
    payload: bytes
    tokens: int = 0
    """Generated tokens in it; with an engine it waits until they are made."""


class Work(msgspec.Struct, frozen=True):
    """What an answer asks of the engine, and what the metrics count."""

    prompt_tokens: int
    output_tokens: int
    finish: str
    cached_tokens: int = 0


class Playback(msgspec.Struct, frozen=True, kw_only=True):
    """One answer: head, pieces, ending. `length` is the announced one when it differs from what is sent; `raw` replaces the head."""

    pieces: tuple[Piece, ...]
    status: int
    headers: tuple[tuple[str, str], ...] = ()
    headers_s: float = 0.0
    ending: Ending = Ending.CLEAN
    content_type: str = "application/json"
    chunked: bool = False
    length: int | None = None
    raw: bytes | None = None
    drip_s: float = 0.0
    """Above 0: the head goes out byte by byte, so far apart."""
    keep_alive: bool = True
    work: Work | None = None
    refuse_s: float = 0.0
    """Above 0: nobody can connect for so long."""

    def head(self) -> bytes:
        """Give the bytes before the body."""
        if self.raw is not None:
            return self.raw
        length = sum(len(piece.payload) for piece in self.pieces) if self.length is None else self.length
        framing = "transfer-encoding: chunked" if self.chunked else f"content-length: {length}"
        more = "".join(f"{name}: {value}\r\n" for name, value in self.headers)
        if not self.keep_alive:
            more += "connection: close\r\n"
        return f"HTTP/1.1 {self.status} {_reason(self.status)}\r\ncontent-type: {self.content_type}\r\n{framing}\r\n{more}\r\n".encode()


def _reason(status: int) -> str:
    try:
        return http.HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"
