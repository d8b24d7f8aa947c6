"""What the admin port knows of the node: one frozen snapshot, and the port through which it asks for one."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

import msgspec

from tidegate.domain.statistics import WorkerStatistics


class NodePhase(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    DRAINING = "draining"


class WorkerSnapshot(msgspec.Struct, frozen=True):
    """One worker as the supervisor knows it."""

    index: int
    phase: str
    """`starting`, `ready`, `waiting` (it died and is started again after a pause), `draining`, `ended`."""
    pid: int | None
    restarts: int
    responsive: bool
    """It answered the last question in time."""
    serving: bool
    """It accepts connections and can use at least one upstream."""


class EngineSnapshot(msgspec.Struct, frozen=True):
    """The local engine, without its address and key."""

    phase: str
    pid: int | None
    restarts: int
    cold_ttft_s: float | None
    warm_ttft_s: float | None
    last_error: str | None


class CountingSnapshot(msgspec.Struct, frozen=True):
    running: bool
    restarts: int


class ReloadSnapshot(msgspec.Struct, frozen=True):
    """Reloads of the configuration since the start."""

    succeeded: int = 0
    refused: int = 0
    last_refusal: str | None = None
    """Why the last one was refused; None when it succeeded or there was none."""


class NodeSnapshot(msgspec.Struct, frozen=True):
    """The node at one instant."""

    version: str
    phase: NodePhase
    started_at: float
    """Seconds since the epoch."""
    workers: tuple[WorkerSnapshot, ...] = ()
    statistics: WorkerStatistics = WorkerStatistics()
    """The sum over the workers, ended ones included."""
    engine: EngineSnapshot | None = None
    """None when the configuration has no local engine."""
    counting: CountingSnapshot = CountingSnapshot(running=False, restarts=0)
    reloads: ReloadSnapshot = ReloadSnapshot()

    @property
    def ready(self) -> bool:
        """True when some worker accepts work that some upstream may answer."""
        return self.phase is NodePhase.RUNNING and any(worker.serving for worker in self.workers)


class NodeView(Protocol):
    """Implemented by the supervisor."""

    async def snapshot(self) -> NodeSnapshot:
        """Ask the workers and sum what they say; a worker that does not answer in time is marked, not waited for."""
