"""One request and its response on a server connection: the live `ports.Exchange`.

Invariants. The response goes out as one of: `respond`; `start`, `send` …, `finish`; or is broken by `abort`. When the exchange has
ended, in whichever way, it has let go of its connection and every method does nothing. No method here calls the receiver,
except that `write_paused` may come from inside `respond`, `start`, `send` and `finish`.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from tidegate.domain.error_object import encode_error
from tidegate.domain.header_lines import field_lines
from tidegate.domain.units import HeaderLines, Headers
from tidegate.errors import InternalError, TidegateError
from tidegate.http.framing import ChunkedReader, LengthReader
from tidegate.http.request_head import ParsedHead
from tidegate.http.response_head import CLOSE, KEEP_ALIVE, OWNED, has_body, status_line
from tidegate.ports import ExchangeReceiver, RequestHead

if TYPE_CHECKING:
    from tidegate.http.server_connection import ServerConnection

JSON_HEADERS: Final[Headers] = ((b"content-type", b"application/json"),)

_UNKNOWN: Final = -1
"""The length of a body that is sent in pieces."""
_JOIN_BYTES: Final = 65_536
"""Up to this size head and body are joined into one write; above it copying costs more than a second buffer."""


class _Framing(Enum):
    """How the pieces of a begun response are marked off."""

    UNDECIDED = auto()
    CHUNKED = auto()
    UNTIL_CLOSE = auto()
    NO_BODY = auto()


_UNDECIDED: Final = _Framing.UNDECIDED
_CHUNKED: Final = _Framing.CHUNKED
_NO_BODY: Final = _Framing.NO_BODY


class ServerExchange:
    """Made by `ServerConnection` when a head is complete. The application calls what `ports.Exchange` names, the connection the rest."""

    __slots__ = (
        "_connection",
        "_framing",
        "_http_1_0",
        "asked",
        "awaits_continue",
        "body",
        "body_bytes",
        "body_complete",
        "closing",
        "head",
        "reader",
        "receiver",
        "refusal",
    )

    def __init__(self, connection: ServerConnection, parsed: ParsedHead) -> None:
        self._connection: ServerConnection | None = connection
        self._framing = _UNDECIDED
        self.head: RequestHead = parsed.head
        self._http_1_0 = parsed.http_1_0
        self.closing = not parsed.keep_alive
        """The connection closes after this response."""
        self.receiver: ExchangeReceiver | None = None
        """None until the application has returned."""
        self.asked = False
        """The application called `read_body`."""
        self.awaits_continue = False
        """The client may be waiting for `100 Continue`."""
        self.body: bytes | None = None
        """The whole body, until it is delivered."""
        self.body_bytes = 0
        """Bytes counted for this body until the exchange ends, the application's copy included."""
        self.body_complete = False
        self.reader: LengthReader | ChunkedReader | None = None
        """Collects the body while it is incomplete."""
        self.refusal: TidegateError | None = None
        """Why the body cannot be had; the rest of it is thrown away."""

    # ── for the application ───────────────────────────────────────────────────

    def read_body(self) -> None:
        connection = self._connection
        if connection is None or self.asked:
            return
        self.asked = True
        if self.receiver is not None:
            # Never from inside the application's own call: its receiver may be in the middle of a step.
            connection.state.loop.call_soon(connection.provide_body, self)

    def respond(self, status: int, headers: Headers, body: bytes, lines: HeaderLines = b"") -> None:
        connection = self._connection
        if connection is None:
            return
        head = self._head(connection, status, headers, lines, len(body))
        if self.head.method == "HEAD" or not has_body(status):
            connection.write(head)
        elif len(body) <= _JOIN_BYTES:
            connection.write(head + body)
        else:
            connection.write(head)
            connection.write(body)
        self._end(connection)

    def start(self, status: int, headers: Headers, lines: HeaderLines = b"") -> None:
        connection = self._connection
        if connection is not None:
            connection.write(self._head(connection, status, headers, lines, _UNKNOWN))

    def send(self, chunk: bytes) -> None:
        connection = self._connection
        if connection is None or not chunk:  # an empty chunk would end the response
            return
        framing = self._framing
        if framing is _CHUNKED:
            connection.write(connection.chunks.framed(chunk))
        elif framing is _UNDECIDED:
            raise AssertionError("send() before start()")
        elif framing is not _NO_BODY:
            connection.write(chunk)

    def finish(self) -> None:
        connection = self._connection
        if connection is None:
            return
        if self._framing is _UNDECIDED:
            raise AssertionError("finish() before start()")
        if self._framing is _CHUNKED:
            connection.write(b"0\r\n\r\n")
        self._end(connection)

    def abort(self) -> None:
        connection = self._connection
        if connection is not None:
            self.let_go()
            connection.exchange_aborted(reset=self._framing is _Framing.UNTIL_CLOSE)

    # ── for the connection ────────────────────────────────────────────────────

    def fail(self) -> None:
        """End the exchange after a fault of the application: 500 if nothing was sent yet, else a broken response."""
        if self._framing is _UNDECIDED:
            error = InternalError(
                "The gateway failed on this request. Try again; if it persists, give the operator the time of the request."
            )
            self.closing = True
            self.respond(error.status, JSON_HEADERS, encode_error(error))
        else:
            self.abort()

    def let_go(self) -> None:
        """Turn all methods into no-ops and drop what the exchange holds."""
        self._connection = None
        self.receiver = None
        self.body = None
        self.reader = None

    def _end(self, connection: ServerConnection) -> None:
        self.let_go()
        connection.exchange_ended(self)

    def _head(self, connection: ServerConnection, status: int, headers: Headers, lines: HeaderLines, length: int) -> bytes:
        if self._framing is not _UNDECIDED:
            raise AssertionError("the response has begun already: call respond(), or start() once")
        fields = field_lines(headers, OWNED)
        first = status_line(status)
        framing = b""
        if not has_body(status):
            self._framing = _NO_BODY
        elif length != _UNKNOWN:
            self._framing = _NO_BODY
            framing = b"content-length: %d\r\n" % length
        elif self.head.method == "HEAD":
            self._framing = _NO_BODY
        elif self._http_1_0:
            self._framing = _Framing.UNTIL_CLOSE
            self.closing = True
        else:
            self._framing = _CHUNKED
            framing = b"transfer-encoding: chunked\r\n"
        if self.closing or connection.state.draining or not self.body_complete:
            self.closing = True
            connection_line = CLOSE
        else:
            connection_line = KEEP_ALIVE if self._http_1_0 else b""
        return b"".join((first, connection.state.date_line, fields, lines, framing, connection_line, b"\r\n"))
