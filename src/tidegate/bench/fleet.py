"""The parent of a run: starts the client processes, shares the plan out, gives them one origin, and passes their samples on.

Invariants: no process outlives the fleet, however that ends: their standard input closes with it, and `aclose` kills what has not ended
after `GRACE_S`. Nobody waits for a process that says nothing: one that dies or is silent for `SILENCE_S` is a `ClientProcessError` with the
last it wrote to its standard error.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Final, Self

from tidegate.adapters.child_process import end
from tidegate.adapters.wall_clock import wall_clock
from tidegate.bench.bodies import UnusableRequestsError
from tidegate.bench.frames import (
    Begin,
    FromClient,
    Over,
    Ready,
    Requests,
    Samples,
    Setup,
    Stop,
    ToClient,
    Unusable,
    framed,
    take_from_client,
)
from tidegate.bench.plan import Plan, Scenario, Target
from tidegate.bench.sample import ClientReport, Sample

CLIENT_MODULE: Final = "tidegate.bench.client"
START_S: Final = 30.0
"""Longest wait for a client process to be ready: it imports, and reads the user's own requests."""
LEAD_S: Final = 0.1
"""From the word to begin to the origin: the word must have reached everybody."""
SILENCE_S: Final = 15.0
"""A client speaks five times a second; a machine too busy for one word in this time cannot measure."""
GRACE_S: Final = 3.0
REQUESTS_PER_FRAME: Final = 50_000
STDERR_TAIL_BYTES: Final = 4_096
MAX_BATCHES: Final = 256
"""Not yet taken by whoever reads the samples; beyond it the clients keep theirs."""


class ClientProcessError(RuntimeError):
    """A client process ended before its work was done, or said nothing for too long; the message has its last words."""


class ClientFleet:
    """Client processes that carry out one plan, once. Use as an async context manager; `samples` begins the run."""

    def __init__(self, target: Target, plan: Plan, scenarios: Mapping[str, Scenario], *, clients: int = 1) -> None:
        assert clients >= 1, "nobody would send anything"
        self.began_at = 0.0
        """When the run's origin was, in seconds since the epoch; 0 before."""
        self._reports: list[ClientReport] = []
        self._listening: list[asyncio.Task[None]] = []
        self._clients = [Client(number) for number in range(clients)]
        self._target = target
        self._plan = plan
        self._scenarios = scenarios

    @property
    def reports(self) -> tuple[ClientReport, ...]:
        """The last words of the clients that have ended, by number."""
        return tuple(sorted(self._reports, key=lambda report: report.health.client))

    @property
    def in_flight(self) -> int:
        """Requests under way, as last heard."""
        return sum(client.in_flight for client in self._clients)

    async def __aenter__(self) -> Self:
        """Start the processes and wait until all are ready; raise `UnusableRequestsError` when nothing can be sent."""
        try:
            await asyncio.gather(*[self._prepare(client) for client in self._clients])
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    async def samples(self) -> AsyncIterator[tuple[Sample, ...]]:
        """Begin, and give samples as they come, until every client has reported; raise `ClientProcessError`."""
        batches: asyncio.Queue[tuple[Sample, ...] | None] = asyncio.Queue(MAX_BATCHES)
        self.began_at = wall_clock() + LEAD_S
        origin = time.monotonic() + LEAD_S
        for client in self._clients:
            client.say(Begin(origin))
        self._listening = [asyncio.ensure_future(self._listen(client, batches)) for client in self._clients]
        listening = asyncio.gather(*self._listening)
        listening.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # looked at, should nobody wait any more
        listening.add_done_callback(lambda _: _wake(batches))
        while not (listening.done() and batches.empty()):
            batch = await batches.get()
            if batch:
                yield batch
        await listening

    def stop(self) -> None:
        """Ask everybody to end what is under way and report; `samples` then ends by itself."""
        for client in self._clients:
            client.say(Stop())

    async def aclose(self) -> None:
        """End every process. Safe to repeat."""
        for task in self._listening:
            task.cancel()
        await asyncio.gather(*self._listening, return_exceptions=True)
        await asyncio.gather(*[client.aclose() for client in self._clients])

    async def _prepare(self, client: Client) -> None:
        await client.start()
        count = len(self._clients)
        client.say(self._setup(client.number, count))
        share = self._plan.requests[client.number :: count]
        for at in range(0, len(share), REQUESTS_PER_FRAME):
            client.say(Requests(share[at : at + REQUESTS_PER_FRAME]))
        client.say(Requests(()))
        message = await client.hear(START_S)
        if isinstance(message, Unusable):
            raise UnusableRequestsError(message.reason)
        if not isinstance(message, Ready):
            raise client.failure("was not ready")

    def _setup(self, number: int, count: int) -> Setup:
        plan = self._plan
        places: dict[int, int] | None = None
        if plan.concurrency is not None:
            totals = [plan.concurrency if stage.concurrency is None else stage.concurrency for stage in plan.stages]
            places = {stage: total // count + (number < total % count) for stage, total in enumerate(totals or [plan.concurrency])}
        return Setup(
            client=number,
            target=self._target,
            scenarios=tuple(self._scenarios[name] for name in sorted({request.scenario for request in plan.requests})),
            stages=plan.stages,
            length_s=plan.length_s,
            places=places,
        )

    async def _listen(self, client: Client, batches: asyncio.Queue[tuple[Sample, ...] | None]) -> None:
        while True:
            message = await client.hear(SILENCE_S)
            if isinstance(message, Samples):
                client.in_flight = message.in_flight
                if message.samples:
                    await batches.put(tuple(message.samples))
            elif isinstance(message, Over):
                self._reports.append(message.report)
                return
            else:
                raise client.failure("did not end its work")


def _wake(batches: asyncio.Queue[tuple[Sample, ...] | None]) -> None:
    """See to it that whoever waits for samples looks up."""
    if batches.empty():
        batches.put_nowait(None)


class Client:
    """One client process, as its parent holds it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.in_flight = 0
        self._process: asyncio.subprocess.Process | None = None
        self._received = bytearray()
        self._messages: list[FromClient] = []
        """Whole ones not yet given out, the next one last."""
        self._stderr = bytearray()
        self._reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", CLIENT_MODULE, stdin=pipe, stdout=pipe, stderr=pipe
        )
        self._reading = asyncio.ensure_future(self._keep_stderr(self._process))

    def say(self, message: ToClient) -> None:
        process = self._process
        if process is not None and process.stdin is not None and not process.stdin.is_closing():
            process.stdin.write(framed(message))

    async def hear(self, timeout_s: float) -> FromClient:
        """Wait for its next message; raise `ClientProcessError` when it ends or is silent instead."""
        process = self._process
        assert process is not None
        assert process.stdout is not None
        while not self._messages:
            try:
                piece = await asyncio.wait_for(process.stdout.read(262_144), timeout_s)
            except TimeoutError:
                raise self.failure(f"said nothing for {timeout_s:g} s") from None
            if not piece:
                await self._read_last_words()
                raise self.failure("ended too early")
            self._received += piece
            try:
                self._messages = [*take_from_client(self._received)][::-1]
            except ValueError as problem:
                raise self.failure(f"said what nobody understands ({problem})") from problem
        return self._messages.pop()

    def failure(self, what: str) -> ClientProcessError:
        words = self._stderr.decode("utf-8", "replace").strip()
        return ClientProcessError(f"Client process {self.number} {what}. Its last words: {words or 'none'}")

    async def aclose(self) -> None:
        """Let it end by itself, which it does when its standard input ends; then make it."""
        process, self._process = self._process, None
        if process is not None:
            if process.stdin is not None:
                process.stdin.close()
            leaving = asyncio.ensure_future(process.wait())
            await asyncio.wait({leaving}, timeout=GRACE_S)
            if not leaving.done():
                await end(process, grace_s=GRACE_S)
            await leaving
        await self._read_last_words()

    async def _read_last_words(self) -> None:
        """Wait for the rest of standard error, which ends with the process."""
        if self._reading is not None:
            await asyncio.wait({self._reading}, timeout=GRACE_S)
            self._reading.cancel()

    async def _keep_stderr(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        while piece := await process.stderr.read(STDERR_TAIL_BYTES):
            self._stderr += piece
            del self._stderr[:-STDERR_TAIL_BYTES]
