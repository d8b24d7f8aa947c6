"""Many clients at once over raw connections: some keep theirs, some leave at any point, and each says what it saw.

One protocol object for each connection and no task switch for each piece, so that one core makes thousands of requests a second. What a
client does is in its question, drawn from a seed by whoever asks: a run can be repeated.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import cast

from tidegate.conformance.expect import Way
from tidegate.conformance.run import PATHS, request_body

PATIENCE_S = 20.0
"""Longer than any sum of clocks in these tests: who waits so long was forgotten."""
_RESET = struct.pack("ii", 1, 0)
_HEAD_END = b"\r\n\r\n"
_LAST_CHUNK = b"\r\n0\r\n\r\n"


@dataclass(frozen=True)
class Leaving:
    """When and how a client goes away before its answer is complete."""

    share_sent: float = 1.0
    """Of the request; below 1 the client leaves within it."""
    after_s: float | None = None
    """Since the request was sent; None: at once."""
    after_bytes: int | None = None
    """Of the response; wins over `after_s`."""
    reset: bool = False


@dataclass(frozen=True)
class Question:
    """One request and what its client does."""

    request_id: str
    way: Way
    model: str
    text: str
    key: str
    keeps_connection: bool = True
    leaving: Leaving | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        body = request_body(self.way, self.model, self.text)
        more = "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())
        if not self.keeps_connection:
            more += "connection: close\r\n"
        return (
            f"POST /v1{PATHS[self.way]} HTTP/1.1\r\nhost: soak\r\nauthorization: Bearer {self.key}\r\nx-request-id: {self.request_id}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n{more}\r\n"
        ).encode() + body


class End(StrEnum):
    """How it ended for the client."""

    COMPLETE = "complete"
    LEFT = "left"
    CUT = "cut"
    """The gateway closed the connection within the response, or instead of one."""
    FORGOTTEN = "forgotten"
    """Nothing came to an end within `PATIENCE_S`."""


@dataclass(frozen=True)
class Seen:
    """What a client saw. `body` is without transfer coding where the response is complete, else empty."""

    question: Question
    end: End
    status: int = 0
    body: bytes = b""
    received_bytes: int = 0


class _Wire(asyncio.Protocol):
    """One connection; one response at a time."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.lost = False
        self._done: asyncio.Future[None] | None = None
        self._leave_at = 0
        self._expected: int | None = None
        """Length of the whole response; -1: chunked; None: its head is not complete."""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name

    def expect(self, leave_at: int) -> asyncio.Future[None]:
        """Begin a response: the future is done when it is complete, lost, or `leave_at` bytes long."""
        self.received = bytearray()
        self._expected = None
        self._leave_at = leave_at
        self._done = asyncio.get_running_loop().create_future()
        if self.lost:
            self._done.set_result(None)
        return self._done

    def data_received(self, data: bytes) -> None:
        self.received += data
        if self.is_complete() or len(self.received) >= self._leave_at:
            self._finish()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc  # how it was lost makes no difference to what was seen
        self.lost = True
        self._finish()

    def is_complete(self) -> bool:
        received = self.received
        if self._expected is None:
            head_end = received.find(_HEAD_END)
            if head_end < 0:
                return False
            head = bytes(received[:head_end]).lower()
            _, found, length = head.partition(b"\r\ncontent-length: ")
            self._expected = head_end + len(_HEAD_END) + int(length.split(b"\r\n")[0]) if found else -1
        return len(received) >= self._expected if self._expected >= 0 else received.endswith(_LAST_CHUNK)

    def _finish(self) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(None)


class Client:
    """One person after the other at one place: keeps its connection where the question says so."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._wire: _Wire | None = None

    async def ask(self, question: Question) -> Seen:
        wire = self._wire
        if wire is None or wire.lost:
            _, wire = await asyncio.get_running_loop().create_connection(_Wire, "127.0.0.1", self._port)
        self._wire = wire
        assert wire.transport is not None
        leaving = question.leaving
        request = question.encode()
        if leaving is not None and leaving.share_sent < 1.0:
            request = request[: int(len(request) * leaving.share_sent)]
        done = wire.expect(leaving.after_bytes if leaving is not None and leaving.after_bytes is not None else 1 << 60)
        wire.transport.write(request)
        patience_s = PATIENCE_S
        if leaving is not None and leaving.after_bytes is None:
            patience_s = leaving.after_s or 0.0
        if patience_s:
            await asyncio.wait((done,), timeout=patience_s)
        else:
            await asyncio.sleep(0)
        return self._end(question, wire)

    def _end(self, question: Question, wire: _Wire) -> Seen:
        """Say what was seen, and close the connection unless it is kept."""
        assert wire.transport is not None
        received = bytes(wire.received)
        if wire.is_complete():
            seen = Seen(question, End.COMPLETE, int(received[9:12]), _body(received), len(received))
            if question.leaving is None and question.keeps_connection and b"\r\nconnection: close" not in received.lower():
                return seen
        elif wire.lost:
            seen = Seen(question, End.CUT, received_bytes=len(received))
        else:
            seen = Seen(question, End.FORGOTTEN if question.leaving is None else End.LEFT, received_bytes=len(received))
        self._wire = None
        if question.leaving is not None and question.leaving.reset and not wire.lost:
            wire.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            wire.transport.abort()
        else:
            wire.transport.close()
        return seen

    def close(self) -> None:
        if self._wire is not None and self._wire.transport is not None:
            self._wire.transport.close()


async def ask_all(port: int, questions: Iterable[Question], *, at_once: int, told: Callable[[Seen], None]) -> None:
    """Ask all questions, `at_once` at a time; `told` hears of each as it ends."""
    waiting = iter(questions)

    async def place() -> None:
        client = Client(port)
        try:
            for question in waiting:
                told(await client.ask(question))
        finally:
            client.close()

    async with asyncio.TaskGroup() as places:
        for _ in range(at_once):
            places.create_task(place())
    await asyncio.sleep(0)  # closed transports tell their protocols in the loop's next turn


def some_leaving(chance: random.Random) -> Leaving:
    """Draw a point at which a client leaves: within its request, right after it, after a while, after some of the response."""
    reset = chance.random() < 0.5
    match chance.randrange(5):
        case 0:
            return Leaving(share_sent=chance.random() * 0.999, after_s=chance.choice((None, 0.005)), reset=reset)
        case 1:
            return Leaving(reset=reset)
        case 2:
            return Leaving(after_s=chance.uniform(0.0005, 0.03), reset=reset)
        case _:
            return Leaving(after_bytes=chance.randrange(1, 3000), reset=reset)


def _body(response: bytes) -> bytes:
    head, _, rest = response.partition(_HEAD_END)
    if b"\r\ntransfer-encoding: chunked" not in head.lower():
        return rest
    pieces: list[bytes] = []
    at = 0
    while True:
        line_end = rest.index(b"\r\n", at)
        size = int(rest[at:line_end], 16)
        if size == 0:
            return b"".join(pieces)
        begin = line_end + 2
        pieces.append(rest[begin : begin + size])
        at = begin + size + 2
