"""The client process: `python -m tidegate.bench.client`. Started by `fleet` alone, which talks to it through standard input and output.

It reads a `Setup` and its requests, says that it is ready, waits for the run's origin, sends, and reports; samples go to the parent a few
times a second. It ends when it has reported, when it is told to stop, and at once when its standard input ends or its parent does. Ctrl-C
is the parent's to decide on.

While it runs nothing is collected: what is there at the beginning is frozen, and an exchange leaves no circle behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import sys
from collections.abc import Mapping
from typing import IO, Final, cast

import msgspec
import uvloop

from tidegate.adapters.engine.lifeline import tie_to_parent
from tidegate.bench.dispatch import Dispatcher, Share
from tidegate.bench.frames import Begin, FromClient, Over, Ready, Requests, Samples, Setup, Stop, ToClient, Unusable, framed, take_to_client
from tidegate.bench.plan import PlannedRequest, Target
from tidegate.bench.sample import Sample
from tidegate.http.client import PoolSettings, UpstreamPool, proxy_from_environment

REPORT_S: Final = 0.2
"""Between two batches of samples; also how often the parent hears that this process lives."""
IDLE_TIMEOUT_S: Final = 30.0
CLOSING_S: Final = 10.0
"""Longest wait for the parent to read the last words."""


class ParentGoneError(Exception):
    """Standard input ended: nobody is there to report to."""


class Link(asyncio.Protocol):
    """The parent's words, in order."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[ToClient | None] = asyncio.Queue()
        """Not taken yet: at most what a whole share comes to."""
        self._received = bytearray()

    def data_received(self, data: bytes) -> None:
        self._received += data
        for message in take_to_client(self._received):
            self.heard.put_nowait(message)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  the Protocol's signature
        self.heard.put_nowait(None)

    async def hear(self) -> ToClient:
        message = await self.heard.get()
        if message is None:
            raise ParentGoneError
        return message


class Mouth(asyncio.Protocol):
    """Says things to the parent."""

    def __init__(self) -> None:
        self._transport: asyncio.WriteTransport | None = None
        self._samples: list[Sample] = []
        """Since the last batch: fewer than the share has requests, like what the parent is slow to read."""
        self._closed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  the Protocol's signature
        self._closed.set()

    def say(self, message: FromClient) -> None:
        assert self._transport is not None
        self._transport.write(framed(message))

    def keep(self, sample: Sample) -> None:
        self._samples.append(sample)

    def send_samples(self, in_flight: int) -> None:
        samples, self._samples = self._samples, []
        self.say(Samples(tuple(samples), in_flight))

    async def aclose(self) -> None:
        """Close when everything has been said, or nobody listens."""
        assert self._transport is not None
        self._transport.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._closed.wait(), CLOSING_S)


def pool_settings(target: Target, environ: Mapping[str, str]) -> PoolSettings:
    """Make a pool in which no request waits for a connection that may be opened."""
    return PoolSettings(
        base_url=target.base_url,
        max_connections=target.max_in_flight,
        max_waiting=target.max_in_flight,
        idle_timeout_s=IDLE_TIMEOUT_S,
        connect_timeout_s=target.connect_timeout_s,
        verify_tls=target.verify_tls,
        proxy=proxy_from_environment(target.base_url, environ),
    )


async def serve(link: Link, mouth: Mouth) -> None:
    """Carry out one share from `Setup` to `Over`."""
    setup = await link.hear()
    assert isinstance(setup, Setup), setup
    requests: list[PlannedRequest] = []
    while True:
        part = await link.hear()
        assert isinstance(part, Requests), part
        if not part.requests:
            break
        requests += part.requests
    try:
        pool = UpstreamPool(pool_settings(setup.target, os.environ))
        share = Share(requests, setup.stages, length_s=setup.length_s, places=setup.places)
        scenarios = {scenario.name: scenario for scenario in setup.scenarios}
        dispatcher = Dispatcher(share, setup.target, scenarios, client=pool, on_sample=mouth.keep, number=setup.client)
    except ValueError as problem:
        mouth.say(Unusable(str(problem)))
        return
    try:
        mouth.say(Ready())
        begin = await link.hear()
        if isinstance(begin, Stop):
            return
        assert isinstance(begin, Begin), begin
        await _run(dispatcher, link, mouth, origin=begin.origin)
        opened = pool.statistics().connects
    finally:
        await pool.aclose()
    mouth.send_samples(0)
    report = dispatcher.report()
    health = msgspec.structs.replace(report.health, connections_opened=opened)
    mouth.say(Over(msgspec.structs.replace(report, health=health)))


async def _run(dispatcher: Dispatcher, link: Link, mouth: Mouth, *, origin: float) -> None:
    """Run to the end, or to the parent's."""
    gc.collect()
    gc.freeze()
    gc.disable()
    running = asyncio.ensure_future(dispatcher.run(origin))
    listening = asyncio.ensure_future(link.hear())
    reporting = asyncio.ensure_future(_report_often(dispatcher, mouth))
    try:
        await asyncio.wait({running, listening}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            assert isinstance(listening.result(), Stop)
            dispatcher.stop()
        await running
    finally:
        for task in (running, listening, reporting):
            task.cancel()
        await asyncio.gather(running, listening, reporting, return_exceptions=True)


async def _report_often(dispatcher: Dispatcher, mouth: Mouth) -> None:
    while True:
        await asyncio.sleep(REPORT_S)
        mouth.send_samples(dispatcher.in_flight)


async def main(reading: IO[bytes], writing: IO[bytes]) -> None:
    """Serve the parent at the other ends of these."""
    loop = asyncio.get_running_loop()
    incoming, link = await loop.connect_read_pipe(Link, reading)
    _, mouth = await loop.connect_write_pipe(Mouth, writing)
    try:
        with contextlib.suppress(ParentGoneError):
            await serve(link, mouth)
    finally:
        incoming.close()
        await mouth.aclose()


def _raise_file_limit() -> None:
    """Allow as many connections as this user may have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # of systems whose hard limit is none: the soft one stays
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    tie_to_parent()
    _raise_file_limit()
    to_parent = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever prints must not speak to the parent
    uvloop.run(main(os.fdopen(os.dup(sys.stdin.fileno()), "rb", buffering=0), to_parent))
