"""A client that sends exact bytes, and an application that records what an `HttpServer` tells it.

For tests of the data plane: nothing here repairs or normalises what goes over the wire. Every wait has a deadline.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from tidegate.domain.error_object import encode_error
from tidegate.errors import TidegateError
from tidegate.http.server import HttpServer, ServerLimits
from tidegate.ports import Exchange

PATIENCE_S: Final = 10.0
"""Longest wait for anything; only a failing test waits so long."""

_READ_LIMIT_BYTES: Final = 1 << 26


class RawResponse(msgspec.Struct, frozen=True):
    """One response; `headers` with names in lower case, the last of repeated ones."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes


class RawClient:
    """A connection to a server under test."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, piece: bytes) -> None:
        self.writer.write(piece)

    async def flush(self) -> None:
        """Wait until the kernel has taken all but a little of what was sent."""
        async with asyncio.timeout(PATIENCE_S):
            await self.writer.drain()

    def finish_sending(self) -> None:
        """Send FIN."""
        self.writer.write_eof()

    async def read(self, size: int) -> bytes:
        async with asyncio.timeout(PATIENCE_S):
            return await self.reader.readexactly(size)

    async def read_to_end(self) -> bytes:
        """Give everything up to the server's FIN."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.reader.read()

    async def read_response(self, *, has_body: bool = True) -> RawResponse:
        """Read one response, interim ones (1xx) too; `has_body` False for the answer to HEAD."""
        async with asyncio.timeout(PATIENCE_S):
            head = await self.reader.readuntil(b"\r\n\r\n")
            first, *lines = head[:-4].split(b"\r\n")
            pairs = [line.split(b": ", 1) for line in lines]
            headers = {name.lower(): value for name, value in pairs}
            body = await self._read_body(headers) if has_body else b""
            return RawResponse(int(first.split(b" ")[1]), headers, body)

    async def close(self) -> None:
        self.writer.close()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self.writer.wait_closed()
        except OSError:
            pass  # the server was faster

    def reset(self) -> None:
        """Close so that the server sees a reset or a FIN at once, whatever is unsent."""
        self.writer.transport.abort()

    async def _read_body(self, headers: dict[bytes, bytes]) -> bytes:
        if b"content-length" in headers:
            return await self.reader.readexactly(int(headers[b"content-length"]))
        if headers.get(b"transfer-encoding") != b"chunked":
            return await self.reader.read() if headers.get(b"connection") == b"close" else b""
        pieces = []
        while size := int(await self.reader.readuntil(b"\r\n"), 16):
            pieces.append((await self.reader.readexactly(size + 2))[:-2])
        await self.reader.readexactly(2)
        return b"".join(pieces)


@asynccontextmanager
async def raw_client(port: int, *, ssl_context: ssl.SSLContext | None = None) -> AsyncIterator[RawClient]:
    """Connect to a server on the loopback interface."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=ssl_context, limit=_READ_LIMIT_BYTES)
    client = RawClient(reader, writer)
    try:
        yield client
    finally:
        await client.close()


class RecordedExchange:
    """An `ExchangeReceiver` that keeps what it was told, as words in `events`, and then does what the test scripted."""

    def __init__(self, exchange: Exchange, application: RecordingApplication) -> None:
        self.exchange = exchange
        self.events: list[str] = []
        self.body: bytes | None = None
        self.error: TidegateError | None = None
        self._application = application
        self._told = asyncio.Event()

    def body_received(self, body: bytes) -> None:
        self.body = body
        self._tell("body_received")
        self._application.on_body(self)

    def body_refused(self, error: TidegateError) -> None:
        self.error = error
        self._tell("body_refused")
        self._application.on_refusal(self)

    def client_left(self) -> None:
        self._tell("client_left")

    def write_paused(self) -> None:
        self._tell("write_paused")

    def write_resumed(self) -> None:
        self._tell("write_resumed")

    async def wait_for(self, event: str) -> None:
        """Wait until `event` has been told."""
        async with asyncio.timeout(PATIENCE_S):
            while event not in self.events:
                self._told.clear()
                await self._told.wait()

    def _tell(self, event: str) -> None:
        self.events.append(event)
        self._told.set()


Reaction = Callable[[RecordedExchange], None]


def ask_for_body(recorded: RecordedExchange) -> None:
    recorded.exchange.read_body()


def echo(recorded: RecordedExchange) -> None:
    """Respond with `METHOD path query` and the body, so that the response shows which request it is for."""
    head = recorded.exchange.head
    first = f"{head.method} {head.path} {head.query}\n".encode()
    recorded.exchange.respond(200, ((b"content-type", b"text/plain"),), first + (recorded.body or b""))


def respond_with_refusal(recorded: RecordedExchange) -> None:
    error = recorded.error
    if error is None:
        raise AssertionError("no body was refused")
    recorded.exchange.respond(error.status, ((b"content-type", b"application/json"),), encode_error(error))


def do_nothing(recorded: RecordedExchange) -> None:
    """Leave the exchange to the test."""


class RecordingApplication:
    """An application for `HttpServer`; by default it asks for the body and echoes it."""

    def __init__(self, *, on_head: Reaction = ask_for_body, on_body: Reaction = echo, on_refusal: Reaction = respond_with_refusal) -> None:
        self.exchanges: list[RecordedExchange] = []
        self.on_head = on_head
        self.on_body = on_body
        self.on_refusal = on_refusal
        self._begun = asyncio.Event()

    def __call__(self, exchange: Exchange) -> RecordedExchange:
        recorded = RecordedExchange(exchange, self)
        self.exchanges.append(recorded)
        self._begun.set()
        self.on_head(recorded)
        return recorded

    async def exchange(self, number: int) -> RecordedExchange:
        """Wait for the exchange of that number, from 0."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.exchanges) <= number:
                self._begun.clear()
                await self._begun.wait()
        return self.exchanges[number]


@asynccontextmanager
async def serving(
    application: RecordingApplication, limits: ServerLimits | None = None, *, ssl_context: ssl.SSLContext | None = None
) -> AsyncIterator[HttpServer]:
    """Serve on a free loopback port, and see that nothing is left of it at the end."""
    server = HttpServer(application, limits or ServerLimits())
    await server.start(host="127.0.0.1", ssl_context=ssl_context)
    try:
        yield server
    finally:
        server.abort_all()
        await server.wait_drained(PATIENCE_S)
        left = server.statistics()
        if left.connections or left.exchanges or left.buffered_bytes:
            raise AssertionError(f"something is left of the server: {left}")


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition that no event announces."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if condition():
                return
            await asyncio.sleep(0.002)


async def settled(measure: Callable[[], int], *, at_least: int) -> int:
    """Wait until a measure has reached `at_least` and then stays as it is for a while; give it."""
    await until(lambda: measure() >= at_least)
    async with asyncio.timeout(PATIENCE_S):
        before = measure()
        while True:
            await asyncio.sleep(0.05)
            if before == (before := measure()):
                return before
