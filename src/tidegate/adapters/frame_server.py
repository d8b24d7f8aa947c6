"""Serves frames on a Unix socket, and reads each connection to its end, whatever becomes of the answers.

What a client sent before it was killed lies in the kernel: it is read and served although nobody takes the answers any more. That is why
this does not stand on asyncio's transports, which close a connection, and forget what was not read, when a write to it fails.

Invariants: at most `MAX_SERVING` frames of a connection are served at once, the rest waits in the socket; a frame whose service fails is
not answered and ends the answers of its connection, so that the client comes back and sends again what it has no answer to.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from tidegate.adapters.frames import answer, take_questions

Serve = Callable[[bytes], Awaitable[bytes]]

MAX_SERVING: Final = 1_024
"""Frames of one connection that wait for their answers: what some clients send while a disk writes once."""
MAX_UNSENT_BYTES: Final = 8_388_608
"""Answers that a client does not take; over it, it hangs, and gets no more."""

_READ_BYTES: Final = 262_144
_LOG = logging.getLogger("tidegate.node")


class FrameServer:
    """Accepts on a listening socket from its making until `close`. `serves` has one function for each kind of frame."""

    def __init__(self, listener: socket.socket, serves: Mapping[str, Serve]) -> None:
        listener.setblocking(False)
        listener.listen()
        self._listener = listener
        self._serves = serves
        self._loop = asyncio.get_running_loop()
        self._connections: set[_Connection] = set()
        self._loop.add_reader(listener, self._accept)

    def __repr__(self) -> str:
        return f"FrameServer(connections={len(self._connections)})"

    def close(self) -> None:
        """Accept no more, and end every connection; what was read is still served, but not answered."""
        self._loop.remove_reader(self._listener)
        self._listener.close()
        for connection in tuple(self._connections):
            connection.close()

    def _accept(self) -> None:
        try:
            link, _ = self._listener.accept()
        except OSError:
            return  # whoever called has left already, or there is no descriptor for it at this moment
        self._connections.add(_Connection(self._loop, link, self._serves, self._connections.discard))


class _Connection:
    def __init__(
        self, loop: asyncio.AbstractEventLoop, link: socket.socket, serves: Mapping[str, Serve], on_end: Callable[[_Connection], None]
    ) -> None:
        link.setblocking(False)
        self._loop = loop
        self._link = link
        self._serves = serves
        self._on_end = on_end
        self._received = bytearray()
        self._unsent = bytearray()
        self._tasks: set[asyncio.Task[None]] = set()
        self._reading = False
        self._answering = True
        self._blocked = False
        """The client's side of the socket has no room."""
        self._closed = False
        self._read_on()

    def close(self) -> None:
        if self._closed:
            return
        self._stop_answering()
        self._closed = True
        self._loop.remove_reader(self._link)
        self._link.close()
        self._on_end(self)

    # ── in ────────────────────────────────────────────────────────────────────

    def _read_on(self) -> None:
        if not self._reading and not self._closed and len(self._tasks) < MAX_SERVING:
            self._reading = True
            self._loop.add_reader(self._link, self._read)

    def _read(self) -> None:
        try:
            received = self._link.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            received = b""  # the client died; the kernel has given everything before it says so
        if not received:
            self.close()
            return
        self._received += received
        try:
            self._take_frames()
        except (ValueError, LookupError) as error:
            _LOG.error("node.frame_unreadable %r; the connection is closed", error)
            self.close()
        if len(self._tasks) >= MAX_SERVING and not self._closed:
            self._reading = False
            self._loop.remove_reader(self._link)

    def _take_frames(self) -> None:
        """Serve the whole frames out of what was received."""
        for kind, number, payload in take_questions(self._received):
            task = self._loop.create_task(self._serve(self._serves[kind], number, payload), name=f"frame {kind}")
            self._tasks.add(task)
            task.add_done_callback(self._served)

    async def _serve(self, serve: Serve, number: int, payload: bytes) -> None:
        self._send(answer(number, await serve(payload)))

    def _served(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or task.exception() is not None:
            if not task.cancelled():
                _LOG.error("node.frame_failed %s %r; its client sends it again", task.get_name(), task.exception())
            self._stop_answering()
        self._read_on()

    # ── out ───────────────────────────────────────────────────────────────────

    def _send(self, frame: bytes) -> None:
        """Send it with the other answers of this turn: after a commit there are many."""
        if not self._answering:
            return
        if not self._unsent:
            self._loop.call_soon(self._write)
        self._unsent += frame
        if len(self._unsent) > MAX_UNSENT_BYTES:
            self._stop_answering()

    def _write(self) -> None:
        if not self._unsent:
            return
        try:
            sent = self._link.send(self._unsent)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._stop_answering()
            return
        del self._unsent[:sent]
        if self._unsent and not self._blocked:
            self._loop.add_writer(self._link, self._write)
        elif self._blocked and not self._unsent:
            self._loop.remove_writer(self._link)
        self._blocked = bool(self._unsent)

    def _stop_answering(self) -> None:
        """Say nothing more, so that a client that lives sees the end and comes back; what it sent is read on to its end."""
        if not self._answering:
            return
        self._answering = False
        self._loop.remove_writer(self._link)
        self._unsent.clear()
        try:
            self._link.shutdown(socket.SHUT_WR)
        except OSError:
            return  # there is nobody to see it
