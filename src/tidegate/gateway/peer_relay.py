"""Pass a request on to the worker that holds what it asks for, and its answer back, byte for byte.

Used for a client that returns for its stream and reaches another worker than the one it left. Each worker serves the same application on
a socket of its own, which only this user's processes can reach; the request is authenticated there once more.

Two clocks, for a worker that is stuck: one until its answer begins (a refusal: until it is whole), and one on the silence of a stream. The
clocks of the stream itself run over there: whatever its upstream does, it ends or sends something within its longest pause. So a worker
that is silent for longer is not at work, and the client does better to come back. While the client makes us wait, no clock runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from tidegate.domain.units import Headers
from tidegate.errors import Overloaded, StreamNotFound, TidegateError
from tidegate.ports import CallFailure, Exchange, UpstreamCall, UpstreamClient, UpstreamRequest

_PATIENCE_S: Final = 10.0
"""Until the other worker's status line, for it answers from memory or verifies a token first; and beyond what a stream's clocks allow."""

_ERROR_BYTES: Final = 65_536
"""An error body is held to be sent whole; ours have a few hundred bytes."""

_OK: Final = 200
_HOP_BY_HOP: Final = frozenset({b"connection", b"keep-alive", b"transfer-encoding", b"content-length", b"te", b"trailer", b"upgrade"})
_OF_THIS_CONNECTION: Final = _HOP_BY_HOP | {b"host", b"expect", b"date", b"proxy-connection"}


class RelayOwner(Protocol):
    """What a relay needs of the request it serves."""

    exchange: Exchange

    def refuse(self, error: TidegateError) -> None:
        """Nothing was sent yet: answer with this."""


class PeerRelay:
    """Implements `ports.CallReceiver` for one request that another worker answers."""

    __slots__ = ("_body", "_body_bytes", "_call", "_exchange", "_headers", "_later", "_over", "_owner", "_silence_s", "_status", "_timer")

    def __init__(
        self,
        owner: RelayOwner,
        peer: UpstreamClient,
        later: Callable[[float, Callable[[], None]], asyncio.TimerHandle],
        *,
        silence_s: float,
    ) -> None:
        """`silence_s` is the longest pause of a stream that its own clocks allow."""
        self._owner = owner
        self._later = later
        self._silence_s = silence_s + _PATIENCE_S
        self._exchange = owner.exchange
        self._over = False
        self._status = 0
        self._headers: Headers = ()
        self._body: list[bytes] = []
        self._body_bytes = 0
        head = owner.exchange.head
        self._timer = later(_PATIENCE_S, self._too_slow)
        self._call: UpstreamCall = peer.start(UpstreamRequest("POST", head.path, _end_to_end(head.headers), b""), self)

    def cancel(self) -> None:
        self._end()
        self._call.cancel()

    def pause(self) -> None:
        self._call.pause()
        self._timer.cancel()

    def resume(self) -> None:
        self._call.resume()
        self._listen()

    # ── ports.CallReceiver ────────────────────────────────────────────────────

    def call_connected(self) -> None: ...

    def response_started(self, status: int, headers: Headers) -> None:
        self._status, self._headers = status, _end_to_end(headers)
        if status == _OK:
            self._listen()
            self._exchange.start(status, self._headers)

    def response_chunk(self, chunk: bytes) -> None:
        if self._status == _OK:
            self._listen()  # before the client gets it: that may ask for a pause
            self._exchange.send(chunk)
            return
        self._body_bytes += len(chunk)
        if self._body_bytes <= _ERROR_BYTES:
            self._body.append(chunk)

    def response_ended(self) -> None:
        self._end()
        if self._status == _OK:
            self._exchange.finish()
        else:
            self._exchange.respond(self._status, self._headers, b"".join(self._body))

    def call_failed(self, failure: CallFailure) -> None:
        del failure  # a local socket fails in one way: the worker at its other end is gone, and its streams with it
        self._end()
        if self._status == _OK:
            self._exchange.abort()
        else:
            self._owner.refuse(StreamNotFound("The gateway process that held this stream has ended. Send the original request again."))

    def _listen(self) -> None:
        """Wait for the next piece of the stream, from now on."""
        self._timer.cancel()
        if not self._over:  # a client may read the rest of an answer after its end
            self._timer = self._later(self._silence_s, self._too_slow)

    def _end(self) -> None:
        self._over = True
        self._timer.cancel()

    def _too_slow(self) -> None:
        self.cancel()
        if self._status == _OK:
            self._exchange.abort()
            return
        self._owner.refuse(Overloaded("The gateway process that holds this stream is busy. Come back for it again.", retry_after_s=1.0))


def _end_to_end(headers: Headers) -> Headers:
    return tuple(header for header in headers if header[0] not in _OF_THIS_CONNECTION)
