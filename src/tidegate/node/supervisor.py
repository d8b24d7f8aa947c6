"""The process that `tidegate up` and `tidegate serve` become: it owns the sockets and every other process of the node.

Order of the start: sockets, admin port, counting, ledger and recorder process, local engine, workers. Order of the end, at SIGINT or
SIGTERM: not ready; workers drain (they need the others); then engine, counting, ledger and recorder process, admin port. A second
signal ends everything at once. SIGHUP reloads the configuration, all or nothing. No process outlives this one: workers end with their
control channel, the others with their standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from tidegate.adapters.books.spent_before import Budgets
from tidegate.adapters.counting.frames import MAX_SOCKET_PATH_BYTES
from tidegate.adapters.engine.settings import EngineState
from tidegate.adapters.engine.supervisor import EngineSupervisor
from tidegate.adapters.records.lines import LogFormat
from tidegate.adapters.wall_clock import wall_clock
from tidegate.admin.server import AdminServer
from tidegate.admin.view import CountingSnapshot, EngineSnapshot, NodePhase, NodeSnapshot, ReloadSnapshot
from tidegate.analytics.asking import Asker
from tidegate.config.reload import reload_obstacles
from tidegate.config.schema import Configuration
from tidegate.domain.statistics import LimitLevel, WorkerStatistics
from tidegate.errors import ConfigurationError, InternalError, ReplicaNotFound, TidegateError
from tidegate.node import control, sockets
from tidegate.node.companion import Companion
from tidegate.node.engine import engine_settings
from tidegate.node.exits import Exit
from tidegate.node.ledger_link import LedgerLink, begin_budgets
from tidegate.node.ledger_settings import LEDGER_POLICY, added_budgets, asks_books, budgets_of, ledger_environment, needs_ledger
from tidegate.node.recorder_link import RECORDER_COMMAND, RecorderLink
from tidegate.node.recorder_settings import is_recorder_wanted
from tidegate.node.sampling_plan import sampling_plan
from tidegate.node.state_directory import Endpoints, forget_endpoints, held, make_private, write_endpoints
from tidegate.node.worker_link import RUNNING, WORKER_COMMAND
from tidegate.node.worker_pool import WorkerPool, WorkerSlot

REFRESH_S = 2.0
"""How old the figures of a worker that dies may be: what it counted since is lost from the metrics (not from the records)."""
START_S = 60.0
"""For all workers to accept connections; a worker imports for well under a second."""
LAST_COUNT_S = 0.3
"""For workers to say how many requests run when the node ends; one that does not answer counts by its last report."""

_LONGER_NAME = len("worker-255.sock") - len("counting.sock")

_LOG = logging.getLogger("tidegate.node")


class NodeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a node is started with besides its configuration."""

    load: Callable[[], Configuration]
    """Reads the configuration anew for a reload; `ConfigurationError` with everything that is wrong."""
    version: str
    started_at: float
    """Seconds since the epoch."""
    log_format: LogFormat = LogFormat.LOGFMT
    on_listening: Callable[[Endpoints], None] | None = None
    """Called once all workers accept connections."""
    on_engine: Callable[[EngineState], None] | None = None
    """Called at every change of the engine's state."""
    keys_file: str
    """Name of the key database in the state directory."""
    worker_command: Sequence[str] = WORKER_COMMAND
    counting_command: Sequence[str] = (sys.executable, "-P", "-m", "tidegate.adapters.counting.process")
    ledger_command: Sequence[str] = (sys.executable, "-P", "-m", "tidegate.node.ledger")
    recorder_command: Sequence[str] = RECORDER_COMMAND


class Supervisor:
    """One node. `run` is called once and gives the exit code; it implements `admin.view.NodeView`."""

    def __init__(self, configuration: Configuration, options: NodeOptions) -> None:
        self._configuration = configuration
        self._options = options
        self._state_directory = Path(configuration.state_directory)
        self._phase = NodePhase.STARTING
        self._reloads = ReloadSnapshot()
        self._stopping = asyncio.Event()
        self._forced = asyncio.Event()
        self._failure: TidegateError | None = None
        self._reload_wanted = asyncio.Event()
        self._engine_changed = asyncio.Event()
        self._engine: EngineSupervisor | None = None
        self._engine_state: EngineState | None = None
        self._counting: Companion | None = None
        self._pool: WorkerPool | None = None
        self._counter_socket: Path | None = None
        self._ledger: LedgerLink | None = None
        self._ledger_socket: Path | None = None
        self._recorder: RecorderLink | None = None
        self._api_url = ""
        self._drained: tuple[str, ...] = ()
        self._budgets = Budgets((), 0.0)
        """What the ledger process was told."""

    def __repr__(self) -> str:
        return f"Supervisor({self._phase}, {self._pool.snapshots() if self._pool is not None else ()})"

    async def run(self) -> int:
        """Serve until told to stop. `ConfigurationError` before anything was started when an address cannot be opened."""
        with contextlib.ExitStack() as cleanup:
            server, admin = self._configuration.server, self._configuration.admin
            api = sockets.Address(server.host, server.port, "server")
            private = sockets.Address(admin.host, admin.port, "admin")
            listeners = sockets.open_shared(api, server.workers)
            cleanup.callback(sockets.close_all, listeners)
            admin_listener = sockets.open_single(private)
            cleanup.callback(admin_listener.close)
            endpoints = Endpoints(
                api=api.url(sockets.port_of(listeners[0]), scheme="https" if server.tls is not None else "http"),
                admin=private.url(sockets.port_of(admin_listener)),
            )
            make_private(self._state_directory)
            cleanup.enter_context(held(self._state_directory))
            cleanup.callback(forget_endpoints, self._state_directory)
            self._counter_socket = self._choose_counter_socket(cleanup)
            self._install_signals()
            await self._supervise(listeners, admin_listener, endpoints)
        if self._failure is not None:
            _LOG.error("node.failed %s", self._failure.message)
            return Exit.USAGE if isinstance(self._failure, ConfigurationError) else Exit.FAILED
        return Exit.FAILED if self._forced.is_set() else Exit.OK

    def stop(self) -> None:
        """End in order; called a second time, at once."""
        if self._stopping.is_set() and not self._forced.is_set():
            _LOG.warning("node.stop_forced running requests are cut")
            self._forced.set()
        self._stopping.set()

    def reload(self) -> None:
        """Take up the configuration anew, as soon as no other reload is running."""
        self._reload_wanted.set()

    async def snapshot(self) -> NodeSnapshot:
        if self._pool is not None:
            await self._pool.refresh()
        return NodeSnapshot(
            version=self._options.version,
            phase=self._phase,
            started_at=self._options.started_at,
            workers=self._pool.snapshots() if self._pool is not None else (),
            statistics=self._pool_statistics(),
            engine=_engine_snapshot(self._engine_state),
            counting=self._counting_snapshot(),
            ledger=self._ledger.snapshot() if self._ledger is not None else None,
            recorder=self._recorder.snapshot() if self._recorder is not None else None,
            spans=self._recorder.spans() if self._recorder is not None else None,
            reloads=self._reloads,
            drained=self._drained,
        )

    # ── what the console asks for ─────────────────────────────────────────────

    @property
    def configuration(self) -> Configuration:
        return self._configuration

    @property
    def api_url(self) -> str:
        return self._api_url

    @property
    def asker(self) -> Asker | None:
        return self._recorder.asker if self._recorder is not None else None

    async def limit_levels(self) -> tuple[LimitLevel, ...]:
        return await self._pool.limit_levels() if self._pool is not None else ()

    async def drain(self, name: str, *, drained: bool) -> None:
        known = {upstream.name for upstream in (await self.snapshot()).statistics.upstreams}
        known |= {each.replica for upstream in self._pool_statistics().upstreams for each in upstream.replicas}
        if drained and name not in known:
            raise ReplicaNotFound(f"There is no upstream or replica {name[:64]!r}. GET /admin/upstreams names them.", param="name")
        self._drained = tuple(sorted({*self._drained, name} if drained else {*self._drained} - {name}))
        if self._pool is not None:
            await self._pool.drain_replicas(self._drained)

    def _pool_statistics(self) -> WorkerStatistics:
        return self._pool.statistics() if self._pool is not None else WorkerStatistics(ready=False)

    # ── start and end ─────────────────────────────────────────────────────────

    async def _supervise(self, listeners: list[socket.socket], admin_listener: socket.socket, endpoints: Endpoints) -> None:
        admin = AdminServer(self, admin_listener, self._state_directory / self._options.keys_file)
        pool = self._pool = WorkerPool(listeners, first_message=self._first_message, command=self._options.worker_command)
        async with asyncio.TaskGroup() as tasks:
            serving_admin = tasks.create_task(admin.serve(), name="admin")
            companions = [tasks.create_task(self._start_counting().run(), name="counting")]
            if needs_ledger(self._configuration):
                companions.append(tasks.create_task(self._start_ledger().run(), name="ledger"))
            if is_recorder_wanted(self._configuration):
                companions.append(tasks.create_task(self._start_recorder().run(), name="recorder"))
            chores = [
                tasks.create_task(self._refresh_statistics(pool), name="statistics"),
                tasks.create_task(self._pass_on_engine_changes(pool), name="engine-changes"),
                tasks.create_task(self._reload_when_wanted(pool), name="reloads"),
                tasks.create_task(self._kill_when_forced(pool), name="forced-end"),
            ]
            try:
                await self._start_engine()
                for slot in pool.slots:
                    tasks.create_task(self._keep(slot), name=f"worker-{slot.index}")
                await self._wait_started(pool, endpoints)
                await self._stopping.wait()
            finally:
                await self._end(pool, listeners)
                for chore in (*chores, *companions):
                    chore.cancel()
                admin.stop()
                await serving_admin

    async def _wait_started(self, pool: WorkerPool, endpoints: Endpoints) -> None:
        """Return when the node serves, or is to stop before it does."""
        started = asyncio.ensure_future(pool.wait_started())
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((started, stopping), timeout=START_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiter in (started, stopping):
                waiter.cancel()
        if self._stopping.is_set():
            return
        if not pool.started:
            self._fail(
                InternalError(f"The workers did not accept connections within {START_S:.0f} s. The log lines before this one say why.")
            )
            return
        self._phase = NodePhase.RUNNING
        self._api_url = endpoints.api
        await asyncio.to_thread(write_endpoints, self._state_directory, endpoints)
        _LOG.info("node.listening api=%s admin=%s workers=%d pid=%d", endpoints.api, endpoints.admin, len(pool.slots), os.getpid())
        if self._options.on_listening is not None:
            self._options.on_listening(endpoints)

    async def _end(self, pool: WorkerPool, listeners: Sequence[socket.socket]) -> None:
        self._phase = NodePhase.DRAINING
        timeout_s = self._configuration.server.drain_timeout_s
        running = await self._count_running(pool)
        hint = " waits for them; a second signal stops at once" if running else ""
        _LOG.info("node.stopping requests_running=%d drain_timeout_s=%g%s", running, timeout_s, hint)
        sockets.close_all(listeners)  # the workers hold the last references: connections are refused as soon as they stop accepting
        interrupted = await pool.drain(timeout_s)
        if self._engine is not None:
            await self._engine.aclose()
        _LOG.info("node.stopped interrupted=%d", interrupted)

    async def _kill_when_forced(self, pool: WorkerPool) -> None:
        await self._forced.wait()
        await self._count_running(pool)  # they are what is cut
        pool.kill()
        for companion in (self._counting, self._ledger, self._recorder):
            if companion is not None:
                companion.kill()

    async def _count_running(self, pool: WorkerPool) -> int:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_COUNT_S):
                await pool.refresh()
        return int(pool.statistics().levels.get(RUNNING, 0.0))

    async def _keep(self, slot: WorkerSlot) -> None:
        try:
            await slot.run()
        except TidegateError as error:
            self._fail(error)

    def _fail(self, error: TidegateError) -> None:
        """End the node in order because of this; the first failure is the one reported."""
        if self._failure is None:
            self._failure = error
        self._stopping.set()

    def _install_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.stop)
        loop.add_signal_handler(signal.SIGHUP, self.reload)

    # ── the other processes ───────────────────────────────────────────────────

    def _first_message(self, index: int) -> control.Start:
        return control.Start(
            configuration=self._configuration,
            index=index,
            workers=self._configuration.server.workers,
            state_directory=str(self._state_directory),
            engine=self._engine_state,
            counter_socket=None if self._counter_socket is None else str(self._counter_socket),
            log_format=str(self._options.log_format),
            ledger_socket=None if self._ledger_socket is None else str(self._ledger_socket),
            drained=self._drained,
        )

    def _choose_counter_socket(self, cleanup: contextlib.ExitStack) -> Path:
        """Give a path in the state directory, or in a private temporary one when that would be too long for a socket.

        Workers keep their own sockets beside it.
        """
        path = self._state_directory.absolute() / "counting.sock"
        if len(bytes(path)) <= MAX_SOCKET_PATH_BYTES - _LONGER_NAME:
            return path
        directory = Path(tempfile.mkdtemp(prefix="tidegate-"))
        cleanup.callback(shutil.rmtree, directory, ignore_errors=True)
        return directory / "counting.sock"

    def _start_counting(self) -> Companion:
        limit = self._configuration.server.max_body_bytes
        arguments = ("--socket", str(self._counter_socket), "--max-body-bytes", str(limit))
        self._counting = Companion("counting", (*self._options.counting_command, *arguments))
        return self._counting

    def _start_ledger(self) -> LedgerLink:
        assert self._counter_socket is not None
        socket_path = self._ledger_socket = self._counter_socket.with_name("ledger.sock")
        arguments = ("--socket", str(socket_path), "--log-format", str(self._options.log_format))
        self._budgets = budgets_of(self._configuration, now=wall_clock())
        environment = ledger_environment(self._configuration, self._state_directory, self._budgets)
        command = (*self._options.ledger_command, *arguments)
        self._ledger = LedgerLink(Companion("ledger", command, policy=LEDGER_POLICY, environment=environment), socket_path)
        return self._ledger

    def _start_recorder(self) -> RecorderLink:
        assert self._counter_socket is not None
        socket_path = self._counter_socket.with_name("recorder.sock")
        options = self._options
        self._recorder = RecorderLink(
            self._configuration,
            socket_path,
            sampled=lambda: sampling_plan(self._configuration, self._engine_state),
            log_format=options.log_format,
            command=options.recorder_command,
        )
        return self._recorder

    async def _start_engine(self) -> None:
        if not self._configuration.local_engine.enabled:
            return
        self._engine = EngineSupervisor(engine_settings(self._configuration), on_state=self._take_engine_state)
        await self._engine.start()

    def _take_engine_state(self, state: EngineState) -> None:
        self._engine_state = state
        self._engine_changed.set()
        if self._options.on_engine is not None:
            self._options.on_engine(state)

    async def _pass_on_engine_changes(self, pool: WorkerPool) -> None:
        """Tell the workers of the latest state; states that were overtaken meanwhile are skipped."""
        while True:
            await self._engine_changed.wait()
            self._engine_changed.clear()
            if self._engine_state is not None:
                await pool.announce_engine(self._engine_state)

    async def _refresh_statistics(self, pool: WorkerPool) -> None:
        while True:
            await asyncio.sleep(REFRESH_S)
            await pool.refresh()

    def _counting_snapshot(self) -> CountingSnapshot:
        if self._counting is None:
            return CountingSnapshot(running=False, restarts=0)
        statistics = self._counting.statistics()
        return CountingSnapshot(running=statistics.running, restarts=statistics.restarts)

    # ── reload ────────────────────────────────────────────────────────────────

    async def _reload_when_wanted(self, pool: WorkerPool) -> None:
        while True:
            await self._reload_wanted.wait()
            self._reload_wanted.clear()
            try:
                await self._reload(pool)
            except TidegateError as error:
                self._reloads = ReloadSnapshot(self._reloads.succeeded, self._reloads.refused + 1, error.message)
                _LOG.error("configuration.reload_refused Nothing was changed. %s", error.message)
            else:
                self._reloads = ReloadSnapshot(self._reloads.succeeded + 1, self._reloads.refused)
                _LOG.info("configuration.reloaded workers=%d", len(pool.slots))

    async def _reload(self, pool: WorkerPool) -> None:
        update = await asyncio.to_thread(self._options.load)
        obstacles = reload_obstacles(self._configuration, update)
        if obstacles:
            raise ConfigurationError(" ".join(obstacles))
        prepared = await pool.prepare(update)
        try:
            await self._tell_ledger(update)
        except TidegateError:
            await pool.abort(prepared)
            raise
        self._configuration = update  # before the commit: a worker that is restarted from here on starts with it
        await pool.commit(prepared)

    async def _tell_ledger(self, update: Configuration) -> None:
        """Have new budgets begin where they stand in the books, before any worker keeps them."""
        if self._ledger is None:
            return
        assert self._ledger_socket is not None
        budgets = budgets_of(update, now=wall_clock(), before=self._budgets)
        added = added_budgets(budgets, self._budgets)
        if added.rules and asks_books(update):
            await begin_budgets(self._ledger_socket, added)
        self._budgets = budgets
        self._ledger.will_know(ledger_environment(update, self._state_directory, budgets))


def _engine_snapshot(state: EngineState | None) -> EngineSnapshot | None:
    if state is None:
        return None
    return EngineSnapshot(
        phase=str(state.phase),
        pid=state.pid,
        restarts=state.restarts,
        cold_ttft_s=state.cold_ttft_s,
        warm_ttft_s=state.warm_ttft_s,
        last_error=state.last_error,
    )
