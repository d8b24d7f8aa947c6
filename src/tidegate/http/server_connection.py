"""The request half of a server connection: reads requests one after the other, and hands each to the application.

Phases: IDLE → (WAITING →) (BODY →) RUNNING → IDLE …, at the end LINGERING or CLOSING; `ConnectionPhase` says what each means.

Invariants. At most one exchange at a time: bytes of later requests wait unparsed, at most `MAX_AHEAD_BYTES` and one read, then reading
pauses. After a refusal nothing more is parsed. A head's deadline is set with its first byte and a body's total deadline with
`read_body`; sending slowly extends neither. Every call into the application goes through `_call_application` or `_tell`, the driver's
outermost frames. `client_left` comes at most once, last, and never after the response is complete.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import struct
from collections.abc import Callable
from typing import Final

from tidegate.domain.error_object import encode_error
from tidegate.domain.header_lines import field_lines
from tidegate.errors import TidegateError
from tidegate.http.deadlines import NEVER
from tidegate.http.framing import ChunkedReader, LengthReader
from tidegate.http.request_head import CHUNKED, ParsedHead, check_beginning
from tidegate.http.request_refusals import (
    body_too_large,
    body_too_slow,
    coded_body,
    head_too_large,
    head_too_slow,
    over_memory,
    unknown_expectation,
)
from tidegate.http.response_head import CLOSE, OWNED, status_line
from tidegate.http.server_exchange import JSON_HEADERS, ServerExchange
from tidegate.http.server_socket import LARGE_READ_BYTES, ConnectionPhase, ServerSocket, peer_name
from tidegate.http.server_state import ServerState

MAX_AHEAD_BYTES: Final = 65_536
"""Bytes held of pipelined requests, or of a body not asked for yet; reading on so far is how the client's FIN is noticed."""

REQUESTS_A_TURN: Final = 16
"""Pipelined requests read at once; the next ones wait for the loop's next turn, since others need it too."""

BODY_TOTAL_FACTOR: Final = 10
"""A whole body may take this many times `body_timeout_s`."""

FIRST_REQUEST_GRACE_S: Final = 1.0
"""At a drain, a connection that has not sent a request yet is kept for so long: its first one may be on its way."""

_logger: Final = logging.getLogger("tidegate.http")
_HEAD_END: Final = b"\r\n\r\n"
_EMPTY_LINES: Final = re.compile(rb"(?:\r\n)+")
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)

# Looking a member up in its Enum costs more than the comparison; these are compared for each read.
_IDLE: Final = ConnectionPhase.IDLE
_WAITING: Final = ConnectionPhase.WAITING
_BODY: Final = ConnectionPhase.BODY
_RUNNING: Final = ConnectionPhase.RUNNING
_LINGERING: Final = ConnectionPhase.LINGERING


class ServerConnection(ServerSocket):
    """The protocol of one accepted socket. Methods without underscore are for the event loop, `ServerExchange` and `HttpServer`."""

    __slots__ = ("_ahead", "_exchange", "_held", "_more", "_parsing", "_partial", "_peer", "_served")

    def __init__(self, state: ServerState) -> None:
        super().__init__(state)
        self._peer = ""
        self._exchange: ServerExchange | None = None
        self._partial = b""
        """The beginning of a head; bounded by `max_header_bytes`."""
        self._ahead = b""
        """Bytes after the running request; bounded by `MAX_AHEAD_BYTES` and one read."""
        self._held = 0
        """This connection's share of `state.buffered_bytes`."""
        self._parsing = False
        self._more = False
        """While parsing: the read goes on after the request whose application is being called."""
        self._served = False

    # ── what the event loop calls ─────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        state = self.state
        state.accepted += 1
        if len(state.connections) >= state.limits.max_connections:
            state.rejected += 1
            self.write(state.overloaded_response)
            self._close()
            return
        state.connections.add(self)
        self._peer = peer_name(transport.get_extra_info("peername"))
        self._set_deadline(state.loop.time() + (FIRST_REQUEST_GRACE_S if state.draining else state.limits.idle_timeout_s))

    def data_received(self, data: bytes) -> None:
        self._outbox.begin_read()
        try:
            self._take(data)
        finally:
            self._outbox.end_read()

    def _take(self, data: bytes) -> None:
        phase = self._phase
        if phase is _IDLE:
            if self._ahead:  # an earlier read is still to be parsed
                self._hold_ahead(data)
            else:
                self._read_requests(data)
        elif phase is _RUNNING:
            self._hold_ahead(data)
        elif phase is _LINGERING:
            self._throw_away(len(data))
        elif phase is _WAITING or phase is _BODY:
            self._read_body(data)
        if len(data) >= LARGE_READ_BYTES:
            self._rest_for_a_turn()

    def eof_received(self) -> bool:
        """Take the client as gone, unless configured otherwise; true keeps the socket open for the response."""
        exchange = self._exchange
        # Within TLS a transport cannot stay half open.
        keeps_going = self.state.limits.half_close_keeps_going and self._transport.get_extra_info("sslcontext") is None
        if exchange is None:
            self._client_finished = keeps_going and bool(self._ahead)
        elif keeps_going and (exchange.body_complete or exchange.refusal is not None):
            self._client_finished = True
        else:
            self._leave()
        return self._client_finished

    def connection_lost(self, exc: Exception | None) -> None:
        del exc  # a reset and a FIN mean the same to the application
        state = self.state
        self._phase = ConnectionPhase.CLOSING
        self._held_output = b""
        self.deadline = NEVER
        state.deadlines.forget(self)
        state.connections.discard(self)
        self._leave()
        if state.draining and not state.connections:
            state.empty.set()

    def pause_writing(self) -> None:
        super().pause_writing()
        exchange = self._exchange
        if exchange is not None and exchange.receiver is not None:
            self._tell(exchange, exchange.receiver.write_paused)

    def resume_writing(self) -> None:
        super().resume_writing()
        exchange = self._exchange
        if exchange is None:
            self.state.loop.call_soon(self._read_ahead)
        elif exchange.receiver is not None:
            self._tell(exchange, exchange.receiver.write_resumed)

    # ── what the exchange calls ───────────────────────────────────────────────

    def provide_body(self, exchange: ServerExchange) -> None:
        """Deliver the body, or begin to collect it; does nothing for an exchange that has ended or has not asked."""
        receiver = exchange.receiver
        if exchange is not self._exchange or receiver is None or not exchange.asked:
            return
        if exchange.refusal is not None:
            self._tell(exchange, receiver.body_refused, exchange.refusal)
        elif exchange.body is not None:
            body, exchange.body = exchange.body, None
            self._tell(exchange, receiver.body_received, body)
        elif self._phase is _WAITING:
            self._phase = _BODY
            now = self.state.loop.time()
            self._limit_at = now + self.state.limits.body_timeout_s * BODY_TOTAL_FACTOR
            self._set_deadline(now + self.state.limits.body_timeout_s)
            if exchange.awaits_continue:
                self.write(_CONTINUE)
            self._resume_reading()

    def exchange_ended(self, exchange: ServerExchange) -> None:
        """Go on with the next request, or close: the response is written."""
        self._exchange = None
        self.state.exchanges -= 1
        self._served = True
        closing = exchange.closing or self.state.draining
        if not closing:
            self._phase = _IDLE
            self._set_deadline(self.state.loop.time() + self.state.limits.idle_timeout_s)
            if not self._parsing and (self._ahead or self._client_finished):
                self.state.loop.call_soon(self._read_ahead)
        elif self._ahead or self._more or not exchange.body_complete:
            self._forget_input()
            self._linger()
        else:
            self._close()
        if self._held:
            self._recount()

    def exchange_aborted(self, *, reset: bool) -> None:
        """Close the socket with the response broken; `reset` where a plain close would look like its regular end."""
        self._exchange = None
        self.state.exchanges -= 1
        if reset:
            self.flush()
            connected = self._transport.get_extra_info("socket")
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self._drop()

    # ── what the server calls ─────────────────────────────────────────────────

    def drain(self, now: float) -> None:
        """Close if nothing is going on; a running exchange closes when it ends."""
        if self._phase is _IDLE and not self._partial and not self._ahead:
            if self._served:
                self._close()
            else:
                self._set_deadline(min(self._phase_deadline, now + FIRST_REQUEST_GRACE_S))

    def abort(self) -> None:
        """Close at once, whatever is going on."""
        self._leave()

    # ── reading requests ──────────────────────────────────────────────────────

    def _read_requests(self, data: bytes) -> None:
        """Parse as many requests as can be answered at once; hold the rest."""
        at = 0
        searched_to = len(self._partial)
        if searched_to:
            data = self._partial + data
            self._partial = b""
        size = len(data)
        self._parsing = True
        left = REQUESTS_A_TURN
        while at < size and left and self._phase is _IDLE and not self._write_paused:
            at = self._read_request(data, at, searched_to=searched_to)
            left -= 1
        self._parsing = self._more = False
        if at < size and self._phase in (_IDLE, _RUNNING):
            self._hold_ahead(data[at:])
            if not left and self._phase is _IDLE:
                self.state.loop.call_soon(self._read_ahead)
        elif self._held:
            self._recount()
        if self._phase is _IDLE and self._client_finished and not self._ahead:
            self._close()
        elif self._read_paused and self._phase in (_IDLE, _RUNNING) and len(self._ahead) < MAX_AHEAD_BYTES:
            self._resume_reading()

    def _read_request(self, data: bytes, at: int, *, searched_to: int) -> int:
        """Read one head at `data[at:]` and begin its exchange, or hold its beginning, or refuse it; give the index after what was taken."""
        if data.startswith(b"\r\n", at):  # empty lines before a request are forgiven (RFC 9112, section 2.2)
            empty = _EMPTY_LINES.match(data, at)
            assert empty is not None
            at = empty.end()
        # The end may straddle what was searched before and what is fresh.
        end_at = data.find(_HEAD_END, max(at, searched_to - len(_HEAD_END) + 1))
        if end_at < 0:
            self._hold_partial(data[at:], searched_to=max(0, searched_to - at))
            return len(data)
        body_at = end_at + len(_HEAD_END)
        if body_at - at > self.state.limits.max_header_bytes:
            self._refuse(head_too_large(self.state.limits.max_header_bytes))
            return len(data)
        return self._begin(data[at:body_at], data, body_at)

    def _read_ahead(self) -> None:
        """Take up the bytes that waited for the last response to end, or to be read."""
        if self._phase is _IDLE and not self._write_paused:
            data, self._ahead = self._ahead, b""
            self._read_requests(data)

    def _hold_ahead(self, data: bytes) -> None:
        self._ahead += data
        if len(self._ahead) >= MAX_AHEAD_BYTES:
            self._pause_reading()
        self._recount()
        self._leave_if_over_memory()

    def _hold_partial(self, partial: bytes, *, searched_to: int) -> None:
        if not partial:
            return
        if len(partial) > self.state.limits.max_header_bytes:
            self._refuse(head_too_large(self.state.limits.max_header_bytes))
            return
        try:
            if partial != b"\r":
                check_beginning(partial, searched_to=searched_to)
        except TidegateError as error:
            self._refuse(error)
            return
        self._partial = partial
        if not searched_to and partial != b"\r":  # a lone CR may be an empty line: those keep no connection open
            self._set_deadline(self.state.loop.time() + self.state.limits.header_timeout_s)
        self._recount()
        self._leave_if_over_memory()

    def _begin(self, raw: bytes, data: bytes, at: int) -> int:
        """Start the exchange of the request with the head `raw`, whose body begins at `data[at]`; give the index after what was taken."""
        state = self.state
        try:
            parsed = state.head_memory.read(raw, self._peer)
        except TidegateError as error:
            self._refuse(error)
            return len(data)
        if parsed.expectation is not None and parsed.expectation != b"100-continue":
            self._refuse(unknown_expectation())
            return len(data)
        exchange = ServerExchange(self, parsed)
        self._exchange = exchange
        state.exchanges += 1
        state.requests += 1
        self._phase_deadline = self.deadline = NEVER
        if parsed.body_length:
            at = self._begin_body(exchange, parsed, data, at)
        else:
            exchange.body = b""
            exchange.body_complete = True
            self._phase = _RUNNING
        self._more = at < len(data)
        self._call_application(exchange)
        return at

    def _call_application(self, exchange: ServerExchange) -> None:
        try:
            receiver = self.state.application(exchange)
        except Exception:
            _logger.exception("application.failed")
            exchange.fail()
            return
        if exchange is not self._exchange:
            return  # answered already
        exchange.receiver = receiver
        if self._write_paused:
            self._tell(exchange, receiver.write_paused)
        if exchange.asked:
            self.provide_body(exchange)

    def _tell(self, exchange: ServerExchange, call: Callable[..., None], *arguments: object) -> None:
        try:
            call(*arguments)
        except Exception:
            _logger.exception("receiver.failed")
            exchange.fail()

    # ── reading a body ────────────────────────────────────────────────────────

    def _begin_body(self, exchange: ServerExchange, parsed: ParsedHead, data: bytes, at: int) -> int:
        limits = self.state.limits
        length = parsed.body_length
        self._phase = _WAITING
        if parsed.coded:
            self._give_up_body(exchange, coded_body())
        elif length > limits.max_body_bytes:
            self._give_up_body(exchange, body_too_large(limits.max_body_bytes))
        elif self.state.buffered_bytes + max(length, 0) > limits.max_buffered_bytes:
            self._give_up_body(exchange, over_memory())
        elif 0 < length <= len(data) - at:
            exchange.body = data[at : at + length]
            exchange.body_bytes = length
            exchange.body_complete = True
            self._held += length
            self.state.buffered_bytes += length
            self._phase = _RUNNING
            return at + length
        else:
            exchange.awaits_continue = parsed.expectation is not None and at == len(data) and not parsed.http_1_0
            exchange.reader = ChunkedReader(limits.max_body_bytes) if length == CHUNKED else LengthReader(length)
            return self._feed_reader(exchange, exchange.reader, data, at)
        return len(data)

    def _read_body(self, data: bytes) -> None:
        exchange = self._exchange
        if exchange is None or exchange.reader is None:
            self._pause_reading()  # refused: the rest is thrown away after the response
            return
        exchange.awaits_continue = False
        at = self._feed_reader(exchange, exchange.reader, data, 0)
        if at < len(data):
            self._hold_ahead(data[at:])
        if exchange.body is not None or exchange.refusal is not None:
            self.provide_body(exchange)
        elif self._phase is _BODY:
            self._set_deadline(min(self.state.loop.time() + self.state.limits.body_timeout_s, self._limit_at))
        elif self._phase is _WAITING and exchange.body_bytes >= MAX_AHEAD_BYTES:
            self._pause_reading()

    def _feed_reader(self, exchange: ServerExchange, reader: LengthReader | ChunkedReader, data: bytes, at: int) -> int:
        """Collect body bytes, give the index after those taken. May complete or give up the body, and tells nobody."""
        try:
            at = reader.feed(data, at)
        except TidegateError as error:
            self._give_up_body(exchange, error)
            return len(data)
        exchange.body_bytes = reader.received
        self._recount()
        if self.state.buffered_bytes > self.state.limits.max_buffered_bytes:
            self._give_up_body(exchange, over_memory())
            return len(data)
        if reader.complete:
            exchange.body = reader.take()
            exchange.body_complete = True
            exchange.reader = None
            self._phase = _RUNNING
            self._set_deadline(NEVER)
        return at

    def _give_up_body(self, exchange: ServerExchange, error: TidegateError) -> None:
        self.state.refused_bodies += 1
        exchange.refusal = error
        exchange.reader = None
        exchange.body_bytes = 0
        self._phase = _WAITING
        self._set_deadline(NEVER)
        self._recount()

    # ── refusing and ending ───────────────────────────────────────────────────

    def _end_phase(self) -> None:
        limits = self.state.limits
        exchange = self._exchange
        if self._phase is _IDLE and not self._partial:
            self._close()
        elif self._phase is _IDLE:
            self.state.timed_out += 1
            self._refuse(head_too_slow(limits.header_timeout_s))
        elif self._phase is _BODY and exchange is not None:
            self.state.timed_out += 1
            self._give_up_body(exchange, body_too_slow(limits.body_timeout_s, limits.body_timeout_s * BODY_TOTAL_FACTOR))
            self.provide_body(exchange)
        else:
            super()._end_phase()

    def _refuse(self, error: TidegateError) -> None:
        """Answer in place of the application; nothing more is read as a request from this connection."""
        self.state.malformed += 1
        body = encode_error(error)
        self.write(
            b"".join(
                (
                    status_line(error.status),
                    self.state.date_line,
                    field_lines(JSON_HEADERS, OWNED),
                    b"content-length: %d\r\n" % len(body),
                    CLOSE,
                    b"\r\n",
                    body,
                )
            )
        )
        self._forget_input()
        self._linger()

    def _leave(self) -> None:
        """Close at once, and tell the application if it has not answered yet."""
        exchange = self._exchange
        self._exchange = None
        self._forget_input()
        self._drop()
        if exchange is not None:
            self.state.exchanges -= 1
            self.state.clients_left += 1
            receiver = exchange.receiver
            exchange.let_go()
            if receiver is not None:
                self._tell(exchange, receiver.client_left)

    def _leave_if_over_memory(self) -> None:
        """Give up a connection whose unparsed bytes are too much for the process; there is nobody to answer yet."""
        if self.state.buffered_bytes > self.state.limits.max_buffered_bytes:
            self._leave()

    def _forget_input(self) -> None:
        self._partial = b""
        self._ahead = b""
        self._recount()

    def _recount(self) -> None:
        """Bring this connection's share of the buffered bytes up to date."""
        exchange = self._exchange
        held = len(self._ahead) + len(self._partial)
        if exchange is not None:
            held += exchange.body_bytes
        self.state.buffered_bytes += held - self._held
        self._held = held
