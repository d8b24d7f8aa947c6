"""One request on its way to an upstream, as its caller holds it.

Invariant: the receiver gets exactly one final call, and none after `cancel`: whatever ends a call first swaps the receiver for `SILENCE`.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from tidegate.domain.units import Headers
from tidegate.ports import CallFailure, CallReceiver


class Carrier(Protocol):
    """The connection that carries a call."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def close(self) -> None: ...


class CallOwner(Protocol):
    """What a call needs of its pool."""

    label: str

    def withdraw(self, call: Call) -> None:
        """Forget a cancelled call that has no connection yet."""


class Silence:
    """The receiver of a call that is over: hears everything, does nothing."""

    __slots__ = ()

    def call_connected(self) -> None: ...
    def response_started(self, status: int, headers: Headers) -> None: ...
    def response_chunk(self, chunk: bytes) -> None: ...
    def response_ended(self) -> None: ...
    def call_failed(self, failure: CallFailure) -> None: ...


SILENCE = Silence()


class Call:
    """One request on its way; satisfies `ports.UpstreamCall`."""

    __slots__ = ("announced", "body", "connection", "dial", "ended", "head", "is_head", "paused", "pool", "receiver")

    def __init__(self, pool: CallOwner, receiver: CallReceiver, head: bytes, body: bytes, *, is_head: bool) -> None:
        self.pool = pool
        self.receiver = receiver
        self.head = head
        self.body = body
        """Sent after `head`, separately; empty when the head holds a small body already."""
        self.is_head = is_head
        self.connection: Carrier | None = None
        self.dial: asyncio.Task[CallFailure | None] | None = None
        """The dial that is for this call alone."""
        self.announced = False
        self.ended = False
        self.paused = False

    def cancel(self) -> None:
        if self.ended:
            return
        self.ended = True
        self.receiver = SILENCE
        if self.connection is None:
            self.pool.withdraw(self)
        else:
            self.connection.close()

    def pause(self) -> None:
        self.paused = True
        if self.connection is not None:
            self.connection.pause()

    def resume(self) -> None:
        self.paused = False
        if self.connection is not None:
            self.connection.resume()

    def fail(self, failure: CallFailure) -> None:
        """End the call without a complete answer, unless it is over already."""
        if self.ended:
            return
        self.ended = True
        receiver, self.receiver = self.receiver, SILENCE
        receiver.call_failed(failure)

    def __repr__(self) -> str:
        state = "ended" if self.ended else "waiting" if self.connection is None else "running"
        return f"<Call to {self.pool.label}: {state}>"
