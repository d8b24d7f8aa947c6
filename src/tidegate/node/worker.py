"""One worker: `python -m tidegate.node.worker --listener FD --control FD`.

Serves the API on the socket it was given, does what the supervisor asks over the control channel, and ends in order: not ready, accept
nothing more, let running requests finish up to a deadline, interrupt the rest, flush, exit. When the control channel ends, the supervisor
is gone: then it interrupts at once. Ctrl-C is ignored: the supervisor decides. Nothing heavy is imported here.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import signal
import socket
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import uvloop
from msgspec.structs import replace

from tidegate.adapters.engine.settings import EngineState
from tidegate.adapters.records.lines import LogFormat
from tidegate.config.schema import Configuration
from tidegate.domain.statistics import LimitLevel, WorkerStatistics
from tidegate.errors import ConfigurationError, TidegateError
from tidegate.http.outbox import Outbox
from tidegate.node import control
from tidegate.node.descriptors import allow_files, shortage, wanted_files
from tidegate.node.exits import Exit
from tidegate.node.log import configure_logging
from tidegate.ports import Application

START_S = 30.0
"""Until the first message: the supervisor sends it at once."""
FLUSH_S = 2.0
"""Time interrupted requests have to get their error event out."""
CLOSE_S = 6.0
"""Time to write the records and close the pools."""
COLLECT_EVERY = 20_000
"""Tracked objects that must be made beyond those that went before the collector looks; the default of 700 is less than a hundred requests
at once hold, so it would look, in vain, several times per turn of the loop."""
SWITCH_INTERVAL_S = 0.00005
"""How long another thread may hold the interpreter while the event loop waits; the default of 5 ms would be a gap in every stream."""

_LOG = logging.getLogger("tidegate.node.worker")

Prepared = TypeVar("Prepared")
"""A configuration made ready: its type is the data plane's own affair."""


class Served(Protocol):
    """What a worker's HTTP server serves."""

    @property
    def application(self) -> Application: ...

    @property
    def peer_socket(self) -> Path | None:
        """Where to serve the other workers of the node; None for the only one."""

    @property
    def outbox(self) -> Outbox:
        """Of the worker's loop: what its pools write waits in it too."""


class Worker(Served, Protocol[Prepared]):
    """What `tidegate.wiring.worker.open_worker` gives: one process's data plane."""

    async def prepare(self, configuration: Configuration) -> Prepared:
        """Build everything for a configuration without using it; `ConfigurationError` when it cannot be."""

    def commit(self, prepared: Prepared) -> None:
        """Use what `prepare` gave for requests to come. Must not fail."""

    def set_engine(self, state: EngineState) -> None: ...
    def drain_replicas(self, names: Collection[str]) -> None:
        """Keep exactly these replicas and upstreams out of service, through reloads too."""

    def limit_levels(self) -> tuple[LimitLevel, ...]: ...

    def statistics(self) -> WorkerStatistics: ...

    def begin_drain(self) -> None:
        """Say not ready from now on."""

    def interrupt_all(self) -> int:
        """End running requests with an error their clients understand, settled; give their number."""

    async def aclose(self) -> None:
        """Flush records and close pools."""


class OpenWorker(Protocol[Prepared]):
    """The signature of `tidegate.wiring.worker.open_worker`."""

    async def __call__(
        self,
        configuration: Configuration,
        /,
        *,
        index: int,
        workers: int,
        state_directory: Path,
        engine: EngineState | None,
        counter_socket: Path | None,
        log_format: LogFormat = LogFormat.LOGFMT,
        ledger_socket: Path | None = None,
    ) -> Worker[Prepared]: ...


class Listening(Protocol):
    """The open HTTP server of one worker."""

    def reconfigure(self, configuration: Configuration) -> None:
        """Take up the limits of a reloaded configuration. Must not fail."""

    def stop_accepting(self) -> None: ...
    async def wait_drained(self, deadline_s: float) -> bool:
        """Wait until every response is complete; False when the time was up."""

    def abort_all(self) -> None: ...
    def figures(self) -> tuple[dict[str, float], dict[str, float]]:
        """Give its levels and counters."""


class Listen(Protocol):
    """Opens the HTTP server on a bound socket."""

    async def __call__(self, worker: Served, configuration: Configuration, listener: socket.socket) -> Listening: ...


class WorkerProcess(Generic[Prepared]):
    """The life of one worker after its first message. `run` returns the exit code."""

    def __init__(
        self, channel: control.Channel[control.ToWorker], worker: Worker[Prepared], server: Listening, *, drain_timeout_s: float
    ) -> None:
        self._channel = channel
        self._worker = worker
        self._server = server
        self._drain_timeout_s = drain_timeout_s
        self._stopping = asyncio.Event()
        self._orphaned = asyncio.Event()
        self._preparing: asyncio.Task[None] | None = None
        """At most one: the supervisor's next word about a reload ends it."""
        self._prepared: tuple[Configuration, Prepared] | None = None

    def stop(self) -> None:
        """Begin to end in order; safe to repeat."""
        self._stopping.set()

    async def run(self) -> int:
        async with asyncio.TaskGroup() as tasks:
            conversation = tasks.create_task(self._converse(), name="control")
            await self._channel.send(control.Ready())
            await self._stopping.wait()
            interrupted = await self._drain()
            conversation.cancel()
        await self._forget_prepared()
        await self._say_goodbye(interrupted)
        return Exit.OK

    async def _converse(self) -> None:
        """Answer the supervisor until it is gone."""
        try:
            while (message := await self._channel.receive()) is not None:
                await self._answer(message)
        except control.ControlError as error:
            _LOG.error("worker.control_lost %s", error)
        self._orphaned.set()
        self._stopping.set()

    async def _answer(self, message: control.ToWorker) -> None:
        match message:
            case control.GetStatistics(request):
                await self._channel.send(control.StatisticsReport(request, self._statistics()))
            case control.EngineChanged(state):
                self._worker.set_engine(state)
            case control.GetLimits(request):
                await self._channel.send(control.LimitsReport(request, self._worker.limit_levels()))
            case control.DrainReplicas(names):
                self._worker.drain_replicas(names)
            case control.PrepareReload(request, configuration):
                await self._forget_prepared()
                self._preparing = asyncio.create_task(self._prepare(request, configuration), name="prepare")
            case control.CommitReload(request):
                self._commit()
                await self._channel.send(control.ReloadCommitted(request))
            case control.AbortReload():
                await self._forget_prepared()
            case control.Drain(timeout_s):
                self._drain_timeout_s = timeout_s
                self.stop()
            case control.Start():
                raise control.ControlError("A worker is started once; the supervisor sent a second Start.")

    async def _prepare(self, request: int, configuration: Configuration) -> None:
        """Make a configuration ready, which may wait for others, and say so; whatever goes wrong, this worker goes on as it was."""
        answer: control.FromWorker = control.ReloadPrepared(request)
        try:
            self._prepared = (configuration, await self._worker.prepare(configuration))
        except TidegateError as error:
            answer = control.ReloadRefused(request, error.message)
        except Exception as fault:  # noqa: BLE001  the outermost frame of the task: a reload must not end what runs
            _LOG.exception("worker.prepare_failed")
            answer = control.ReloadRefused(request, f"A worker could not prepare the configuration: {fault!r}. Its log line says where.")
        try:
            await self._channel.send(answer)
        except control.ControlError as error:  # the conversation notices too when the supervisor is gone
            _LOG.warning("worker.answer_lost %s", error)

    async def _forget_prepared(self) -> None:
        preparing, self._preparing, self._prepared = self._preparing, None, None
        if preparing is not None:
            preparing.cancel()
            await asyncio.wait([preparing])
            self._prepared = None

    def _commit(self) -> None:
        if self._prepared is None:
            raise control.ControlError("The supervisor sent CommitReload before PrepareReload.")
        configuration, prepared = self._prepared
        self._prepared = None
        self._worker.commit(prepared)
        self._server.reconfigure(configuration)

    async def _drain(self) -> int:
        """End in order; give the number of requests that were interrupted."""
        self._worker.begin_drain()
        self._server.stop_accepting()
        await self._wait_idle(0.0 if self._orphaned.is_set() else self._drain_timeout_s)
        interrupted = self._worker.interrupt_all()
        if interrupted:
            _LOG.warning("worker.interrupted requests=%d", interrupted)
            await self._server.wait_drained(FLUSH_S)
        self._server.abort_all()
        return interrupted

    async def _wait_idle(self, timeout_s: float) -> None:
        """Wait until nothing runs, the time is up, or the supervisor is gone."""
        idle = asyncio.ensure_future(self._server.wait_drained(timeout_s))
        orphaned = asyncio.ensure_future(self._orphaned.wait())
        _, pending = await asyncio.wait((idle, orphaned), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)

    async def _say_goodbye(self, interrupted: int) -> None:
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._worker.aclose()
        except TimeoutError:
            _LOG.error("worker.close_timed_out after_s=%g; records still waiting are lost", CLOSE_S)
        with contextlib.suppress(control.ControlError):
            await self._channel.send(control.Drained(self._statistics(), interrupted))
        self._channel.close()

    def _statistics(self) -> WorkerStatistics:
        """Join what the worker and its server report; the server's keys are its own."""
        mine = self._worker.statistics()
        levels, counters = self._server.figures()
        ready = mine.ready and not self._stopping.is_set()
        return replace(mine, ready=ready, levels=levels | mine.levels, counters=counters | mine.counters)


def _spare_the_collector() -> None:
    """Let the cycle collector look at what requests leave behind, seldom, and not at what the start made: a request leaves no circles."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_EVERY, *gc.get_threshold()[1:])


async def serve(
    channel: control.Channel[control.ToWorker],
    listener: socket.socket,
    *,
    open_worker: OpenWorker[Prepared],
    listen: Listen,
    on_start: Callable[[control.Start], None],
) -> int:
    """Start as the supervisor says, and serve until told to stop; give the exit code. `on_start` hears the first message."""
    try:
        async with asyncio.timeout(START_S):
            start = await channel.receive()
    except TimeoutError:
        _LOG.error("worker.not_started the supervisor said nothing for %g s", START_S)
        return Exit.FAILED
    if start is None:
        return Exit.OK
    if not isinstance(start, control.Start):
        raise control.ControlError(f"A worker's first message is Start, not {type(start).__name__}.")
    on_start(start)
    try:
        worker = await open_worker(
            start.configuration,
            index=start.index,
            workers=start.workers,
            state_directory=Path(start.state_directory),
            engine=start.engine,
            counter_socket=None if start.counter_socket is None else Path(start.counter_socket),
            log_format=LogFormat(start.log_format),
            ledger_socket=None if start.ledger_socket is None else Path(start.ledger_socket),
        )
    except ConfigurationError as error:
        await channel.send(control.StartRefused(error.message))
        return Exit.USAGE
    worker.drain_replicas(start.drained)
    try:
        server = await listen(worker, start.configuration, listener)
    except (TidegateError, OSError) as error:
        await worker.aclose()
        await channel.send(control.StartRefused(f"The API port could not be served: {error}"))
        return Exit.USAGE
    _spare_the_collector()
    process = WorkerProcess(channel, worker, server, drain_timeout_s=start.configuration.server.drain_timeout_s)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, process.stop)
    return await process.run()


async def _run(listener_fd: int, control_fd: int, open_worker: OpenWorker[Prepared], listen: Listen) -> int:
    channel = await control.worker_channel(socket.socket(fileno=control_fd))
    try:
        listener = socket.socket(fileno=listener_fd)
        return await serve(channel, listener, open_worker=open_worker, listen=listen, on_start=_settle_in)
    finally:
        channel.close()


def _settle_in(start: control.Start) -> None:
    """Do what concerns the whole process: its log, and how many files it may open."""
    configure_logging(LogFormat(start.log_format), worker=start.index)
    lacking = shortage(start.configuration, allow_files(wanted_files(start.configuration)))
    if lacking is not None:
        _LOG.warning("worker.few_files %s", lacking)


def run(arguments: Sequence[str], *, open_worker: OpenWorker[Prepared], listen: Listen) -> int:
    """Be a worker process with these parts; give the exit code."""
    parser = argparse.ArgumentParser(prog="tidegate.node.worker", description="Started by `tidegate serve`; not for the command line.")
    parser.add_argument("--listener", type=int, required=True)
    parser.add_argument("--control", type=int, required=True)
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    configure_logging(LogFormat.LOGFMT)
    try:
        return uvloop.run(_run(options.listener, options.control, open_worker, listen))
    except Exception:  # noqa: BLE001  the outermost frame: one line instead of a traceback, and the supervisor starts another
        _LOG.exception("worker.crashed")
        return Exit.FAILED


def main() -> int:
    from tidegate.node.listen import listen
    from tidegate.wiring.worker import open_worker

    return run(sys.argv[1:], open_worker=open_worker, listen=listen)


if __name__ == "__main__":
    sys.exit(main())
