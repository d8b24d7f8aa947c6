"""The socket half of a server connection: deadlines, back-pressure, and the ways to close.

Ways to close: `_close` sends what is unsent and closes; `_linger` sends it, ends the sending direction, and throws away what the
client still sends, so that it sees the response and not a reset; `_drop` closes at once.

Invariants. A client that stops reading has a deadline whatever else goes on. Lingering is bounded in time and amount. Nothing is
written after `_linger`, `_close` or `_drop`, which send what is held first. One deadline is in force at a time: the slow reader's if there
is one, else the phase's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum, auto
from typing import Final, cast

from tidegate.http.deadlines import NEVER, TICK_S
from tidegate.http.outbox import Sender
from tidegate.http.server_state import ServerState

WRITE_HIGH_WATER_BYTES: Final = 65_536
WRITE_LOW_WATER_BYTES: Final = 16_384
"""Unsent bytes at which `write_paused` and `write_resumed` are called; the kernel holds some more."""

HELD_BYTES: Final = 16_384
"""The most that is held for the end of a turn: joining pieces up to here costs less than a write for each."""

MIN_PROGRESS_BYTES: Final = 16_384
"""A client that takes less than this in `send_timeout_s` has stopped reading."""

LARGE_READ_BYTES: Final = 65_536
"""Behind a read that fills its buffer the loop reads again, up to 32 times, before anyone else has a turn. uvloop's buffer has 256 000
bytes, and within TLS less of it arrives: no read of that size or near it may pass for a small one."""

LINGER_PAUSE_S: Final = 2.0
LINGER_TOTAL_S: Final = 30.0
LINGER_BYTES: Final = 1 << 30
"""How long, and how much of, a refused request is read and thrown away; 256 MiB cost some 0.1 s of one core. A client that looks for a
response only when it has sent everything sees it within these bounds; giving up earlier would reset the connection under it."""


class ConnectionPhase(Enum):
    IDLE = auto()
    """Between requests, or within a head."""
    WAITING = auto()
    """The body is incomplete, and not asked for or refused."""
    BODY = auto()
    """The body is being collected."""
    RUNNING = auto()
    """The body is complete, the response is not."""
    LINGERING = auto()
    """The response is written; what the client still sends is thrown away."""
    CLOSING = auto()
    """Only unsent bytes remain."""


class ServerSocket(Sender, asyncio.Protocol):
    """Base of `ServerConnection`. Attributes without underscore are for `ServerExchange`, `HttpServer` and `Deadlines`."""

    __slots__ = (
        "_client_finished",
        "_held_output",
        "_limit_at",
        "_linger_bytes",
        "_outbox",
        "_phase",
        "_phase_deadline",
        "_read_paused",
        "_send",
        "_transport",
        "_unsent",
        "_write_paused",
        "chunks",
        "deadline",
        "state",
        "wake_at",
    )

    _transport: asyncio.Transport
    _send: Callable[[bytes], None]
    """The transport's `write`, kept: to find it for each piece costs as much as some of what it does."""

    def __init__(self, state: ServerState) -> None:
        # Compiled, attributes lie in this order; those that each piece needs come first, so that they share a line of the cache.
        self._held_output = b""
        """Written and not sent yet: for the end of the turn."""
        self._outbox = state.outbox
        self.chunks = self._outbox.chunks
        self.state = state
        self.deadline = NEVER
        self.wake_at = NEVER
        self._phase = ConnectionPhase.IDLE
        self._phase_deadline = NEVER
        self._limit_at = NEVER
        """When the body must be complete, or the lingering over, whatever the pace."""
        self._linger_bytes = LINGER_BYTES
        self._unsent = 0
        """Unsent bytes when the slow reader's deadline was set."""
        self._client_finished = False
        """The client has closed its sending direction and still gets its response."""
        self._read_paused = False
        self._write_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._send = self._transport.write
        self._transport.set_write_buffer_limits(WRITE_HIGH_WATER_BYTES, WRITE_LOW_WATER_BYTES)

    def write(self, data: bytes) -> None:
        """Send this at the end of the turn, or at once where it is much."""
        held = self._held_output
        if len(held) + len(data) > HELD_BYTES:
            self.flush()
            self._send(data)
        elif held:
            self._held_output = held + data
        else:
            self._held_output = data
            self._outbox.add(self)

    def flush(self) -> None:
        """Send what is held."""
        held = self._held_output
        if held:
            self._held_output = b""
            self._send(held)

    def pause_writing(self) -> None:
        self._write_paused = True
        if self._phase is not ConnectionPhase.CLOSING:
            self._await_reader()

    def resume_writing(self) -> None:
        self._write_paused = False
        if self._phase is not ConnectionPhase.CLOSING:
            self._watch(self._phase_deadline)

    def expire(self, now: float) -> None:
        """Act on the deadline, which is past: see to a slow reader, or end the phase."""
        unsent = self._transport.get_write_buffer_size()
        if unsent and (self._write_paused or self._phase is ConnectionPhase.CLOSING or self._phase is ConnectionPhase.LINGERING):
            if self._unsent - unsent >= MIN_PROGRESS_BYTES:
                self._unsent = unsent
                self._watch(now + self.state.limits.send_timeout_s)
            else:
                self.state.slow_readers += 1
                self._leave()
        elif self._write_paused:
            self._watch(self._phase_deadline)
        else:
            self._end_phase()

    # ── for the request half ──────────────────────────────────────────────────

    def _end_phase(self) -> None:
        """Do what the phase's deadline is for; here for the two phases that follow the last response."""
        self._drop()

    def _leave(self) -> None:
        """Close at once because the client is gone or counts as gone."""
        self._drop()

    def _set_deadline(self, at: float) -> None:
        """Set the phase's deadline; it waits while a slow reader's is in force."""
        self._phase_deadline = at
        if not self._write_paused:
            self._watch(at)

    def _watch(self, at: float) -> None:
        self.deadline = at
        if at + TICK_S < self.wake_at:
            self.state.deadlines.watch(self)

    def _await_reader(self) -> None:
        self._unsent = self._transport.get_write_buffer_size()
        self._watch(self.state.loop.time() + self.state.limits.send_timeout_s)

    def _pause_reading(self) -> None:
        if not self._read_paused:
            self._read_paused = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._read_paused and not self._client_finished:
            self._read_paused = False
            self._transport.resume_reading()

    def _rest_for_a_turn(self) -> None:
        """Let the loop see to the others before more is read from a client that sends much."""
        if not self._read_paused and not self._transport.is_closing():
            self._transport.pause_reading()
            self.state.loop.call_soon(self._begin_turn)

    def _begin_turn(self) -> None:
        if not self._read_paused and not self._transport.is_closing():
            self._transport.resume_reading()

    def _close(self) -> None:
        """Close when everything is sent."""
        self._phase = ConnectionPhase.CLOSING
        self.flush()
        self._transport.close()
        if self._transport.get_write_buffer_size():
            self._await_reader()

    def _linger(self) -> None:
        """Send what is unsent, then FIN; throw away what comes until the client closes too."""
        if self._client_finished or self._transport.is_closing():
            self._close()
            return
        self.flush()
        self._phase = ConnectionPhase.LINGERING
        now = self.state.loop.time()
        self._limit_at = now + LINGER_TOTAL_S
        self._phase_deadline = now + LINGER_PAUSE_S
        if self._transport.get_write_buffer_size() > WRITE_LOW_WATER_BYTES:
            self._await_reader()
        else:
            self._watch(self._phase_deadline)
        if self._transport.can_write_eof():
            self._transport.write_eof()  # not possible within TLS, where `connection: close` must be enough
        self._resume_reading()

    def _throw_away(self, amount: int) -> None:
        self._linger_bytes -= amount
        if self._linger_bytes < 0:
            self._drop()
        else:
            self._set_deadline(min(self.state.loop.time() + LINGER_PAUSE_S, self._limit_at))

    def _drop(self) -> None:
        self._phase = ConnectionPhase.CLOSING
        self.flush()
        self._transport.abort()


def peer_name(address: object) -> str:
    """Give `host:port`, an IPv6 host in brackets; empty for a socket without such an address."""
    match address:
        case (str(host), int(port), *_):
            return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        case _:
            return ""
