"""Holds what the connections of one loop write during a turn, and sends it at the turn's end, or when it is much.

A write to a peer that sleeps costs several times one to a peer that is awake: the kernel interrupts its core. So reads come first and the
writes after them, all together: the first wakes the peer, and the others find it awake. But not more of them than the processor's caches
hold: what was read long before its write has to be fetched from memory again. Where a turn has next to nothing to send, its end costs
more than it spares: then a read sends at its own end, and now and then a turn is looked at again.

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
QUIET: Final = 2
"""A turn with so many connections that have something to send, or fewer, is quiet."""
READS_AT_ONCE: Final = 32
"""After a quiet turn so many reads send at their own end, before a turn is looked at again: one in 32 costs nothing."""


class Sender:
    """A connection with bytes to send. A plain class, so that compiled code calls it directly."""

    __slots__ = ()

    @abstractmethod
    def flush(self) -> None:
        """Send what is held, if anything still is."""


class Outbox:
    """The connections that have something to send, of a server and of the pools behind it. Belongs to one loop."""

    __slots__ = ("_added", "_is_due", "_loop", "_reading", "_reads_at_once", "_waiting", "chunks")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.chunks = Chunks()
        """One for the whole loop: what comes in as a chunk at one connection mostly goes out as the same at another."""
        self._waiting: list[Sender] = []
        self._added = 0
        """In the turn that is looked at."""
        self._is_due = False
        """The turn's end sends."""
        self._reading = False
        self._reads_at_once = 0

    def add(self, sender: Sender) -> None:
        """Call `flush` of this connection soon; once for each `add`."""
        self._waiting.append(sender)
        self._added += 1
        if not self._is_due and not (self._reading and self._reads_at_once):
            self._is_due = True
            self._loop.call_soon(self._end_turn)

    def begin_read(self) -> None:
        """A connection takes what was read; `end_read` follows in any case."""
        self._reading = True

    def end_read(self) -> None:
        """Send everything if it is much, or if turns are quiet."""
        self._reading = False
        if self._waiting:
            if self._reads_at_once:
                self._reads_at_once -= 1
                self._added = 0
                self.flush()
            elif len(self._waiting) >= FULL:
                self.flush()

    def _end_turn(self) -> None:
        self._reads_at_once = READS_AT_ONCE if self._added <= QUIET else 0
        self._added = 0
        self._is_due = False
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
