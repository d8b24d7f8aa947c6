"""A worker with a toy data plane behind the real life of a worker: started by the tests' node instead of `tidegate.node.worker`.

`/whoami` tells process, index, a setting and the engine's phase; `/stream?s=N` streams for N seconds; `/crash` ends the process;
`/freeze?s=N` holds its loop.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
import urllib.parse
from collections.abc import Collection
from pathlib import Path

import msgspec

from tidegate.adapters.engine.settings import EngineState
from tidegate.adapters.records.lines import LogFormat
from tidegate.config.schema import Configuration
from tidegate.domain.statistics import LimitLevel, RequestStatistics, RequestTally, WorkerStatistics
from tidegate.errors import ConfigurationError, TidegateError
from tidegate.http.outbox import Outbox
from tidegate.node.listen import listen
from tidegate.node.worker import run
from tidegate.ports import Exchange

UNLUCKY_LIMIT = 13
"""A configuration with this limit cannot be prepared by worker 1."""


class Exchanged:
    """Receives the rest of one request: nothing."""

    def __init__(self, worker: StandIn, exchange: Exchange) -> None:
        self.worker = worker
        self.exchange = exchange
        self.stream: asyncio.TimerHandle | None = None
        self.ends_at = 0.0

    def body_received(self, body: bytes) -> None: ...
    def body_refused(self, error: TidegateError) -> None: ...
    def write_paused(self) -> None: ...
    def write_resumed(self) -> None: ...

    def client_left(self) -> None:
        self.end()

    def begin_stream(self, seconds: float) -> None:
        self.ends_at = asyncio.get_running_loop().time() + seconds
        self.exchange.start(200, ((b"content-type", b"text/event-stream"),))
        self.worker.streams.add(self)
        self.tick()

    def tick(self) -> None:
        loop = asyncio.get_running_loop()
        self.exchange.send(b"data: tick\n\n")
        if loop.time() >= self.ends_at:
            self.exchange.send(b"data: [DONE]\n\n")
            self.exchange.finish()
            self.end()
        else:
            self.stream = loop.call_later(0.02, self.tick)

    def interrupt(self) -> None:
        self.exchange.send(b"event: error\n\n")
        self.exchange.finish()
        self.end()

    def end(self) -> None:
        if self.stream is not None:
            self.stream.cancel()
        self.worker.streams.discard(self)


class StandIn:
    """Implements `tidegate.node.worker.Worker`."""

    def __init__(self, configuration: Configuration, index: int, engine: EngineState | None) -> None:
        self.configuration = configuration
        self.index = index
        self.engine = engine
        self.streams: set[Exchanged] = set()
        self.requests = 0
        self.draining = False
        self.peer_socket: Path | None = None
        self.outbox = Outbox(asyncio.get_running_loop())

    def application(self, exchange: Exchange) -> Exchanged:
        self.requests += 1
        receiver = Exchanged(self, exchange)
        seconds = float(urllib.parse.parse_qs(exchange.head.query).get("s", ["0"])[0])
        match exchange.head.path:
            case "/stream":
                receiver.begin_stream(seconds)
            case "/crash":
                os._exit(9)
            case "/freeze":
                time.sleep(seconds)
                exchange.respond(200, (), b"thawed")
            case _:
                limit = self.configuration.limits.tokens_per_minute
                phase = str(self.engine.phase) if self.engine is not None else None
                answer = {"pid": os.getpid(), "index": self.index, "limit": limit, "engine": phase}
                exchange.respond(200, ((b"content-type", b"application/json"),), msgspec.json.encode(answer))
        return receiver

    async def prepare(self, configuration: Configuration) -> Configuration:
        if configuration.limits.tokens_per_minute == UNLUCKY_LIMIT and self.index == 1:
            raise ConfigurationError("Worker 1 does not like thirteen.")
        return configuration

    def commit(self, prepared: Configuration) -> None:
        self.configuration = prepared

    def drain_replicas(self, names: Collection[str]) -> None:
        self.drained = tuple(names)

    def limit_levels(self) -> tuple[LimitLevel, ...]:
        return ()

    def set_engine(self, state: EngineState) -> None:
        self.engine = state

    def statistics(self) -> WorkerStatistics:
        tally = RequestTally("chat", "none", "none", "ok", self.requests)
        levels = {"gateway.requests_running": float(len(self.streams))}
        return WorkerStatistics(ready=not self.draining, requests=RequestStatistics(requests=(tally,)), levels=levels)

    def begin_drain(self) -> None:
        self.draining = True

    def interrupt_all(self) -> int:
        running = list(self.streams)
        for stream in running:
            stream.interrupt()
        return len(running)

    async def aclose(self) -> None: ...


async def open_worker(
    configuration: Configuration,
    *,
    index: int,
    workers: int,  # noqa: ARG001  the signature is the real one's
    state_directory: Path,  # noqa: ARG001  as above
    engine: EngineState | None,
    counter_socket: Path | None,  # noqa: ARG001  as above
    log_format: LogFormat = LogFormat.LOGFMT,  # noqa: ARG001  as above
    ledger_socket: Path | None = None,  # noqa: ARG001  as above
) -> StandIn:
    match os.environ.get("STAND_IN"):
        case "dies":
            os._exit(7)
        case "refuses":
            raise ConfigurationError("The stand-in was told to refuse.")
        case _:
            return StandIn(configuration, index, engine)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:], open_worker=open_worker, listen=listen))
