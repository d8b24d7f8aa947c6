"""The scripted upstream's side of one TCP connection: reads requests, plays answers, notes when the client goes away.

Answers are played in the order of the requests. A client that closes its sending side counts as gone. Writing stops while the
client does not read. Zero delays cost no timer.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections import deque
from typing import Protocol, cast

import httptools

from tidegate.mock.engine_driver import Ticket
from tidegate.mock.playback import Ending, Playback, Work
from tidegate.mock.received import ReceivedRequest

_MAX_PIPELINED = 64  # a client that sends more without reading an answer is at fault
_MAX_BODY_BYTES = 64 * 1024 * 1024  # the gateway's own limit is half of it


class Playbook(Protocol):
    """The server, as a connection sees it."""

    def opened(self, connection: Connection) -> int: ...

    def closed(self, connection: Connection) -> None: ...

    def answer(self, request: ReceivedRequest) -> Playback: ...

    def begin_work(self, work: Work, connection: Connection) -> Ticket | None: ...

    def ended(self, request: ReceivedRequest, work: Work | None) -> None: ...

    def changed(self) -> None: ...


class Connection(asyncio.Protocol):
    def __init__(self, book: Playbook) -> None:
        self._book = book
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._number = 0
        self._local = False
        self._served = 0
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._waiting: deque[ReceivedRequest] = deque()
        self._playing: tuple[ReceivedRequest, Playback] | None = None
        self._next_piece = -1
        self._dripping = b""
        self._due: asyncio.TimerHandle | None = None
        self._ticket: Ticket | None = None
        self._credit = 0
        """Tokens that the engine has made and that have not been sent."""
        self._starved = False
        """The next piece waits for the engine."""
        self._paused = False
        self._keep_alive = True

    @property
    def number(self) -> int:
        """In order of opening, from 1."""
        return self._number

    @property
    def idle(self) -> bool:
        return self._playing is None

    def close(self, *, reset: bool = False) -> None:
        """Close after what was written; with `reset`, at once and with a TCP reset, which ends what is being answered."""
        transport = self._transport
        if transport is None:
            return
        if reset:
            self._stop_playing(left=False)
            peer: socket.socket = transport.get_extra_info("socket")
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            transport.abort()
        else:
            transport.close()

    def grant(self, tokens: int) -> None:
        """Take tokens that the engine has made; 0 says that a prompt without output has been read."""
        self._credit += max(tokens, 1)
        if self._starved:
            self._starved = False
            self._play()

    # ── asyncio ──

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none of asyncio's classes
        peer = transport.get_extra_info("peername")
        self._local = bool(peer) and str(peer[0]).removeprefix("::ffff:").startswith(("127.", "::1"))
        self._number = self._book.opened(self)

    def data_received(self, received: bytes) -> None:
        try:
            self._parser.feed_data(received)
        except httptools.HttpParserUpgrade:
            return  # the request itself is answered as if it had not offered another protocol
        except httptools.HttpParserCallbackError:
            raise  # a fault of ours in answering is not the client's bad request
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
        if self._playing is not None and self._due is None and not self._starved:
            self._play()

    # ── httptools ──

    def on_message_begin(self) -> None:
        self._url, self._headers, self._body, self._body_bytes = b"", [], [], 0

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if (b"expect", b"100-continue") in self._headers and self._transport is not None:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, piece: bytes) -> None:
        self._body_bytes += len(piece)
        if self._body_bytes > _MAX_BODY_BYTES:
            self.close(reset=True)
            return
        self._body.append(piece)

    def on_message_complete(self) -> None:
        self._keep_alive = self._parser.should_keep_alive()
        request = ReceivedRequest(
            method=self._parser.get_method().decode(),
            url=self._url,
            headers=self._headers,
            body=b"".join(self._body),
            connection=self._number,
            reused=self._served > 0,
            local=self._local,
        )
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
        self._credit = 0
        if playback.work is not None:
            self._ticket = self._book.begin_work(playback.work, self)
        if playback.headers_s > 0:
            self._due = self._loop.call_later(playback.headers_s, self._play)
        else:
            self._play()

    def _play(self) -> None:
        """Write from the next piece (-1: the head) until a wait, a full buffer or the end."""
        self._due = None
        while self._playing is not None and (transport := self._transport) is not None:
            request, playback = self._playing
            if self._paused or transport.is_closing():
                return
            if self._next_piece < 0:
                if not self._write_head(request, playback, transport):
                    return
            elif not self._write_piece(request, playback, transport):
                return
            pieces = playback.pieces
            if self._next_piece >= len(pieces):
                self._end(request, playback, transport)
                return
            if (delay_s := pieces[self._next_piece].delay_s) > 0:
                self._due = self._loop.call_later(delay_s, self._play)
                return

    def _write_head(self, request: ReceivedRequest, playback: Playback, transport: asyncio.Transport) -> bool:
        """Write the head; of an answer that is one piece, both in one write."""
        if playback.drip_s > 0 and not playback.raw:
            return self._drip(playback, transport)
        pieces = playback.pieces
        together = not playback.chunked and len(pieces) == 1
        if together and not self._paid(max(pieces[0].tokens, 1)):
            return False
        ahead = playback.head()
        if together:
            ahead += pieces[0].payload
            request.sent(pieces[0].tokens)
        transport.write(ahead)
        self._next_piece = 1 if together else 0
        return True

    def _write_piece(self, request: ReceivedRequest, playback: Playback, transport: asyncio.Transport) -> bool:
        if self._next_piece < len(playback.pieces):
            piece = playback.pieces[self._next_piece]
            if piece.tokens and not self._paid(piece.tokens):
                return False
            payload = piece.payload
            if payload:
                transport.write(b"%x\r\n%b\r\n" % (len(payload), payload) if playback.chunked else payload)
                request.sent(piece.tokens)
            self._next_piece += 1
        return True

    def _paid(self, tokens: int) -> bool:
        """Take the tokens of a piece from what the engine has made; without an engine there is nothing to wait for."""
        if self._ticket is None:
            return True
        if self._credit < tokens:
            self._starved = True
            return False
        self._credit -= tokens
        return True

    def _drip(self, playback: Playback, transport: asyncio.Transport) -> bool:
        """Write the next byte of the head; True when it was the last."""
        if not self._dripping:
            self._dripping = playback.head()
        transport.write(self._dripping[:1])
        self._dripping = self._dripping[1:]
        if self._dripping:
            self._due = self._loop.call_later(playback.drip_s, self._play)
            return False
        self._next_piece = 0
        return True

    def _end(self, request: ReceivedRequest, playback: Playback, transport: asyncio.Transport) -> None:
        if playback.ending is Ending.HANG:
            return  # `_playing` stays set, so that the client's leaving is noticed
        request.answered_at = time.monotonic()
        self._playing = None
        self._drop_ticket()
        match playback.ending:
            case Ending.CLEAN | Ending.CLOSE_AFTER:
                if playback.chunked:
                    transport.write(b"0\r\n\r\n")
                if not self._keep_alive or not playback.keep_alive or playback.ending is Ending.CLOSE_AFTER:
                    transport.close()
            case Ending.BAD_FRAMING:
                transport.write(b"zz\r\n")
                transport.close()
            case Ending.CLOSE:
                transport.close()
            case Ending.RESET:
                self.close(reset=True)
        self._book.ended(request, playback.work)
        if self._waiting and not transport.is_closing():
            self._begin(self._waiting.popleft())

    def _client_left(self) -> None:
        self._stop_playing(left=True)

    def _stop_playing(self, *, left: bool) -> None:
        """Forget what was to be sent: the client has left, or we break off ourselves."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        self._starved = False
        self._drop_ticket()
        self._waiting.clear()
        if self._playing is not None:
            request, playback = self._playing
            self._playing = None
            if left:
                request.client_left_at = time.monotonic()
            else:
                request.answered_at = time.monotonic()
            self._book.ended(request, playback.work)

    def _drop_ticket(self) -> None:
        if self._ticket is not None:
            self._ticket.drop()
            self._ticket = None
