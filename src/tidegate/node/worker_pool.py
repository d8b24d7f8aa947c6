"""Keeps the workers running, speaks to all of them, and sums what they report.

A worker that dies is started again on the same socket after a growing pause; one that keeps dying ends the node, because something is
wrong that restarts do not mend. A reload is prepared by every worker before any commits.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Sequence
from enum import StrEnum

import msgspec

from tidegate.adapters.engine.settings import EngineState
from tidegate.admin.view import WorkerSnapshot
from tidegate.config.schema import Configuration
from tidegate.domain.statistics import LimitLevel, WorkerStatistics, fullness, retired, total
from tidegate.errors import ConfigurationError, InternalError, TidegateError
from tidegate.node import control
from tidegate.node.companion import how_it_ended
from tidegate.node.restarts import RestartPolicy, Restarts
from tidegate.node.worker_link import WORKER_COMMAND, WorkerLink

DRAIN_GRACE_S = 10.0
"""What a worker may take beyond its drain time to interrupt, flush and exit, before it is killed."""
HELLO_S = 5.0
"""Until a fresh process has taken its first message."""

_LOG = logging.getLogger("tidegate.node")


class WorkerPhase(StrEnum):
    STARTING = "starting"
    READY = "ready"
    WAITING = "waiting"
    """It died, and is started again after a pause."""
    DRAINING = "draining"
    ENDED = "ended"


class WorkerSlot:
    """One worker's place: its socket, and one process after the other."""

    def __init__(
        self,
        index: int,
        listener: socket.socket,
        *,
        first_message: Callable[[int], control.Start],
        command: Sequence[str],
        policy: RestartPolicy,
    ) -> None:
        self.index = index
        self.phase = WorkerPhase.STARTING
        self.link: WorkerLink | None = None
        self.responsive = True
        self.was_ready = asyncio.Event()
        """Set once the first process accepted connections."""
        self.ended = asyncio.Event()
        """Set when no further process will be started and none is left."""
        self._listener = listener
        self._first_message = first_message
        self._command = command
        self._restarts = Restarts(policy)
        self._stopping = asyncio.Event()
        self._retired = WorkerStatistics()

    def __repr__(self) -> str:
        return f"WorkerSlot({self.index}, {self.phase}, restarts={self._restarts.count})"

    async def run(self) -> None:
        """Keep a worker here until `drain` or `kill`; `TidegateError` when that cannot be done."""
        loop = asyncio.get_running_loop()
        try:
            while not self._stopping.is_set():
                began = loop.time()
                self.phase = WorkerPhase.STARTING
                how = await self._one_life()
                if self._stopping.is_set():
                    return
                pause_s = self._restarts.died(lived_s=loop.time() - began, now=loop.time())
                if pause_s is None:
                    raise InternalError(
                        f"Worker {self.index} {how}, too often in a short time; giving up. The log lines before this one say why it ends."
                    )
                _LOG.warning("worker.exited index=%d %s; the next one starts in %.1f s", self.index, how, pause_s)
                self.phase = WorkerPhase.WAITING
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await self._stopping.wait()
        finally:
            self.phase = WorkerPhase.ENDED
            self.ended.set()

    async def drain(self, timeout_s: float) -> int:
        """End the worker in order; give how many requests had to be interrupted or were cut. Killed when it takes too long."""
        self._stopping.set()
        self.phase = WorkerPhase.DRAINING
        link = self.link
        if link is not None:
            try:
                await link.send(control.Drain(timeout_s))
            except control.ControlError:
                link.kill()
        try:
            async with asyncio.timeout(timeout_s + DRAIN_GRACE_S):
                await self.ended.wait()
        except TimeoutError:
            _LOG.error("worker.drain_timed_out index=%d; it is killed", self.index)
            self.kill()
            await self.ended.wait()
        return link.cut if link is not None else 0

    def kill(self) -> None:
        """End the worker at once."""
        self._stopping.set()
        if self.link is not None:
            self.link.kill()

    def statistics(self) -> WorkerStatistics:
        """This worker's report, with the counters of those before it."""
        current = self.link.statistics if self.link is not None else WorkerStatistics(ready=False)
        return msgspec.structs.replace(total((current, self._retired)), ready=current.ready)

    async def refresh(self) -> None:
        link = self.link
        if link is not None and link.ready.is_set():
            responsive = await link.refresh_statistics()
            if not responsive and self.responsive and link.ready.is_set():
                _LOG.warning("worker.unresponsive index=%d pid=%d; its last figures are shown", self.index, link.pid)
            self.responsive = responsive

    def snapshot(self) -> WorkerSnapshot:
        link = self.link
        serving = link is not None and self.responsive and self.phase is WorkerPhase.READY and link.statistics.ready
        return WorkerSnapshot(
            index=self.index,
            phase=self.phase,
            pid=link.pid if link is not None else None,
            restarts=self._restarts.count,
            responsive=self.responsive,
            serving=serving,
        )

    async def _one_life(self) -> str:
        """Run one process from start to end; say how it ended."""
        try:
            link = await WorkerLink.spawn(self._listener, self._command)
        except OSError as error:
            return f"could not be started ({error})"
        self.link = link
        if self._stopping.is_set():  # told to end while it was being started
            link.kill()
        try:
            await self._talk(link)
            code = await link.exited()
        finally:
            link.kill()
            await link.exited()
            self.link = None
            self._retired = total((self._retired, retired(link.statistics), _lost_with(link)))
        if link.refusal is not None and not self.was_ready.is_set():
            raise ConfigurationError(link.refusal)
        return link.refusal or how_it_ended(code)

    async def _talk(self, link: WorkerLink) -> None:
        def on_ready() -> None:
            self.phase = WorkerPhase.READY
            self.responsive = True
            self.was_ready.set()
            _LOG.info("worker.started index=%d pid=%d", self.index, link.pid)

        try:
            async with asyncio.timeout(HELLO_S):
                await link.send(self._first_message(self.index))
            await link.converse(on_ready)
        except (control.ControlError, TimeoutError) as error:
            _LOG.error("worker.control_lost index=%d %s", self.index, str(error) or "it took no message")
            link.kill()


def _lost_with(link: WorkerLink) -> WorkerStatistics:
    """Count what ran in a worker that died: those requests were cut, and their records went with them. By its last report."""
    return WorkerStatistics(counters={"workers.requests_lost": 0.0 if link.said_goodbye else float(link.cut)})


class WorkerPool:
    """All workers of the node."""

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        *,
        first_message: Callable[[int], control.Start],
        command: Sequence[str] = WORKER_COMMAND,
        policy: RestartPolicy | None = None,
    ) -> None:
        self.slots = tuple(
            WorkerSlot(index, listener, first_message=first_message, command=command, policy=policy or RestartPolicy())
            for index, listener in enumerate(listeners)
        )

    async def wait_started(self) -> None:
        """Return when every worker has accepted connections once."""
        await asyncio.gather(*(slot.was_ready.wait() for slot in self.slots))

    @property
    def started(self) -> bool:
        return all(slot.was_ready.is_set() for slot in self.slots)

    async def announce_engine(self, state: EngineState) -> None:
        """Tell every worker where the engine is; one that does not listen is killed, and told at its restart."""
        for link in self._links():
            try:
                await link.send(control.EngineChanged(state))
            except control.ControlError:
                link.kill()

    async def drain_replicas(self, names: tuple[str, ...]) -> None:
        """Tell every worker what is out of service; one that does not listen is killed, and told at its restart."""
        for link in self._links():
            try:
                await link.send(control.DrainReplicas(names))
            except control.ControlError:
                link.kill()

    async def limit_levels(self) -> tuple[LimitLevel, ...]:
        """Ask every worker how full limits are; of a counter that several know, the word of the one with the least left."""
        fullest: dict[str, LimitLevel] = {}
        for levels in await asyncio.gather(*(link.limit_levels() for link in self._links() if link.ready.is_set())):
            for level in levels:
                known = fullest.get(level.counter)
                if known is None or level.left < known.left:
                    fullest[level.counter] = level
        return tuple(sorted(fullest.values(), key=fullness, reverse=True))

    async def refresh(self) -> None:
        """Ask every worker for its statistics."""
        await asyncio.gather(*(slot.refresh() for slot in self.slots))

    async def prepare(self, configuration: Configuration) -> tuple[WorkerLink, ...]:
        """Have every worker make a configuration ready; when one refuses, all forget it and `TidegateError` says why."""
        links = self._links()
        if len(links) < len(self.slots) or not all(link.ready.is_set() for link in links):
            raise InternalError("A worker is being restarted at this moment; reload again when it is ready.")
        outcomes = await asyncio.gather(*(link.prepare(configuration) for link in links), return_exceptions=True)
        failed = next((outcome for outcome in outcomes if isinstance(outcome, BaseException)), None)
        if failed is None:
            return links
        await self.abort(links)
        if isinstance(failed, TidegateError):
            raise failed
        raise InternalError(f"A worker could not prepare the configuration: {failed!r}.") from failed

    async def abort(self, links: Sequence[WorkerLink]) -> None:
        """Have those that prepared forget it."""
        await asyncio.gather(*(link.abort() for link in links))

    async def commit(self, links: Sequence[WorkerLink]) -> None:
        """Have those that prepared use it. One that cannot is killed: its successor starts with the configuration."""
        outcomes = await asyncio.gather(*(link.commit() for link in links), return_exceptions=True)
        for link, outcome in zip(links, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                _LOG.error("worker.commit_failed pid=%d %s; it is replaced", link.pid, outcome)
                link.kill()

    async def drain(self, timeout_s: float) -> int:
        return sum(await asyncio.gather(*(slot.drain(timeout_s) for slot in self.slots)))

    def kill(self) -> None:
        for slot in self.slots:
            slot.kill()

    def statistics(self) -> WorkerStatistics:
        return total(slot.statistics() for slot in self.slots)

    def snapshots(self) -> tuple[WorkerSnapshot, ...]:
        return tuple(slot.snapshot() for slot in self.slots)

    def _links(self) -> tuple[WorkerLink, ...]:
        return tuple(slot.link for slot in self.slots if slot.link is not None)
