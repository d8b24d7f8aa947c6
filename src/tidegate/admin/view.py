"""What the admin port knows of the node: one frozen snapshot, and the port through which it asks for one."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

import msgspec

from tidegate.analytics.asking import Asker
from tidegate.analytics.span_figures import SpanStatistics
from tidegate.config.schema import Configuration
from tidegate.domain.statistics import LimitLevel, WorkerStatistics


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


class RecorderSnapshot(msgspec.Struct, frozen=True):
    """The process that puts records into tables; counts are since its own start, but for `lost_bytes`."""

    running: bool
    restarts: int
    responsive: bool
    """It answered the last question in time; the figures are of its last answer."""
    store_available: bool
    trouble: str = ""
    """Why records wait in their files; empty while they do not."""
    rows: int = 0
    lines: int = 0
    unreadable: int = 0
    """Lines that are no records."""
    expired: int = 0
    """Rows that were too old to be kept."""
    backlog_bytes: int = 0
    """Of record files that are not in the tables yet."""
    lag_s: float = 0.0
    """Age of the oldest record that waits, as far as it is read."""
    lost_bytes: int = 0
    """Of record files that were deleted before they were read, since there are tables."""
    samples_dropped: int = 0


class BooksSnapshot(msgspec.Struct, frozen=True):
    """How entries get into the books; counts are since the ledger process began."""

    trouble: str = ""
    """Why nothing can be entered at this moment; empty when all is well."""
    queued: int = 0
    commits: int = 0
    committed: int = 0
    repeated: int = 0
    """Entries that were sent twice."""
    expired_holds: int = 0


class LedgerSnapshot(msgspec.Struct, frozen=True):
    """The process that shares limits among the workers and keeps the books; counts are since its own start."""

    running: bool
    restarts: int
    responsive: bool
    """It answered the last question in time; the figures are of its last answer."""
    counters: int = 0
    leased_units: int = 0
    expired_units: int = 0
    books: BooksSnapshot | None = None
    """None where none are kept."""


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
    ledger: LedgerSnapshot | None = None
    """None where nothing is shared and no books are kept."""
    recorder: RecorderSnapshot | None = None
    """None where no tables are kept."""
    spans: SpanStatistics | None = None
    """As the recorder process said last; None where no spans are sent."""
    reloads: ReloadSnapshot = ReloadSnapshot()
    drained: tuple[str, ...] = ()
    """Upstreams and replicas that an operator has taken out of service."""

    @property
    def ready(self) -> bool:
        """True when some worker accepts work that some upstream may answer."""
        return self.phase is NodePhase.RUNNING and any(worker.serving for worker in self.workers)


class NodeView(Protocol):
    """Implemented by the supervisor."""

    async def snapshot(self) -> NodeSnapshot:
        """Ask the workers and sum what they say; a worker that does not answer in time is marked, not waited for."""


class NodeDesk(NodeView, Protocol):
    """What the console asks of the node besides figures. Implemented by the supervisor."""

    @property
    def configuration(self) -> Configuration:
        """The one that is in force."""

    @property
    def api_url(self) -> str:
        """Where the API is, without a path; empty before it is served."""

    @property
    def asker(self) -> Asker | None:
        """Whom questions about past requests are put to; None where no tables are kept."""

    async def limit_levels(self) -> tuple[LimitLevel, ...]:
        """Say how full limits are, the fullest first."""

    async def drain(self, name: str, *, drained: bool) -> None:
        """Take a replica, or a whole upstream, out of service or back into it. `ReplicaNotFound` when there is none of that name."""
