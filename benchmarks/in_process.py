"""What the code of a request or a chunk costs, with nothing around it: `python -m benchmarks.in_process [--requests N]`.

One process, no sockets: a worker as a user runs it (keys, limits, records, metrics, log lines) between transports that answer at once,
64 connections taking turns. The figure is µs of the process's CPU, its recorder's thread included: the least of some rounds, which is
steady where other programs run too. For finding out what a change does; `benchmarks.run` says what a user gets. With
`PYTHONPATH=build/compiled` it measures the compiled form; under `valgrind --tool=callgrind` it counts instructions.

`--lone KB` is the other extreme: one request at a time, and before each of its two reads so much other memory is read, as if other
programs had been there. 0 leaves the caches as they are, 3,000 empties those of a core, 30,000 those that cores share.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import uvloop

from benchmarks.content import MODEL, PATH, Body, answer, chat_body
from tidegate.adapters.keys.store import KeyStore
from tidegate.adapters.wall_clock import wall_clock
from tidegate.cli.configured import effective
from tidegate.domain.principal import Limits
from tidegate.http.server_connection import ServerConnection
from tidegate.http.server_limits import ServerLimits
from tidegate.http.server_state import ServerState
from tidegate.node.worker import COLLECT_EVERY, SWITCH_INTERVAL_S
from tidegate.wiring.worker import KEYS_FILE, LiveWorker, open_worker

CONNECTIONS = 64
CHUNKS = 100
"""Of each stream."""
_CEILING = 2_000_000_000
_CONFIGURATION = """
local_engine: {enabled: false}
analytics: {enabled: false}
upstreams:
  bench: {dialect: vllm, base_url: "http://127.0.0.1:9/v1", models: ["bench-*"], tokenizer: qwen3.6, health: {enabled: false}}
"""
_WHOLE = (
    b"HTTP/1.1 200 OK\r\nServer: bench\r\nDate: Mon, 30 Nov 2026 12:00:00 GMT\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\nConnection: keep-alive\r\n\r\n%b" % (len(answer()), answer())
)
_STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_COMMON = b'"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1700000000,"model":"' + MODEL.encode() + b'"'


def _event(rest: bytes) -> bytes:
    event = b"data: {%b,%b}\n\n" % (_COMMON, rest)
    return b"%x\r\n%b\r\n" % (len(event), event)


_CHUNK = _event(b'"choices":[{"index":0,"delta":{"content":"1234.567890 "},"finish_reason":null}]')
_STREAM_END = (
    _event(b'"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]')
    + _event(b'"choices":[],"usage":{"prompt_tokens":480,"completion_tokens":100,"total_tokens":580}')
    + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
)


class _Receiving(Protocol):
    """What both kinds of connections are to their transport."""

    def data_received(self, data: bytes) -> None: ...


class _Transport:
    """A socket that takes everything at once."""

    def __init__(self, written: Callable[[bytes], None]) -> None:
        self._written = written

    def write(self, data: bytes) -> None:
        self._written(data)

    def writelines(self, pieces: tuple[bytes, ...]) -> None:
        self._written(b"".join(pieces))

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else None

    def set_write_buffer_limits(self, high: int, low: int) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


class _Load:
    """Sends requests on all connections, the next of each when the last was answered; and is the upstream."""

    connections = CONNECTIONS

    def __init__(self, worker: LiveWorker, head: bytes, body: Body, *, stream: bool) -> None:
        self._loop = asyncio.get_running_loop()
        self._before, self._after = head + body.before, body.after
        self._stream = stream
        self._sent = 0
        self._left = 0
        self._done = asyncio.Event()
        self._waiting: list[tuple[_Receiving, int]] = []
        self._ticking = False
        state = ServerState(worker.application, ServerLimits(), self._loop, worker.outbox)
        self._clients = [self._client(ServerConnection(state)) for _ in range(self.connections)]
        assert worker._active is not None  # noqa: SLF001  the pools have no other door, and dialling needs sockets
        for pool in worker._active.pools.values():  # noqa: SLF001
            pool._dialer = self  # type: ignore[assignment]  # noqa: SLF001

    async def dial(self, connection: Any) -> None:
        connection.connection_made(_Transport(lambda _: self._asked(connection)))

    def _client(self, connection: ServerConnection) -> ServerConnection:
        connection.connection_made(_Transport(lambda data: self._answered(connection, data)))  # type: ignore[arg-type]
        return connection

    def _asked(self, connection: _Receiving) -> None:
        self._loop.call_soon(self._begin_answer, connection)

    def _begin_answer(self, connection: _Receiving) -> None:
        if not self._stream:
            connection.data_received(_WHOLE)
            return
        connection.data_received(_STREAM_HEAD + _CHUNK)
        self._waiting.append((connection, CHUNKS - 1))
        if not self._ticking:
            self._ticking = True
            self._loop.call_soon(self._tick)

    def _tick(self) -> None:
        """Send each stream a chunk, as an engine does at the end of a step."""
        streams, self._waiting = self._waiting, []
        for connection, left in streams:
            if left:
                connection.data_received(_CHUNK)
                self._waiting.append((connection, left - 1))
            else:
                connection.data_received(_STREAM_END)
        self._ticking = bool(self._waiting)
        if self._ticking:
            self._loop.call_soon(self._tick)

    def _answered(self, connection: ServerConnection, data: bytes) -> None:
        if self._stream:
            assert data.startswith(b"HTTP/1.1 200 ") or data.find(b"HTTP/1.1") < 0, data  # `in` costs ten times as much
            if not data.endswith(b"0\r\n\r\n"):
                return
        else:
            assert data.startswith(b"HTTP/1.1 200 "), data
        self._left -= 1
        if self._left >= self.connections:
            self._loop.call_soon(self._ask, connection)
        elif self._left == 0:
            self._done.set()

    def _ask(self, connection: ServerConnection) -> None:
        self._sent += 1
        connection.data_received(b"%b%010d%b" % (self._before, self._sent, self._after))

    async def run(self, requests: int) -> float:
        """Give the µs of CPU that a request took."""
        self._left = requests
        self._done.clear()
        began = time.process_time()
        for connection in self._clients:
            self._loop.call_soon(self._ask, connection)
        await self._done.wait()
        return (time.process_time() - began) / requests * 1e6


class _Lone(_Load):
    """One request at a time on one connection, each of its two reads after others had the caches."""

    connections = 1

    def __init__(self, worker: LiveWorker, head: bytes, body: Body, *, others: bytearray) -> None:
        super().__init__(worker, head, body, stream=False)
        self._others = others
        self._spent: list[int] = []
        self._ns = 0

    async def run(self, requests: int) -> float:
        """Give the µs that a request held the loop, in the middle of all."""
        self._spent.clear()
        await super().run(requests)
        return statistics.median(self._spent) / 1e3

    def _ask(self, connection: ServerConnection) -> None:
        self._sent += 1
        self._ns = self._read(connection, b"%b%010d%b" % (self._before, self._sent, self._after))

    def _begin_answer(self, connection: _Receiving) -> None:
        self._spent.append(self._ns + self._read(connection, _WHOLE))

    def _read(self, connection: _Receiving, data: bytes) -> int:
        self._others.count(1)  # reads it all
        began = time.perf_counter_ns()
        connection.data_received(data)
        return time.perf_counter_ns() - began


async def _measure(rounds: int, requests: int, *, stream: bool, lone_kb: int | None) -> list[float]:
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as name:
        state = Path(name)
        store = KeyStore(state / KEYS_FILE)
        limits = Limits(tokens_per_minute=_CEILING, requests_per_minute=_CEILING, concurrency=_CEILING)
        key = store.create(name="bench", tenant="bench", user="bench", now=wall_clock(), limits=limits, models=("*",)).token
        store.close()
        file = state / "tidegate.yaml"
        file.write_text(_CONFIGURATION)
        worker = await open_worker(effective(file), index=0, workers=1, state_directory=state, engine=None, counter_socket=None)
        body = chat_body(stream=stream)
        head = (
            f"POST {PATH} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\nauthorization: Bearer {key.reveal()}\r\n"
            f"content-length: {body.size}\r\n\r\n"
        ).encode()
        load = _Load(worker, head, body, stream=stream) if lone_kb is None else _Lone(worker, head, body, others=bytearray(lone_kb * 1000))
        await load.run(requests)
        gc.collect()
        gc.freeze()
        figures = [await load.run(requests) for _ in range(rounds)]
        await worker.aclose()
        return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--requests", type=int, default=2000, help="of a round; of streams a twentieth of them")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--stream", action="store_true", help="streams of 100 chunks; the figure is µs a chunk")
    kind.add_argument("--lone", type=int, metavar="KB", help="one request at a time, KB of other memory read before each of its reads")
    options = parser.parse_args()
    gc.set_threshold(COLLECT_EVERY)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    requests = max(2 * CONNECTIONS, options.requests // 20) if options.stream else options.requests
    said = os.dup(2)
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 2)  # the log lines; as in use, written and nobody's concern
    try:
        figures = uvloop.run(_measure(options.rounds, requests, stream=options.stream, lone_kb=options.lone))
    finally:
        os.dup2(said, 2)  # so that a failure is seen
    each = [figure / CHUNKS for figure in figures] if options.stream else figures
    print(f"{min(each):.2f} µs at least, {statistics.median(each):.2f} in the middle of {options.rounds} rounds")
    return 0


if __name__ == "__main__":
    sys.exit(main())
