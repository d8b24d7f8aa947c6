"""A client that keeps a number of streams open, and measures what arrives.

Task: see `Task`. Answers with `{}` when all streams are open and settled, and with the figures when the time is up. Streams begin with
different lengths and go on with equal ones, so that their ends, and the requests that follow, are spread evenly over time.

`ttft`: from the request to the first chunk. `gap`: between two reads of one stream that brought chunks, the first gap left out (it
depends on when in a tick the stream began). `transit`: from the upstream's write to this client's read.
"""

from __future__ import annotations

import asyncio
import gc
import json
import re
import sys
import time
from array import array
from dataclasses import dataclass
from functools import partial
from typing import cast

import uvloop

from benchmarks.content import CHUNKS_END
from benchmarks.rows import quantile

_STAMP = re.compile(rb'"content":"(\d+\.\d+) ')
_OPEN_S = 30.0


@dataclass(frozen=True)
class Task:
    """What to do; times in seconds. A request is `before`, ten digits, `after`."""

    port: int
    before: str
    after: str
    streams: int
    chunks: int
    settle_s: float
    seconds: float


class Tally:
    """What all streams saw since the last `reset`."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.ttft, self.gap, self.transit = array("d"), array("d"), array("d")
        self.chunks = self.streams = self.wrong = 0

    def figures(self, elapsed_s: float) -> dict[str, float]:
        figures: dict[str, float] = {"chunks": self.chunks, "chunks_per_s": round(self.chunks / elapsed_s), "wrong": self.wrong}
        for name, values in (("ttft", self.ttft), ("gap", self.gap), ("transit", self.transit)):
            ordered = sorted(values)
            figures |= {f"{name}_p{share}_ms": round(quantile(ordered, share / 100) * 1e3, 3) for share in (50, 99)}
        return figures


class Stream(asyncio.Protocol):
    """One connection that asks for one stream after another; a stream that is refused or incomplete is counted as wrong."""

    def __init__(self, task: Task, tally: Tally, index: int) -> None:
        self._tally = tally
        self._before, self._after = task.before.encode(), task.after.encode()
        self._chunks = task.chunks
        self._serial = index
        self._stride = task.streams
        self._expected = max(1, (index + 1) * task.chunks // task.streams)
        self._seen = 0
        self._tail = b""
        self._last_at = 0.0
        self._begun_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop has classes of its own
        self._begin()

    def _begin(self) -> None:
        self._seen = 0
        self._tail = b""
        self._serial += self._stride
        number = self._serial % 10_000_000 * CHUNKS_END + self._expected
        self._begun_at = time.monotonic()
        self._transport.write(b"%b%010d%b" % (self._before, number, self._after))

    def data_received(self, chunk: bytes) -> None:
        now = time.monotonic()
        tally = self._tally
        stamps = _STAMP.findall(chunk)
        if stamps:
            if self._seen == 0:
                tally.ttft.append(now - self._begun_at)
            elif self._seen > 1:
                tally.gap.append(now - self._last_at)
            for stamp in stamps:
                tally.transit.append(now - float(stamp))
            self._seen += len(stamps)
            self._last_at = now
            tally.chunks += len(stamps)
        elif self._seen == 0 and chunk.startswith(b"HTTP/1.1") and not chunk.startswith(b"HTTP/1.1 200"):
            tally.wrong += 1
            self._transport.abort()
            return
        tail = (self._tail + chunk)[-40:]
        self._tail = tail
        if tail.endswith(b"0\r\n\r\n") and b"[DONE]" in tail:
            tally.streams += 1
            tally.wrong += self._seen != self._expected
            self._expected = self._chunks
            self._begin()

    def connection_lost(self, _error: Exception | None) -> None:
        self._tally.wrong += 1


async def _run(task: Task) -> None:
    loop = asyncio.get_running_loop()
    tally = Tally()
    transports = []
    async with asyncio.timeout(_OPEN_S):
        for index in range(task.streams):
            transport, _ = await loop.create_connection(partial(Stream, task, tally, index), "127.0.0.1", task.port)
            transports.append(transport)
    await asyncio.sleep(task.settle_s)
    wrong_before = tally.wrong
    tally.reset()
    gc.disable()
    began = time.monotonic()
    print("{}", flush=True)
    await asyncio.sleep(task.seconds)
    figures = tally.figures(time.monotonic() - began)
    figures["wrong"] += wrong_before
    print(json.dumps(figures), flush=True)
    for transport in transports:
        transport.abort()


def main() -> None:
    task = Task(**json.loads(sys.stdin.readline()))
    uvloop.run(_run(task))


if __name__ == "__main__":
    main()
