"""The supervisor's side of one worker process: starting it, asking it, and learning of its end.

Every request has a deadline; one that is not answered raises `ControlError`. A link serves one process; a restart makes another link.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import sys
from collections.abc import Callable, Sequence

from tidegate.config.schema import Configuration
from tidegate.domain.statistics import LimitLevel, WorkerStatistics
from tidegate.errors import ConfigurationError
from tidegate.node import control

STATISTICS_S = 2.0
"""A worker answers between two chunks; one that does not is stuck or starved, and the last figures are used."""
PREPARE_S = 15.0
"""Reading files, building pools, and 5 s at most for issuers of tokens; generous: a slow disk must not make a reload impossible."""
COMMIT_S = 5.0
"""Swapping a reference."""

RUNNING = "gateway.requests_running"
"""The level that tells how many requests a worker has under way."""

WORKER_COMMAND = (sys.executable, "-P", "-m", "tidegate.node.worker")

_Answer = control.StatisticsReport | control.LimitsReport | control.ReloadPrepared | control.ReloadRefused | control.ReloadCommitted


class WorkerLink:
    """A running worker. Call `converse` once; it returns when the process has closed its side."""

    def __init__(self, process: asyncio.subprocess.Process, channel: control.Channel[control.FromWorker]) -> None:
        self._process = process
        self._channel = channel
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[_Answer]] = {}  # bounded: each entry ends with its deadline
        self.ready = asyncio.Event()
        self.statistics = WorkerStatistics(ready=False)
        """The last report."""
        self.refusal: str | None = None
        """Why the worker would not start, if it said so."""
        self.interrupted = 0
        self.said_goodbye = False
        """It ended in order, with everything settled and recorded."""

    def __repr__(self) -> str:
        return f"WorkerLink(pid={self.pid}, ready={self.ready.is_set()})"

    @classmethod
    async def spawn(cls, listener: socket.socket, command: Sequence[str] = WORKER_COMMAND) -> WorkerLink:
        """Start a process on this listening socket, which stays ours too."""
        ours, theirs = socket.socketpair()
        try:
            descriptors = (listener.fileno(), theirs.fileno())
            process = await asyncio.create_subprocess_exec(
                *command,
                *("--listener", str(descriptors[0]), "--control", str(descriptors[1])),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                pass_fds=descriptors,
                start_new_session=True,  # Ctrl-C is sent to a terminal's whole group; the supervisor decides
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return cls(process, await control.supervisor_channel(ours))

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def cut(self) -> int:
        """How many requests ended with the process: those it interrupted, or, if it did not end in order, those of its last report."""
        return self.interrupted if self.said_goodbye else int(self.statistics.levels.get(RUNNING, 0.0))

    async def send(self, message: control.ToWorker) -> None:
        await self._channel.send(message)

    async def converse(self, on_ready: Callable[[], None]) -> None:
        """Take in what the worker says until it is gone."""
        try:
            while (message := await self._channel.receive()) is not None:
                match message:
                    case control.Ready():
                        self.ready.set()
                        on_ready()
                    case control.StartRefused(reason):
                        self.refusal = reason
                    case control.Drained(statistics, interrupted):
                        self.statistics = statistics
                        self.interrupted = interrupted
                        self.said_goodbye = True
                    case _:
                        self._resolve(message)
        finally:
            self.ready.clear()
            for future in self._waiting.values():
                future.cancel()
            self._channel.close()

    async def refresh_statistics(self) -> bool:
        """Ask for statistics; False when the worker did not answer in time, and the last report stands."""
        try:
            answer = await self._ask(control.GetStatistics, STATISTICS_S)
        except control.ControlError:
            return False
        if isinstance(answer, control.StatisticsReport):
            self.statistics = answer.statistics
        return isinstance(answer, control.StatisticsReport)

    async def limit_levels(self) -> tuple[LimitLevel, ...]:
        """Ask how full limits are; nothing when the worker did not answer in time."""
        try:
            answer = await self._ask(control.GetLimits, STATISTICS_S)
        except control.ControlError:
            return ()
        return answer.levels if isinstance(answer, control.LimitsReport) else ()

    async def prepare(self, configuration: Configuration) -> None:
        """Have it made ready; `ConfigurationError` with the worker's reason when it refuses."""
        answer = await self._ask(lambda number: control.PrepareReload(number, configuration), PREPARE_S)
        if isinstance(answer, control.ReloadRefused):
            raise ConfigurationError(answer.reason)
        self._expect(answer, control.ReloadPrepared)

    async def commit(self) -> None:
        self._expect(await self._ask(control.CommitReload, COMMIT_S), control.ReloadCommitted)

    async def abort(self) -> None:
        with contextlib.suppress(control.ControlError):
            await self._channel.send(control.AbortReload())

    async def exited(self) -> int:
        return await self._process.wait()

    def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()

    async def _ask(self, make: Callable[[int], control.ToWorker], deadline_s: float) -> _Answer:
        number = next(self._numbers)
        future: asyncio.Future[_Answer] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            async with asyncio.timeout(deadline_s):
                await self._channel.send(make(number))
                await asyncio.wait([future])
        except TimeoutError as error:
            raise control.ControlError(f"Worker process {self.pid} did not answer within {deadline_s:g} s.") from error
        finally:
            del self._waiting[number]
            future.cancel()
        if future.cancelled():
            raise control.ControlError(f"Worker process {self.pid} ended before it answered.")
        return future.result()

    def _expect(self, answer: _Answer, kind: type[_Answer]) -> None:
        if not isinstance(answer, kind):
            raise control.ControlError(f"Worker process {self.pid} answered with {type(answer).__name__}.")

    def _resolve(self, answer: _Answer) -> None:
        future = self._waiting.get(answer.request)
        if future is not None and not future.done():  # an answer after its deadline is of no use
            future.set_result(answer)
