"""Pass a request on to the worker that holds what it asks for, and its answer back, byte for byte.

Used for a client that returns for its stream and reaches another worker than the one it left. Each worker serves the same application on
a socket of its own, which only this user's processes can reach; the request is authenticated there once more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from tidegate.domain.units import Headers
from tidegate.errors import Overloaded, StreamNotFound, TidegateError
from tidegate.ports import CallFailure, Exchange, UpstreamCall, UpstreamClient, UpstreamRequest

_HEAD_DEADLINE_S: Final = 10.0
"""Until the other worker's status line: it answers from memory, or verifies a token first."""

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

    __slots__ = ("_body", "_body_bytes", "_call", "_exchange", "_headers", "_owner", "_status", "_timer")

    def __init__(self, owner: RelayOwner, peer: UpstreamClient, later: Callable[[float, Callable[[], None]], asyncio.TimerHandle]) -> None:
        self._owner = owner
        self._exchange = owner.exchange
        self._status = 0
        self._headers: Headers = ()
        self._body: list[bytes] = []
        self._body_bytes = 0
        head = owner.exchange.head
        self._timer = later(_HEAD_DEADLINE_S, self._too_slow)
        self._call: UpstreamCall = peer.start(UpstreamRequest("POST", head.path, _end_to_end(head.headers), b""), self)

    def cancel(self) -> None:
        self._timer.cancel()
        self._call.cancel()

    def pause(self) -> None:
        self._call.pause()

    def resume(self) -> None:
        self._call.resume()

    # ── ports.CallReceiver ────────────────────────────────────────────────────

    def call_connected(self) -> None: ...

    def response_started(self, status: int, headers: Headers) -> None:
        self._timer.cancel()
        self._status, self._headers = status, _end_to_end(headers)
        if status == _OK:
            self._exchange.start(status, self._headers)

    def response_chunk(self, chunk: bytes) -> None:
        if self._status == _OK:
            self._exchange.send(chunk)
            return
        self._body_bytes += len(chunk)
        if self._body_bytes <= _ERROR_BYTES:
            self._body.append(chunk)

    def response_ended(self) -> None:
        if self._status == _OK:
            self._exchange.finish()
        else:
            self._exchange.respond(self._status, self._headers, b"".join(self._body))

    def call_failed(self, failure: CallFailure) -> None:
        del failure  # a local socket fails in one way: the worker at its other end is gone, and its streams with it
        self._timer.cancel()
        if self._status == _OK:
            self._exchange.abort()
        else:
            self._owner.refuse(StreamNotFound("The gateway process that held this stream has ended. Send the original request again."))

    def _too_slow(self) -> None:
        self._call.cancel()
        self._owner.refuse(Overloaded("The gateway process that holds this stream is busy. Come back for it again.", retry_after_s=1.0))


def _end_to_end(headers: Headers) -> Headers:
    return tuple(header for header in headers if header[0] not in _OF_THIS_CONNECTION)
