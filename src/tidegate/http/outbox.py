"""Holds what the connections of one loop write during a turn, and sends it at the turn's end, or when it is much.

A write to a peer that sleeps costs several times one to a peer that is awake: the kernel interrupts its core. So reads come first and the
writes after them, all together: the first wakes the peer, and the others find it awake. But not more of them than the processor's caches
hold: what was read long before its write has to be fetched from memory again.

Invariants: what is held goes out in the order in which it was added, in the loop's next turn at the latest; a `flush` is never called from
inside a call to an application or a receiver, but for that of a `Sender` itself which cannot wait.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from typing import Final

from tidegate.http.framing import Chunks

FULL: Final = 64
"""Connections with something to send at which the end of a read sends all."""


class Sender:
    """A connection with bytes to send. A plain class, so that compiled code calls it directly."""

    __slots__ = ()

    @abstractmethod
    def flush(self) -> None:
        """Send what is held, if anything still is."""


class Outbox:
    """The connections that have something to send, of a server and of the pools behind it. Belongs to one loop."""

    __slots__ = ("_loop", "_waiting", "chunks")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.chunks = Chunks()
        """One for the whole loop: what comes in as a chunk at one connection mostly goes out as the same at another."""
        self._waiting: list[Sender] = []

    def add(self, sender: Sender) -> None:
        """Call `flush` of this connection soon; once for each `add`."""
        self._waiting.append(sender)
        if len(self._waiting) == 1:
            self._loop.call_soon(self.flush)

    def flush_if_full(self) -> None:
        """Send everything if it is much; for the end of a read."""
        if len(self._waiting) >= FULL:
            self.flush()

    def flush(self) -> None:
        """Send everything."""
        waiting = self._waiting
        if waiting:
            self._waiting = []
            for sender in waiting:
                try:
                    sender.flush()
                except Exception as fault:  # noqa: BLE001  outermost frame: the fault of one must not keep back what the others send
                    self._loop.call_exception_handler({"message": "sending to a connection failed unforeseen", "exception": fault})
