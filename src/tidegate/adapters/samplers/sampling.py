"""Reads every source of a plan once an interval, all at the same moment, and hands the rows on in batches.

Invariants: each source has a task and a deadline of its own, so that one which hangs, fails or is missing holds up nobody; after
`FAILURES_TOLD` failures in a row it is told once and left alone for longer and longer; when it is back, that is told once. A plan that
comes again changes nothing. Nothing waits for the store: rows that it does not take are its feed's to drop and to count.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from tidegate.adapters.samplers.opening import DEADLINE_SHARE, open_source
from tidegate.adapters.samplers.plan import DmonSource, NvmlSource, SamplingPlan, SamplingStatistics, Source, SourceState
from tidegate.adapters.samplers.source import Sampler, SourceAbsent, SourceFailed
from tidegate.analytics.rows import Row
from tidegate.analytics.samples import GpuOwners, Sample, sample_row

FAILURES_TOLD: Final = 3
"""In a row, until a source is taken for failing: a server that computes may answer late once."""
LONGEST_PAUSE_S: Final = 60.0
FLUSH_S: Final = 5.0
"""From one batch of rows to the next: a store prefers few large pieces, and nobody looks at figures within a second."""
MAX_SAMPLES: Final = 4_000
"""Taken of one reading: what hundreds of GPUs have."""

_LOG = logging.getLogger("tidegate.recorder")
_decode = msgspec.msgpack.Decoder(SamplingPlan).decode
_encode = msgspec.msgpack.Encoder().encode
Open = Callable[..., Sampler]
Write = Callable[[Sequence[Row]], None]


class _Watch:
    """One source, from its making until its task is cancelled."""

    def __init__(self, source: Source, sampler: Sampler, *, every_s: float, take: Callable[[str, float, Sequence[Sample]], None]) -> None:
        self._sampler = sampler
        self._is_expected = source.is_expected if isinstance(source, NvmlSource | DmonSource) else True
        self._every_s = every_s
        self._take = take
        self._failures = 0
        self.state = SourceState(sampler.name)

    async def run(self, clock: Callable[[], float]) -> None:
        try:
            while not self.state.is_absent:
                pause_s = until_next(self._pause_s(), now=clock(), every_s=self._every_s)
                due = clock() + pause_s
                await asyncio.sleep(pause_s)
                now = clock()
                await self._sample(now, at=due if abs(now - due) < self._every_s / 2 else now)
        finally:
            await self._sampler.aclose()

    def _pause_s(self) -> float:
        """Give the interval, or more after failures."""
        over = self._failures - FAILURES_TOLD
        return self._every_s if over < 0 else max(self._every_s, min(self._every_s * 2.0 ** min(over + 1, 16), LONGEST_PAUSE_S))

    async def _sample(self, now: float, *, at: float) -> None:
        try:
            async with asyncio.timeout(DEADLINE_SHARE * self._every_s):
                samples = (await self._sampler.sample(now=now))[:MAX_SAMPLES]
        except SourceAbsent as error:
            self._absent(error)
        except TimeoutError:
            self._failed(f"it did not answer within {DEADLINE_SHARE * self._every_s:g} s")
        except (SourceFailed, OSError, ValueError) as error:
            self._failed(str(error))
        except Exception as error:  # noqa: BLE001  the task's outermost frame: a fault of ours must not end it
            _LOG.exception("sampling.fault source=%r", self._sampler.name)
            self._failed(repr(error))
        else:
            self._came(samples, at)

    def _came(self, samples: Sequence[Sample], at: float) -> None:
        if self.state.trouble:
            _LOG.info("sampling.source_back %s", self._sampler.name)
        self._failures = 0
        self.state = SourceState(self._sampler.name, self.state.samples + len(samples))
        self._take(self._sampler.name.partition(" ")[0], at, samples)

    def _absent(self, error: SourceAbsent) -> None:
        if self._is_expected:
            self._failed(str(error))
            return
        _LOG.info("sampling.source_absent %s: %s; it is not asked again", self._sampler.name, error)
        self.state = msgspec.structs.replace(self.state, trouble=str(error), is_absent=True)

    def _failed(self, reason: str) -> None:
        self._failures += 1
        if self._failures < FAILURES_TOLD:
            return
        if not self.state.trouble:
            _LOG.warning("sampling.source_failed %s: %s. Others go on; it is tried again.", self._sampler.name, reason)
        self.state = msgspec.structs.replace(self.state, trouble=reason)


def until_next(pause_s: float, *, now: float, every_s: float) -> float:
    """Give the seconds from now to a whole interval, about `pause_s` away. One that is next to now has just been: timers are not exact."""
    wait_s = pause_s - now % every_s
    return wait_s if wait_s > every_s / 8 else wait_s + every_s  # less than what a reading at its deadline leaves


class Sampling:
    """Samples what the latest plan says, from the first `take` to `aclose`. `clock` gives seconds since the epoch."""

    def __init__(self, write: Write, *, node: str, clock: Callable[[], float], open_source: Open = open_source) -> None:
        """`write` takes rows of the table `samples`, at once; `node` is this machine's host name."""
        self._write = write
        self._node = node
        self._clock = clock
        self._open = open_source
        self._plan = SamplingPlan()
        self._watches: dict[Source, tuple[_Watch, asyncio.Task[None]]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        """Of sources that are no longer in the plan."""
        self._rows: list[Row] = []
        self._flushing: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"Sampling(sources={len(self._watches)})"

    def statistics(self) -> SamplingStatistics:
        return SamplingStatistics(tuple(watch.state for watch, _ in self._watches.values()))

    async def answer(self, payload: bytes) -> bytes:
        """Take a plan out of a frame, and say how its sources are."""
        self.take(_decode(payload))
        return _encode(self.statistics())

    def take(self, plan: SamplingPlan) -> None:
        """Sample this from now on. Sources that were in the plan before go on undisturbed."""
        if plan == self._plan:
            return
        stays_alike = msgspec.structs.replace(plan, sources=()) == msgspec.structs.replace(self._plan, sources=())
        wanted = dict.fromkeys(plan.sources)
        for source in [each for each in self._watches if each not in wanted or not stays_alike]:
            self._end(source)
        owners = GpuOwners(plan.gpus, node=self._node, otherwise=plan.gpus_otherwise)
        for source in wanted:
            if source not in self._watches:
                self._begin(source, owners, plan.every_s)
        self._plan = plan

    async def aclose(self) -> None:
        """Stop reading, close every source, and hand on what was read."""
        for source in tuple(self._watches):
            self._end(source)
        await asyncio.gather(*self._ending, return_exceptions=True)
        if self._flushing is not None:
            self._flushing.cancel()
        self._flush()

    def _begin(self, source: Source, owners: GpuOwners, every_s: float) -> None:
        watch = _Watch(source, self._open(source, owners, every_s=every_s), every_s=every_s, take=self._keep)
        task = asyncio.get_running_loop().create_task(watch.run(self._clock), name=f"sampling {watch.state.name}")
        self._watches[source] = (watch, task)

    def _end(self, source: Source) -> None:
        _, task = self._watches.pop(source)
        task.cancel()
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _keep(self, source: str, at: float, samples: Sequence[Sample]) -> None:
        """Hold rows until the next batch: seconds of them, for no source gives more than `MAX_SAMPLES` at once."""
        self._rows += [sample_row(sample, source=source, node=self._node, at=at) for sample in samples]
        if self._flushing is None:
            self._flushing = asyncio.get_running_loop().call_later(FLUSH_S, self._flush)

    def _flush(self) -> None:
        self._flushing = None
        rows, self._rows = self._rows, []
        if rows:
            self._write(rows)
