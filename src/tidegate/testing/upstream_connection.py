"""The scripted upstream's side of one TCP connection: reads requests, plays answers, notes when the client goes away.

Answers are played in the order of the requests. A client that closes its sending side counts as gone. Writing stops while the
client does not read.
"""

from __future__ import annotations

import asyncio
import http
import socket
import struct
import time
from collections import deque
from typing import Any, Protocol, cast

import httptools
import msgspec

from tidegate.testing.answers import Ending

_MAX_PIPELINED = 64  # a client that sends more without reading an answer is at fault


class Piece(msgspec.Struct, frozen=True, gc=False):
    """Some bytes of a body, sent `delay_s` after the piece before it."""

    delay_s: float
    payload: bytes


class Playback(msgspec.Struct, frozen=True):
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

    def head(self) -> bytes:
        if self.raw is not None:
            return self.raw
        length = sum(len(piece.payload) for piece in self.pieces) if self.length is None else self.length
        framing = "transfer-encoding: chunked" if self.chunked else f"content-length: {length}"
        more = "".join(f"{name}: {value}\r\n" for name, value in self.headers)
        return f"HTTP/1.1 {self.status} {_reason(self.status)}\r\ncontent-type: {self.content_type}\r\n{framing}\r\n{more}\r\n".encode()


class ReceivedRequest:
    """A request and what became of it. Instants are `time.monotonic()` seconds."""

    __slots__ = (
        "answered_at",
        "body",
        "client_left_at",
        "connection",
        "headers",
        "method",
        "path",
        "pieces_sent",
        "query",
        "received_at",
        "reused",
    )

    def __init__(self, *, method: str, url: bytes, headers: tuple[tuple[str, str], ...], connection: int, reused: bool) -> None:
        path, _, query = url.decode("ascii", "replace").partition("?")
        self.method = method
        self.path = path
        self.query = query
        self.headers = headers
        self.body = b""
        self.connection = connection
        """Number of the connection it came on, from 1."""
        self.reused = reused
        """It was not the first request of its connection."""
        self.received_at = time.monotonic()
        self.pieces_sent = 0
        self.answered_at: float | None = None
        """When the answer had been sent to its end, faults included."""
        self.client_left_at: float | None = None
        """When the client closed the connection before the answer's end."""

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name), None)

    @property
    def json(self) -> dict[str, Any]:
        return msgspec.json.decode(self.body, type=dict[str, Any])

    @property
    def client_left_after_s(self) -> float | None:
        return None if self.client_left_at is None else self.client_left_at - self.received_at

    def __repr__(self) -> str:
        end = "answered" if self.answered_at is not None else "open"
        if self.client_left_at is not None:
            end = f"client left after {self.client_left_after_s:.3f} s"
        return f"<{self.method} {self.path} on connection {self.connection}, {self.pieces_sent} pieces, {end}>"


class Playbook(Protocol):
    """The server, as a connection sees it."""

    def opened(self, connection: Connection) -> int: ...

    def closed(self, connection: Connection) -> None: ...

    def answer(self, request: ReceivedRequest) -> Playback: ...

    def changed(self) -> None: ...


class Connection(asyncio.Protocol):
    def __init__(self, book: Playbook) -> None:
        self._book = book
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._number = 0
        self._served = 0
        self._url = b""
        self._headers: list[tuple[str, str]] = []
        self._body: list[bytes] = []
        self._waiting: deque[ReceivedRequest] = deque()
        self._playing: tuple[ReceivedRequest, Playback] | None = None
        self._next_piece = -1
        self._due: asyncio.TimerHandle | None = None
        self._paused = False
        self._keep_alive = True

    @property
    def idle(self) -> bool:
        return self._playing is None

    def close(self, *, reset: bool = False) -> None:
        """Close after what was written; with `reset`, at once and with a TCP reset."""
        transport = self._transport
        if transport is None:
            return
        if reset:
            peer: socket.socket = transport.get_extra_info("socket")
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            transport.abort()
        else:
            transport.close()

    # ── asyncio ──

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none of asyncio's classes
        self._number = self._book.opened(self)

    def data_received(self, received: bytes) -> None:
        try:
            self._parser.feed_data(received)
        except httptools.HttpParserError:
            if self._transport is not None:
                self._transport.write(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
            self.close()

    def eof_received(self) -> None:
        self._client_left()

    def connection_lost(self, _problem: Exception | None) -> None:
        self._client_left()
        self._transport = None
        self._book.closed(self)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        if self._playing is not None and self._due is None:
            self._play()

    # ── httptools ──

    def on_message_begin(self) -> None:
        self._url, self._headers, self._body = b"", [], []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.decode("latin-1").lower(), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        if ("expect", "100-continue") in self._headers and self._transport is not None:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, piece: bytes) -> None:
        self._body.append(piece)

    def on_message_complete(self) -> None:
        self._keep_alive = self._parser.should_keep_alive()
        request = ReceivedRequest(
            method=self._parser.get_method().decode(),
            url=self._url,
            headers=tuple(self._headers),
            connection=self._number,
            reused=self._served > 0,
        )
        request.body = b"".join(self._body)
        self._served += 1
        if self._playing is None:
            self._begin(request)
        elif len(self._waiting) < _MAX_PIPELINED:
            self._waiting.append(request)
        else:
            self.close(reset=True)

    # ── playing ──

    def _begin(self, request: ReceivedRequest) -> None:
        playback = self._book.answer(request)
        self._playing = (request, playback)
        self._next_piece = -1
        self._play_after(playback.headers_s)

    def _play_after(self, delay_s: float) -> None:
        if delay_s > 0:
            self._due = self._loop.call_later(delay_s, self._play)
        else:
            self._play()

    def _play(self) -> None:
        """Write from the next piece (-1: the head) until a wait, a full buffer or the end."""
        self._due = None
        while self._playing is not None and (transport := self._transport) is not None:
            request, playback = self._playing
            pieces = playback.pieces
            if self._paused or transport.is_closing():
                return
            if self._next_piece < 0:
                ahead = playback.head()
                whole = not playback.chunked and len(pieces) == 1
                if whole:  # head and body in one write
                    ahead += pieces[0].payload
                    request.pieces_sent += 1
                transport.write(ahead)
                self._next_piece = 1 if whole else 0
            else:
                payload = pieces[self._next_piece].payload if self._next_piece < len(pieces) else b""
                if payload:
                    transport.write(b"%x\r\n%b\r\n" % (len(payload), payload) if playback.chunked else payload)
                    request.pieces_sent += 1
                self._next_piece += 1
            if self._next_piece >= len(pieces):
                self._end(request, playback, transport)
                return
            if (delay_s := pieces[self._next_piece].delay_s) > 0:
                self._due = self._loop.call_later(delay_s, self._play)
                return

    def _end(self, request: ReceivedRequest, playback: Playback, transport: asyncio.Transport) -> None:
        if playback.ending is Ending.HANG:
            return  # `_playing` stays set, so that the client's leaving is noticed
        request.answered_at = time.monotonic()
        self._playing = None
        match playback.ending:
            case Ending.CLEAN:
                if playback.chunked:
                    transport.write(b"0\r\n\r\n")
                if not self._keep_alive:
                    transport.close()
            case Ending.CLOSE:
                transport.close()
            case Ending.RESET:
                self.close(reset=True)
        self._book.changed()
        if self._waiting and not transport.is_closing():
            self._begin(self._waiting.popleft())

    def _client_left(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if self._playing is not None:
            request, _ = self._playing
            self._playing = None
            request.client_left_at = time.monotonic()
            self._waiting.clear()
            self._book.changed()


def _reason(status: int) -> str:
    try:
        return http.HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"
