"""A client that opens many connections and lets them be.

Task: see `Task`. Answers with `{"opened": …}` when every connection has the beginning of its answer; then, for each line that comes in,
with how many are still open and how many of those received something since the last time. Ends with its standard input.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from dataclasses import dataclass
from typing import cast

import uvloop

_AT_ONCE = 64
"""Connections being opened at the same time: well below any listen queue."""
_ANSWER_S = 30.0


@dataclass(frozen=True)
class Task:
    """What to do. A request is `before`, ten digits, `after`; or `before` alone when `after` is empty."""

    port: int
    before: str
    after: str
    connections: int


class Held(asyncio.Protocol):
    """One connection that sends one request."""

    def __init__(self, request: bytes, loop: asyncio.AbstractEventLoop) -> None:
        self._request = request
        self.answered: asyncio.Future[bool] = loop.create_future()
        self.open = False
        self.heard = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.open = True
        cast("asyncio.Transport", transport).write(self._request)  # uvloop has classes of its own

    def data_received(self, chunk: bytes) -> None:
        self.heard = True
        if not self.answered.done():
            self.answered.set_result(chunk.startswith(b"HTTP/1.1 200"))

    def connection_lost(self, _error: Exception | None) -> None:
        self.open = False
        if not self.answered.done():
            self.answered.set_result(False)


async def _open_all(task: Task) -> list[Held]:
    loop = asyncio.get_running_loop()
    gate = asyncio.Semaphore(_AT_ONCE)
    before, after = task.before.encode(), task.after.encode()

    async def open_one(index: int) -> Held:
        request = b"%b%010d%b" % (before, index * 1000 + 999, after) if after else before
        held = Held(request, loop)
        async with gate:
            try:
                async with asyncio.timeout(_ANSWER_S):
                    await loop.create_connection(lambda: held, "127.0.0.1", task.port)
                    if not await held.answered:
                        held.open = False
            except OSError:  # TimeoutError too: it is counted as not open
                held.open = False
        return held

    return list(await asyncio.gather(*(open_one(index) for index in range(task.connections))))


async def _run(task: Task) -> None:
    gc.disable()
    loop = asyncio.get_running_loop()
    every = await _open_all(task)
    print(json.dumps({"opened": sum(held.open for held in every)}), flush=True)
    for held in every:
        held.heard = False
    while await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps({"open": sum(held.open for held in every), "heard": sum(held.open and held.heard for held in every)}), flush=True)
        for held in every:
            held.heard = False


def main() -> None:
    task = Task(**json.loads(sys.stdin.readline()))
    uvloop.run(_run(task))


if __name__ == "__main__":
    main()
