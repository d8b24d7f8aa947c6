"""An upstream that streams: it sends a chunk to every open stream at each tick, as an engine does at the end of each step.

Task: `{"tick_s": 0.02, "phases": 1}`. Answers with `{"port": …}` and serves until its standard input ends. With more phases, each stream
still gets a chunk every `tick_s`, but not all at once: they take turns, as those of so many engines would. Each chunk tells when it was
written (`CLOCK_MONOTONIC`, which all processes of a machine share), so that a client can say how long it was on its way. The first chunk of
a stream comes with its head, the last is followed by the usage and `[DONE]`. A request that wants no stream gets the whole answer at once;
GET gets 200, for health checks.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from typing import cast

import uvloop

from benchmarks.content import CHUNKS_END, MODEL, NUMBER_AFTER, answer

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_HEALTHY = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
_PLAIN = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(answer()), answer())
_NUMBER = re.compile(NUMBER_AFTER.encode() + rb"(\d{10})")
_STREAM = re.compile(rb'"stream": ?true')
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CHUNKED_END = b"0\r\n\r\n"
_COMMON = b'"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1700000000,"model":"' + MODEL.encode() + b'"'
MAX_REQUEST_BYTES = 1_000_000
"""Far above any request of ours; a gateway that sends more is broken, and is cut."""


def _framed(payload: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(payload), payload)


def _chunk(now: float) -> bytes:
    return _framed(b'data: {%b,"choices":[{"index":0,"delta":{"content":"%017.6f "},"finish_reason":null}]}\n\n' % (_COMMON, now))


_LAST = _framed(
    b'data: {%b,"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n' % _COMMON
    + b'data: {%b,"choices":[],"usage":{"prompt_tokens":480,"completion_tokens":100,"total_tokens":580}}\n\n' % _COMMON
    + b"data: [DONE]\n\n"
)
_END = _LAST + _CHUNKED_END


class Ticker:
    """The open streams, and the clock they share."""

    def __init__(self, tick_s: float, phases: int) -> None:
        self._step_s = tick_s / phases
        self._turns: list[set[Connection]] = [set() for _ in range(phases)]

    def add(self, connection: Connection) -> None:
        """Let it have a turn, where the fewest are."""
        min(self._turns, key=len).add(connection)

    def discard(self, connection: Connection) -> None:
        for turn in self._turns:
            turn.discard(connection)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            for turn in self._turns:
                due += self._step_s
                await asyncio.sleep(max(0.0, due - loop.time()))
                chunk = _chunk(time.monotonic())
                for connection in list(turn):
                    connection.send(chunk)


class Connection(asyncio.Protocol):
    """One connection of a gateway; it sends one request at a time."""

    def __init__(self, ticker: Ticker) -> None:
        self._ticker = ticker
        self._received = b""
        self._left = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop has classes of its own

    def data_received(self, chunk: bytes) -> None:
        self._received += chunk
        end = self._received.find(b"\r\n\r\n")
        if end < 0 or not self._complete(end):
            if len(self._received) > MAX_REQUEST_BYTES:
                self._transport.abort()
            return
        request, self._received = self._received, b""
        if not request.startswith(b"POST"):
            self._transport.write(_HEALTHY)
            return
        if _STREAM.search(request) is None:
            self._transport.write(_PLAIN)
            return
        number = _NUMBER.search(request)
        self._left = int(number[1]) % CHUNKS_END if number else 1
        self._transport.write(_HEAD)
        self._ticker.add(self)
        self.send(_chunk(time.monotonic()))

    def _complete(self, end: int) -> bool:
        length = _LENGTH.search(self._received, 0, end)
        if length is not None:
            return len(self._received) >= end + 4 + int(length[1])
        return not self._received.startswith(b"POST") or self._received.endswith(_CHUNKED_END)

    def send(self, chunk: bytes) -> None:
        self._left -= 1
        if self._left:
            self._transport.write(chunk)
        else:
            self._transport.write(chunk + _END)
            self._ticker.discard(self)

    def connection_lost(self, _error: Exception | None) -> None:
        self._ticker.discard(self)


async def _serve(tick_s: float, phases: int) -> None:
    loop = asyncio.get_running_loop()
    ticker = Ticker(tick_s, phases)
    server = await loop.create_server(lambda: Connection(ticker), "127.0.0.1", 0, backlog=4096)
    ticking = loop.create_task(ticker.run())
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    ticking.cancel()
    server.close()


def main() -> None:
    task = json.loads(sys.stdin.readline())
    uvloop.run(_serve(task["tick_s"], task["phases"]))


if __name__ == "__main__":
    main()
