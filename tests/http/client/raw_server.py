"""A server that does to each connection exactly what a test's script says, and a receiver that writes down what it hears."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from socket import SO_LINGER, SOL_SOCKET
from typing import TypeVar

import uvloop

from tidegate.domain.units import Headers
from tidegate.http.client import PoolSettings, UpstreamPool
from tidegate.http.resolve import Lookup
from tidegate.ports import CallFailure, UpstreamRequest

DEADLINE_S = 10.0
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"

Outcome = TypeVar("Outcome")


def run(main: Coroutine[object, object, Outcome]) -> Outcome:
    """Run a test's coroutine on the loop of production; it must end in time and leave no task behind."""

    async def bounded() -> Outcome:
        outcome = await asyncio.wait_for(main, 2 * DEADLINE_S)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks left: {left}"
        return outcome

    return uvloop.run(bounded())


class Peer:
    """One connection as the server sees it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def request(self) -> bytes:
        """Read one request, its body included; `b""` when the client closed instead."""
        try:
            head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), DEADLINE_S)
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""
        length = 0
        for line in head.split(b"\r\n"):
            if line.startswith(b"content-length: "):
                length = int(line[16:])
        return head + await asyncio.wait_for(self.reader.readexactly(length), DEADLINE_S)

    async def send(self, piece: bytes) -> None:
        self.writer.write(piece)
        await asyncio.wait_for(self.writer.drain(), DEADLINE_S)

    def reset(self) -> None:
        """Close with a TCP reset."""
        self.writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def client_closed(self) -> None:
        """Wait until the client's close arrives."""
        try:
            while await asyncio.wait_for(self.reader.read(65_536), DEADLINE_S):
                pass
        except ConnectionError:
            return

    async def answer_all(self, answer: bytes = OK) -> None:
        """Answer every request with the same bytes until the client leaves."""
        while await self.request():
            await self.send(answer)


Script = Callable[[Peer, int], Awaitable[None]]
"""Gets a connection and its number, from 0; the connection is closed when it returns."""


class RawServer:
    """Runs a script per connection on a loopback port."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.accepted = 0
        self.failures: list[BaseException] = []

    def base_url(self, scheme: str = "http", host: str = "127.0.0.1") -> str:
        return f"{scheme}://{host}:{self.port}/v1"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        number, self.accepted = self.accepted, self.accepted + 1
        try:
            await self._script(Peer(reader, writer), number)
        except ConnectionError:
            pass
        except (AssertionError, TimeoutError) as problem:
            self.failures.append(problem)
        finally:
            self._tasks.discard(task)
            writer.transport.abort() if writer.transport.is_closing() else writer.close()

    async def stop(self) -> None:
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def raw_server(script: Script, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> AsyncIterator[RawServer]:
    """Serve while the block runs; a failed assertion in a script fails the test."""
    server = RawServer(script)
    listening = await asyncio.start_server(server.serve, host, 0, ssl=tls)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        await server.stop()
        await listening.wait_closed()
    if server.failures:
        raise server.failures[0]


@asynccontextmanager
async def open_pool(
    base_url: str,
    *,
    max_connections: int = 1000,
    max_waiting: int = 1000,
    idle_timeout_s: float = 30.0,
    connect_timeout_s: float = 5.0,
    max_head_bytes: int = 65_536,
    verify_tls: bool = True,
    proxy: str | None = None,
    ssl_context: ssl.SSLContext | None = None,
    lookup: Lookup | None = None,
) -> AsyncIterator[UpstreamPool]:
    """Open a pool for the block, and check that nothing of it is left after."""
    settings = PoolSettings(
        base_url=base_url,
        max_connections=max_connections,
        max_waiting=max_waiting,
        idle_timeout_s=idle_timeout_s,
        connect_timeout_s=connect_timeout_s,
        max_head_bytes=max_head_bytes,
        verify_tls=verify_tls,
        proxy=proxy,
    )
    pool = UpstreamPool(settings, ssl_context=ssl_context, lookup=lookup)
    try:
        yield pool
    finally:
        await pool.aclose()
    counts = pool.statistics()
    assert (counts.open, counts.idle, counts.connecting, counts.waiting) == (0, 0, 0, 0)


class Recorder:
    """Writes down every call as a word or pair; `chunks` apart, because their number is nobody's promise."""

    def __init__(self) -> None:
        self.events: list[object] = []
        self.chunks: list[bytes] = []
        self.headers: Headers = ()
        self.connected = asyncio.Event()
        self.started = asyncio.Event()
        self.chunk_came = asyncio.Event()
        self.over = asyncio.Event()

    def call_connected(self) -> None:
        self.events.append("connected")
        self.connected.set()

    def response_started(self, status: int, headers: Headers) -> None:
        self.events.append(status)
        self.headers = headers
        self.started.set()

    def response_chunk(self, chunk: bytes) -> None:
        assert self.started.is_set()
        self.chunks.append(chunk)
        self.chunk_came.set()

    def response_ended(self) -> None:
        self.events.append("ended")
        self.over.set()

    def call_failed(self, failure: CallFailure) -> None:
        self.events.append(failure)
        self.over.set()

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)

    @property
    def failure(self) -> CallFailure:
        last = self.events[-1]
        assert isinstance(last, CallFailure), self.events
        return last

    async def finished(self) -> Recorder:
        """Wait for the final call, then a moment of the loop, in which a second one would show."""
        await asyncio.wait_for(self.over.wait(), DEADLINE_S)
        await asyncio.sleep(0)
        return self


def get(path: str = "/models", *, method: str = "GET", headers: Headers = ()) -> UpstreamRequest:
    return UpstreamRequest(method=method, path=path, headers=headers, body=b"")


def post(body: bytes = b"{}", *, path: str = "/chat/completions", headers: Headers = ()) -> UpstreamRequest:
    return UpstreamRequest(method="POST", path=path, headers=headers, body=body)


async def call(pool: UpstreamPool, request: UpstreamRequest | None = None) -> Recorder:
    """Make one call and wait for its end."""
    recorder = Recorder()
    pool.start(request or post(), recorder)
    return await recorder.finished()


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, with the usual deadline."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110  the conditions are counters of a pool, which has no event for each
            await asyncio.sleep(0.001)
