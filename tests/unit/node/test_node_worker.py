"""One worker's life on both ends of its control channel, with fakes for its data plane and server."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from tidegate.adapters.engine.settings import EnginePhase, EngineState
from tidegate.config.schema import Configuration
from tidegate.config.schema_limits import LimitsSection
from tidegate.domain.statistics import LimitLevel, WorkerStatistics
from tidegate.errors import ConfigurationError
from tidegate.http.outbox import Outbox
from tidegate.node import control, worker
from tidegate.node.exits import Exit
from tidegate.ports import Application, Exchange, ExchangeReceiver

DEADLINE_S = 5.0
LEVEL = LimitLevel("r;tenant=a", "r", "tenant=a", "tokens", "sliding", 100, 40, 60, is_shadow=False)


class FakeWorker:
    """Notes what it is told; `running` requests end only by interruption or by the test."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.running = 0
        self.idle = asyncio.Event()
        self.idle.set()
        self.stopped_accepting = asyncio.Event()
        self.engine: EngineState | None = None
        self.drained: tuple[str, ...] = ()
        self.configuration = Configuration()
        self.server_configuration = Configuration()
        self.close_s = 0.0
        self.outbox = Outbox(asyncio.get_running_loop())
        self.preparing = asyncio.Event()
        self.may_prepare = asyncio.Event()
        self.may_prepare.set()
        self.cancelled = 0

    def run(self, requests: int) -> None:
        """Have this many requests running."""
        self.running = requests
        if requests:
            self.idle.clear()
        else:
            self.idle.set()

    @property
    def peer_socket(self) -> None:
        return None

    @property
    def application(self) -> Application:
        def refuse(exchange: Exchange) -> ExchangeReceiver:
            raise AssertionError(exchange)

        return refuse

    async def prepare(self, configuration: Configuration) -> Configuration:
        self.preparing.set()
        try:
            await self.may_prepare.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if configuration.limits.concurrency == 1:
            raise ConfigurationError("One at a time is too few.")
        if configuration.limits.concurrency == 3:
            raise ZeroDivisionError("a bug")
        return configuration

    def commit(self, prepared: Configuration) -> None:
        self.configuration = prepared

    def drain_replicas(self, names: Collection[str]) -> None:
        self.drained = tuple(names)

    def limit_levels(self) -> tuple[LimitLevel, ...]:
        return (LEVEL,)

    def set_engine(self, state: EngineState) -> None:
        self.engine = state

    def statistics(self) -> WorkerStatistics:
        return WorkerStatistics(levels={"gateway.requests_running": float(self.running)})

    def begin_drain(self) -> None:
        self.told.append("begin_drain")

    def interrupt_all(self) -> int:
        self.told.append("interrupt_all")
        interrupted = self.running
        self.run(0)
        return interrupted

    async def aclose(self) -> None:
        await asyncio.sleep(self.close_s)
        self.told.append("aclose")


class FakeServer:
    """Is drained when its worker has nothing running."""

    def __init__(self, data_plane: FakeWorker) -> None:
        self.data_plane = data_plane

    def reconfigure(self, configuration: Configuration) -> None:
        self.data_plane.server_configuration = configuration

    def stop_accepting(self) -> None:
        self.data_plane.told.append("stop_accepting")
        self.data_plane.stopped_accepting.set()

    async def wait_drained(self, deadline_s: float) -> bool:
        try:
            async with asyncio.timeout(deadline_s):
                await self.data_plane.idle.wait()
        except TimeoutError:
            return False
        return True

    def abort_all(self) -> None:
        self.data_plane.told.append("abort_all")

    def figures(self) -> tuple[dict[str, float], dict[str, float]]:
        return {"server.connections": 1.0}, {"server.requests": 2.0}


class Scene:
    """A worker process as a task, seen from its supervisor's end."""

    def __init__(self, channel: control.Channel[control.FromWorker], data_plane: FakeWorker, process: asyncio.Task[int]) -> None:
        self.channel = channel
        self.data_plane = data_plane
        self.process = process

    async def receive(self) -> control.FromWorker | None:
        async with asyncio.timeout(DEADLINE_S):
            return await self.channel.receive()

    async def exit_code(self) -> int:
        async with asyncio.timeout(DEADLINE_S):
            return await self.process


def start_message(**settings: Any) -> control.Start:
    message = control.Start(
        configuration=Configuration(), index=0, workers=1, state_directory="state", engine=None, counter_socket=None, log_format="logfmt"
    )
    return msgspec.structs.replace(message, **settings)


@asynccontextmanager
async def opened(*, refusal: str | None = None, drained: tuple[str, ...] = ()) -> AsyncIterator[Scene]:
    """Run `worker.serve` with fakes, `Start` already sent."""
    ours, theirs = socket.socketpair()
    listener = socket.socket()
    data_plane = FakeWorker()

    async def open_worker(_: Configuration, **__: Any) -> worker.Worker[Configuration]:
        if refusal is not None:
            raise ConfigurationError(refusal)
        return data_plane

    async def listen(*_: Any, **__: Any) -> worker.Listening:
        return FakeServer(data_plane)

    channel = await control.supervisor_channel(ours)
    worker_end = await control.worker_channel(theirs)
    process = asyncio.create_task(worker.serve(worker_end, listener, open_worker=open_worker, listen=listen, on_start=lambda _: None))
    scene = Scene(channel, data_plane, process)
    await channel.send(start_message(drained=drained))
    try:
        yield scene
    finally:
        channel.close()
        await asyncio.wait([process], timeout=DEADLINE_S)
        worker_end.close()
        listener.close()
        await asyncio.sleep(0)


def test_an_idle_worker_drains_in_order() -> None:
    """Not ready, then no more connections, then the end with the last figures."""

    async def scenario() -> None:
        async with opened() as scene:
            assert await scene.receive() == control.Ready()
            await scene.channel.send(control.Drain(timeout_s=DEADLINE_S))
            last = await scene.receive()
            assert isinstance(last, control.Drained)
            assert (last.interrupted, last.statistics.counters) == (0, {"server.requests": 2.0})
            assert await scene.exit_code() == Exit.OK
            assert scene.data_plane.told == ["begin_drain", "stop_accepting", "interrupt_all", "abort_all", "aclose"]

    asyncio.run(scenario())


def test_a_worker_keeps_replicas_out_of_service_and_tells_how_full_limits_are() -> None:
    """What is out of service when it starts, and what is said later."""

    async def scenario() -> None:
        async with opened(drained=("a/0",)) as scene:
            await scene.receive()
            assert ("a/0",) == scene.data_plane.drained
            await scene.channel.send(control.DrainReplicas(("b",)))
            await scene.channel.send(control.GetLimits(request=7))
            assert control.LimitsReport(7, (LEVEL,)) == await scene.receive()
            assert ("b",) == scene.data_plane.drained

    asyncio.run(scenario())


def test_running_requests_are_waited_for() -> None:
    """A request that ends within the time is not interrupted."""

    async def scenario() -> None:
        async with opened() as scene:
            await scene.receive()
            scene.data_plane.run(1)
            await scene.channel.send(control.Drain(timeout_s=DEADLINE_S))
            await scene.data_plane.stopped_accepting.wait()
            scene.data_plane.run(0)
            last = await scene.receive()
            assert isinstance(last, control.Drained)
            assert last.interrupted == 0

    asyncio.run(scenario())


def test_what_runs_beyond_the_time_is_interrupted_and_counted() -> None:
    """After the drain time the rest is interrupted, and records are flushed after that."""

    async def scenario() -> None:
        async with opened() as scene:
            await scene.receive()
            scene.data_plane.run(3)
            await scene.channel.send(control.Drain(timeout_s=0.01))
            last = await scene.receive()
            assert isinstance(last, control.Drained)
            assert last.interrupted == 3
            assert scene.data_plane.told[-3:] == ["interrupt_all", "abort_all", "aclose"]

    asyncio.run(scenario())


def test_a_worker_whose_supervisor_is_gone_interrupts_at_once() -> None:
    """Nobody would restart or stop it; it does not wait for its drain time of 30 s."""

    async def scenario() -> None:
        async with opened() as scene:
            await scene.receive()
            scene.data_plane.run(1)
            scene.channel.close()
            assert await scene.exit_code() == Exit.OK
            assert "interrupt_all" in scene.data_plane.told

    asyncio.run(scenario())


def test_the_supervisor_dying_during_a_drain_shortens_it() -> None:
    """The rest of the drain time is not waited for."""

    async def scenario() -> None:
        async with opened() as scene:
            await scene.receive()
            scene.data_plane.run(1)
            await scene.channel.send(control.Drain(timeout_s=60.0))
            await scene.data_plane.stopped_accepting.wait()
            scene.channel.close()
            assert await scene.exit_code() == Exit.OK

    asyncio.run(scenario())


def test_statistics_join_worker_and_server_even_while_draining() -> None:
    """A scrape during a drain sees what is left, and that the worker is not ready."""

    async def scenario() -> None:
        async with opened() as scene:
            await scene.receive()
            await scene.channel.send(control.GetStatistics(1))
            report = await scene.receive()
            assert isinstance(report, control.StatisticsReport)
            assert (report.request, report.statistics.ready) == (1, True)
            assert report.statistics.levels == {"server.connections": 1.0, "gateway.requests_running": 0.0}
            scene.data_plane.run(1)
            await scene.channel.send(control.Drain(timeout_s=DEADLINE_S))
            await scene.channel.send(control.GetStatistics(2))
            report = await scene.receive()
            assert isinstance(report, control.StatisticsReport)
            assert (report.request, report.statistics.ready) == (2, False)
            scene.data_plane.run(0)
            await scene.exit_code()

    asyncio.run(scenario())


def test_a_prepared_configuration_is_used_only_after_the_commit() -> None:
    """Two phases: prepare changes nothing, abort forgets, commit uses."""
    update = Configuration(limits=LimitsSection(concurrency=2))

    async def scenario() -> None:
        async with opened() as scene:
            await scene.receive()
            await scene.channel.send(control.PrepareReload(1, update))
            assert await scene.receive() == control.ReloadPrepared(1)
            assert (scene.data_plane.configuration, scene.data_plane.server_configuration) == (Configuration(), Configuration())
            await scene.channel.send(control.CommitReload(2))
            assert await scene.receive() == control.ReloadCommitted(2)
            assert (scene.data_plane.configuration, scene.data_plane.server_configuration) == (update, update)

    asyncio.run(scenario())


def test_a_configuration_that_cannot_be_prepared_is_refused_with_its_reason() -> None:
    """The reason reaches the supervisor; the worker goes on as it was."""

    async def scenario() -> None:
        async with opened() as scene:
            await scene.receive()
            await scene.channel.send(control.PrepareReload(1, Configuration(limits=LimitsSection(concurrency=1))))
            assert await scene.receive() == control.ReloadRefused(1, "One at a time is too few.")
            await scene.channel.send(control.GetStatistics(2))
            assert isinstance(await scene.receive(), control.StatisticsReport)

    asyncio.run(scenario())


def test_a_fault_while_preparing_is_a_refusal() -> None:
    """A bug of ours in a reload does not end the streams that run: the worker says no, and goes on as it was."""

    async def scenario() -> None:
        async with opened() as scene:
            await scene.receive()
            await scene.channel.send(control.PrepareReload(1, Configuration(limits=LimitsSection(concurrency=3))))
            refused = await scene.receive()
            assert isinstance(refused, control.ReloadRefused)
            assert (refused.request, "a bug" in refused.reason) == (1, True)
            await scene.channel.send(control.PrepareReload(2, Configuration(limits=LimitsSection(concurrency=2))))
            assert await scene.receive() == control.ReloadPrepared(2)

    asyncio.run(scenario())


def test_a_preparation_that_waits_holds_nothing_up() -> None:
    """Statistics are answered meanwhile; the next reload or an abort ends it, and a drain does not wait for it."""

    async def scenario() -> None:
        async with opened() as scene:
            await scene.receive()
            data_plane = scene.data_plane
            data_plane.may_prepare.clear()
            await scene.channel.send(control.PrepareReload(1, Configuration()))
            await data_plane.preparing.wait()
            await scene.channel.send(control.GetStatistics(2))
            assert isinstance(await scene.receive(), control.StatisticsReport)
            await scene.channel.send(control.AbortReload())
            await scene.channel.send(control.PrepareReload(3, Configuration()))
            await scene.channel.send(control.PrepareReload(4, Configuration()))
            await scene.channel.send(control.GetStatistics(5))
            assert isinstance(await scene.receive(), control.StatisticsReport)
            assert data_plane.cancelled >= 1
            await scene.channel.send(control.Drain(timeout_s=0.0))
            assert isinstance(await scene.receive(), control.Drained)
            assert await scene.exit_code() == Exit.OK

    asyncio.run(scenario())


def test_the_engine_is_passed_on() -> None:
    """A worker learns of every change of the engine."""
    state = EngineState(phase=EnginePhase.READY, base_url="http://127.0.0.1:1/v1", pid=1)

    async def scenario() -> None:
        async with opened() as scene:
            await scene.receive()
            await scene.channel.send(control.EngineChanged(state))
            await scene.channel.send(control.GetStatistics(1))
            await scene.receive()
            assert scene.data_plane.engine == state

    asyncio.run(scenario())


def test_a_worker_that_cannot_start_says_why() -> None:
    """The supervisor gets the sentence, and an exit code that means configuration."""

    async def scenario() -> None:
        async with opened(refusal="No such key set.") as scene:
            assert await scene.receive() == control.StartRefused("No such key set.")
            assert await scene.exit_code() == Exit.USAGE

    asyncio.run(scenario())


def test_a_close_that_hangs_is_cut(monkeypatch: Any) -> None:
    """A stuck disk cannot keep the process for ever."""
    monkeypatch.setattr(worker, "CLOSE_S", 0.01)

    async def scenario() -> None:
        async with opened() as scene:
            await scene.receive()
            scene.data_plane.close_s = 60.0
            await scene.channel.send(control.Drain(timeout_s=0.0))
            assert isinstance(await scene.receive(), control.Drained)
            assert await scene.exit_code() == Exit.OK

    asyncio.run(scenario())


def test_the_state_directory_reaches_the_data_plane_as_a_path() -> None:
    """What travels as text is a path again."""
    seen: list[Any] = []

    async def open_worker(_: Configuration, **settings: Any) -> worker.Worker[Configuration]:
        seen.append((settings["state_directory"], settings["counter_socket"]))
        raise ConfigurationError("enough")

    async def listen(*_: Any, **__: Any) -> worker.Listening:
        raise AssertionError("not reached")

    async def scenario() -> None:
        ours, theirs = socket.socketpair()
        listener = socket.socket()
        channel, worker_end = await control.supervisor_channel(ours), await control.worker_channel(theirs)
        await channel.send(start_message(counter_socket="c.sock"))
        await worker.serve(worker_end, listener, open_worker=open_worker, listen=listen, on_start=lambda _: None)
        channel.close()
        worker_end.close()
        listener.close()
        await asyncio.sleep(0)

    asyncio.run(scenario())
    assert seen == [(Path("state"), Path("c.sock"))]
