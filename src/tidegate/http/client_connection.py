"""One HTTP/1.1 connection to an upstream, and the call that it carries.

Invariants:
* A connection carries one call at a time, and a receiver hears nothing after its call ended or was cancelled.
* Bytes that arrive while no request is under way are never an answer: the connection is dropped. Before a connection that was idle for
  `ASK_AFTER_IDLE_S` is used again, the socket itself is asked whether bytes or the end wait in it, unseen since the loop last looked; so
  a server's parting `408` is not taken for an answer. (What crosses the request on the wire cannot be told apart.)
* A connection is reused only if the response ended by its own framing, nothing followed it, the server agreed to keep it open and the
  request was sent completely. (A bare CRLF directly behind a response is tolerated, as by the parser.)
* What is left of a large read comes before anything else is read, and a connection that has such a rest is not reused.
* Bounds: the head with all interim (1xx) heads is at most `max_head_bytes`, and so is every run of bytes within a body that holds no body
  (chunk headers, trailers); bodies are passed on as they come and never collected.
* A read that is one whole chunk, nothing more or less, is taken without the parser, but only while that stands between two chunks: a whole
  chunk leaves it there. It stands there if the last thing that it noticed in a read was the end of a chunk, and the read ended in LF: in
  the size line of the next chunk only the end is LF, and that it notices.

Back-pressure: `pause` stops reading from the socket. Pieces that were read before it still arrive, at most one read (256 KiB) of them, and
the response may even end. While paused, the end of the connection is not seen, because that too is something one reads: the caller's
clocks and `cancel` work as ever, and after `resume` the remaining bytes come first and the end after them.

Closing is always immediate (`abort`): a close that flushed could wait for a peer that does not read, and a TLS farewell tells a
server nothing that the end of the connection does not.
"""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Callable
from enum import IntEnum
from typing import Final, Protocol, cast

import httptools

from tidegate.domain.units import Headers
from tidegate.http.answer_memory import STATUS, AnswerMemory
from tidegate.http.client_call import SILENCE, Call, CallOwner, Silence
from tidegate.http.framing import ends_with_connection, head_bytes
from tidegate.http.outbox import Outbox, Sender
from tidegate.ports import CallFailure, CallFailureKind, CallReceiver

ASK_AFTER_IDLE_S = 1.0
"""Servers give up idle connections after seconds, not sooner; in a busy pool, which reuses within milliseconds, nobody pays for asking."""

TURN_BYTES: Final = 32_768
"""Of a larger read so much is taken at once, and the rest in the loop's next turns: small events in it cost 5 ms, chunks of one byte 50."""


class ResponsePhase(IntEnum):
    """How far the response of the current call is."""

    HEAD = 0
    BODY = 1
    COMPLETE = 2


_HEAD: Final = ResponsePhase.HEAD
_BODY: Final = ResponsePhase.BODY
_COMPLETE: Final = ResponsePhase.COMPLETE


class ConnectionOwner(CallOwner, Protocol):
    """What a connection needs of its pool."""

    via_proxy: bool
    max_head_bytes: int

    def connection_freed(self, connection: ClientConnection) -> None:
        """Take back a connection that is fit for the next call."""

    def connection_ended(self, connection: ClientConnection, again: Call | None) -> None:
        """Forget a connection that is closed or closing; give the call `again`, if any, a fresh one in its place."""


class _NoBody(Silence):
    """The receiver behind the head of an answer to HEAD: a body there is bytes that nobody asked for."""

    __slots__ = ()

    def response_chunk(self, chunk: bytes) -> None:  # noqa: ARG002  the Protocol's signature
        raise LeaveParser


class LeaveParser(Exception):
    """The rest of this read must not be parsed: the response is complete, refused or nobody's."""


_BODILESS = frozenset({204, 304})
_LOOK_AT_URL = "check that base_url points at a model server's HTTP port"

_NO_BODY = _NoBody()


class ClientConnection(Sender, asyncio.Protocol):
    """An open connection; the event loop and the parser call it."""

    __slots__ = (
        "_answers",
        "_between_chunks",
        "_call",
        "_chunk_ended",
        "_chunks",
        "_counted",
        "_feed",
        "_flowing",
        "_headers",
        "_interim",
        "_keeps_alive",
        "_loop",
        "_outbox",
        "_parse",
        "_parser",
        "_paused",
        "_phase",
        "_pool",
        "_receiver",
        "_rest",
        "_take_body",
        "_transport",
        "_until_close",
        "closed",
        "idle_since",
        "lost",
        "refusal",
        "used",
    )

    def __init__(
        self, pool: ConnectionOwner, loop: asyncio.AbstractEventLoop, outbox: Outbox | None = None, answers: AnswerMemory | None = None
    ) -> None:
        """`outbox` is where requests wait for the end of the turn (default: one of its own); `answers` knows heads that came before."""
        # Compiled, attributes lie in this order; those that each chunk needs come first, so that they share a line of the cache.
        self._between_chunks = False
        """The parser stands between two chunks."""
        self._receiver: CallReceiver = SILENCE
        self._take_body = self._receiver.response_chunk
        """Kept, since to find it for each chunk costs as much as to call it."""
        self._outbox = outbox if outbox is not None else Outbox(loop)
        self._chunks = self._outbox.chunks
        self._pool = pool
        self._loop = loop
        self._answers = answers
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._parse: Callable[[bytes], None] | None = None
        self._renew_parser()
        self._feed: Callable[[bytes], None] | None = None
        """Set only while an answer may come."""
        self._call: Call | None = None
        self._phase = _HEAD
        self._headers: list[tuple[bytes, bytes]] = []
        self._interim = False
        self._keeps_alive = False
        self._until_close = False
        self._flowing = False
        """Body bytes came in this read."""
        self._chunk_ended = False
        """What the parser noticed last is the end of a chunk."""
        self._counted = 0
        """Bytes of the head so far, then bytes since the last piece of body."""
        self.refusal: CallFailure | None = None
        """Why what came is not acceptable, where it is not the parser that says so."""
        self._paused = False
        self._rest = b""
        """What is left of a large read; nothing is read meanwhile."""
        self.closed = False
        self.lost: asyncio.Future[None] = loop.create_future()
        """Done when the loop has let go of the socket."""
        self.used = False
        """True once it has served a call or waited idle: from then on the server may close it at any moment."""
        self.idle_since = 0.0

    def _renew_parser(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._parse = self._parser.feed_data

    # ── for the pool and the call ────────────────────────────────────────────

    def is_quiet(self) -> bool:
        """Say whether an idle connection may be used: nothing came from the server since it answered."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        if self._loop.time() - self.idle_since < ASK_AFTER_IDLE_S:
            return True
        poll = select.poll()
        poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN | select.POLLHUP)
        return not poll.poll(0)

    def begin(self, call: Call) -> None:
        """Send the call's request at the end of the turn."""
        self._call = call
        call.connection = self
        self._outbox.add(self)

    def flush(self) -> None:
        """Send the request of the call that has begun, tell its receiver, and listen for the answer."""
        call, transport = self._call, self._transport
        if call is None or transport is None or self._feed is not None:
            return
        if call.body:
            transport.writelines((call.head, call.body))
        else:
            transport.write(call.head)
        self._feed = self._feed_head
        self._hear(call.receiver)
        if call.paused:
            self.pause()
        if not call.announced:
            call.announced = True
            call.receiver.call_connected()

    def pause(self) -> None:
        transport = self._transport
        if not self._paused and transport is not None and not transport.is_closing():
            self._paused = True
            transport.pause_reading()

    def resume(self) -> None:
        if self._paused:
            self._paused = False
            self._read_on()

    def close(self, *, again: Call | None = None) -> None:
        """Close the socket at once and tell nobody but the pool."""
        if self.closed:
            return
        self.closed = True
        self._detach()
        if self._transport is not None:
            self._transport.abort()
        self._pool.connection_ended(self, again)

    def fail(self, failure: CallFailure) -> None:
        """Close the socket and end the call, if there is one."""
        call = self._call
        self.close()
        if call is not None:
            call.fail(failure)

    # ── from the event loop ──────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self.closed:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._outbox.begin_read()
        try:
            self._take(data)
        finally:
            self._outbox.end_read()

    def _take(self, data: bytes) -> None:
        if self._between_chunks:
            content = self._chunks.content_of(data)
            if content:
                self._take_body(content)
                return
            self._between_chunks = False
        if len(data) > TURN_BYTES:
            data = self._leave_a_rest(data)
        feed = self._feed
        if feed is None:
            if not self.closed:
                self._early()
            return
        try:
            feed(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as problem:
            self._parser_stopped(problem)
            return
        if self._flowing:
            self._flowing = False
            self._between_chunks = self._chunk_ended and data.endswith(b"\n")
        else:
            self._without_body(len(data))

    def _leave_a_rest(self, data: bytes) -> bytes:
        """Give the beginning of a large read, and take the rest in the loop's next turn: others need it too."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
        self._rest = data[TURN_BYTES:]
        self._loop.call_soon(self._take_rest)
        return data[:TURN_BYTES]

    def _take_rest(self) -> None:
        rest, self._rest = self._rest, b""
        if not self.closed:
            self.data_received(rest)
            self._read_on()

    def _read_on(self) -> None:
        transport = self._transport
        if not self._rest and not self._paused and transport is not None and not transport.is_closing():
            transport.resume_reading()

    def eof_received(self) -> None:
        self._ended(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended(exc)
        self._parser = self._parse = None  # the parser holds this object: kept, both would wait for the cycle collector
        if not self.lost.done():
            self.lost.set_result(None)

    # ── from the parser ──────────────────────────────────────────────────────

    def on_message_begin(self) -> None:
        if self._phase is _COMPLETE:
            raise LeaveParser
        self._headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._phase is _HEAD:
            self._headers.append((name.lower(), value.rstrip()))

    def on_headers_complete(self) -> None:
        call = self._call
        parser = self._parser
        if call is None or parser is None:
            raise LeaveParser
        status = parser.get_status_code()
        self._check_head(status)
        if status < 200:  # noqa: PLR2004  RFC 9110, 15.2: the real answer follows
            self._interim = True
            return
        headers = tuple(self._headers)
        keeps_alive = parser.should_keep_alive()
        self._until_close = not keeps_alive and status not in _BODILESS and ends_with_connection(headers)
        self._start_answer(call, status, headers, keeps_alive=keeps_alive)

    def on_body(self, body: bytes) -> None:
        self._flowing = True
        self._counted = 0
        self._take_body(body)

    def on_chunk_header(self) -> None:
        self._chunk_ended = False

    def on_chunk_complete(self) -> None:
        self._chunk_ended = True

    def on_message_complete(self) -> None:
        if self._interim:
            self._interim = False
            return
        self._flowing = self._chunk_ended = False
        self._phase = _COMPLETE

    # ── what follows from it ─────────────────────────────────────────────────

    def _start_answer(self, call: Call, status: int, headers: Headers, *, keeps_alive: bool) -> None:
        self._keeps_alive = keeps_alive
        self._feed = self._parse
        self._counted = -self._counted  # so that this read, counted when it is through, does not count against the body's framing
        self._phase = _BODY
        receiver = self._receiver
        if call.is_head:
            self._phase = _COMPLETE
            self._hear(_NO_BODY)
        call.head = call.body = b""
        receiver.response_started(status, headers)

    def _feed_head(self, data: bytes) -> None:
        """Take a read that came while the head was not complete, with luck the whole answer."""
        call = self._call
        answers = self._answers if self._counted == 0 and call is not None and not call.is_head else None
        whole = answers.read(data) if answers is not None else None
        if whole is not None and call is not None:
            self._until_close = False
            self._start_answer(call, STATUS, whole.headers, keeps_alive=whole.keeps_alive)
            self._take_body(whole.body)
            self._phase = _COMPLETE
            return
        self._counted += len(data)
        if self._parse is not None:
            self._parse(data)
        if answers is not None and self._phase is _COMPLETE:
            answers.learn(data, tuple(self._headers), keeps_alive=self._keeps_alive)

    def _check_head(self, status: int) -> None:
        if self._counted > self._pool.max_head_bytes and head_bytes(self._headers) > self._pool.max_head_bytes:
            self._refuse(CallFailureKind.PROTOCOL, self._head_too_long())
        if status == 101 or status < 100:  # noqa: PLR2004  RFC 9110, 15.2.2
            self._refuse(
                CallFailureKind.PROTOCOL, f"{self._pool.label} answered with status {status}, which was not asked for; {_LOOK_AT_URL}"
            )
        if status == 407 and self._pool.via_proxy:  # noqa: PLR2004  RFC 9110, 15.5.8
            self._refuse(
                CallFailureKind.PROXY,
                f"the proxy before {self._pool.label} answered 407; put a valid user name and password into the proxy's URL",
            )

    def _refuse(self, kind: CallFailureKind, message: str) -> None:
        self.refusal = CallFailure(kind, message)
        raise LeaveParser

    def _without_body(self, size: int) -> None:
        """Go on after a read that held no body, or the end of one."""
        if self.closed:
            return
        limit = self._pool.max_head_bytes
        if self._phase is _COMPLETE:
            self._finish(reusable=True)
        elif self._phase is _HEAD:
            if self._counted > limit:
                self.fail(CallFailure(CallFailureKind.PROTOCOL, self._head_too_long()))
        else:
            self._counted += size
            if self._counted > limit:
                message = f"{self._pool.label} sent over {limit} bytes of chunk framing or trailers without any body; {_LOOK_AT_URL}"
                self.fail(CallFailure(CallFailureKind.PROTOCOL, message))

    def _parser_stopped(self, problem: httptools.HttpParserError | httptools.HttpParserUpgrade) -> None:
        cause = problem.__context__
        if isinstance(problem, httptools.HttpParserCallbackError) and cause is not None and not isinstance(cause, LeaveParser):
            raise cause  # the receiver's own fault: the loop reports it and drops the connection, which ends the call
        if self.closed:
            return
        if self.refusal is not None:
            self.fail(self.refusal)
        elif self._phase is _COMPLETE:
            self._finish(reusable=False)
        else:
            message = f"{self._pool.label} sent an answer that is not valid HTTP/1.1 ({problem}); {_LOOK_AT_URL}"
            self.fail(CallFailure(CallFailureKind.PROTOCOL, message))

    def _finish(self, *, reusable: bool) -> None:
        """End the call with a complete answer, the connection given back first so that the receiver may use it at once."""
        call, transport = self._call, self._transport
        if call is None or transport is None:
            return
        receiver, call.receiver = call.receiver, SILENCE
        call.ended = True
        if reusable and self._keeps_alive and not self._rest and not transport.is_closing() and transport.get_write_buffer_size() == 0:
            if call.is_head:
                self._renew_parser()
            if self._paused:
                self.resume()
            self._detach()
            self._phase = _HEAD
            self._counted = 0
            self._pool.connection_freed(self)
        else:
            self.close()
        receiver.response_ended()

    def _detach(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call.connection = None
        self._feed = None
        self._hear(SILENCE)

    def _hear(self, receiver: CallReceiver) -> None:
        """Tell this receiver from now on."""
        self._receiver = receiver
        self._take_body = receiver.response_chunk

    def _early(self) -> None:
        """Give up a server that speaks before a request went out: nobody asked for it. One that was used before may be in the middle of
        parting, and the call goes elsewhere."""
        self.refusal = self._spoke_unasked()
        if self.used:
            self.close(again=self._call)
        else:
            self.fail(self.refusal)

    def _ended(self, problem: Exception | None) -> None:
        """Draw the consequence of the connection's end, whoever caused it."""
        call = self._call
        if self.closed or call is None:
            self.close()
        elif self._phase is _BODY and self._until_close and problem is None:
            self._finish(reusable=False)
        elif self.used and self._phase is _HEAD and self._counted == 0:
            self.close(again=call)
        else:
            how = f"broke the connection ({_cause(problem)})" if problem is not None else "closed the connection"
            when = "before it answered" if self._phase is _HEAD else "in the middle of its answer"
            self.fail(
                CallFailure(CallFailureKind.RESET, f"{self._pool.label} {how} {when}; look at that server's log for a crash or a restart")
            )

    def _spoke_unasked(self) -> CallFailure:
        return CallFailure(
            CallFailureKind.PROTOCOL, f"{self._pool.label} spoke before it was asked, so it is no HTTP server; {_LOOK_AT_URL}"
        )

    def _head_too_long(self) -> str:
        return f"{self._pool.label} sent a response head longer than {self._pool.max_head_bytes} bytes; {_LOOK_AT_URL}"


def _cause(problem: Exception) -> str:
    if isinstance(problem, OSError):
        return os.strerror(problem.errno) if problem.errno else str(problem)
    return type(problem).__name__
