"""The task that reads sources: each for itself, on time, and told of once when it fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import msgspec
import pytest

from tidegate.adapters.samplers.plan import NvmlSource, ProcessSource, SamplingPlan, SamplingStatistics, ServerSource, TritonSource
from tidegate.adapters.samplers.sampling import FLUSH_S, LONGEST_PAUSE_S, MAX_SAMPLES, Sampling, until_next
from tidegate.adapters.samplers.source import BlockingSampler, SourceAbsent, SourceFailed
from tidegate.analytics.exposition import ServerKind
from tidegate.analytics.rows import Row
from tidegate.analytics.samples import GpuOwners, Sample
from tidegate.testing import run_virtual

ENGINE = ProcessSource(7, "local/0")
TRITON = TritonSource("t.json", "triton/0")
EPOCH = 1_762_250_400.0
"""Of the virtual clock's beginning."""


class Scripted:
    """A source that does what it is told: fails, hangs, or gives one figure."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.outcome: Exception | float = 1.0
        self.asked: list[float] = []
        self.hangs_s = 0.0
        self.closed = 0
        self.count = 1

    async def sample(self, *, now: float) -> Sequence[Sample]:
        self.asked.append(round(now - EPOCH, 3))
        await asyncio.sleep(self.hangs_s)
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return [Sample("cpu.threads", self.outcome, replica="r")] * self.count

    async def aclose(self) -> None:
        self.closed += 1


class Bench:
    """A `Sampling` over scripted sources, and what it wrote."""

    def __init__(self) -> None:
        self.opened: dict[object, list[Scripted]] = {}
        self.rows: list[Row] = []
        self.batches = 0
        loop = asyncio.get_running_loop()
        self.sampling = Sampling(self._write, node="here", clock=lambda: EPOCH + loop.time(), open_source=self._open)

    def take(self, *sources: NvmlSource | ProcessSource | TritonSource, every_s: float = 1.0) -> None:
        self.sampling.take(SamplingPlan(every_s=every_s, sources=sources))

    def of(self, source: object) -> Scripted:
        return self.opened[source][-1]

    def _open(self, source: object, owners: GpuOwners, *, every_s: float) -> Scripted:
        del owners, every_s
        scripted = Scripted("cpu local/0" if source == ENGINE else "other")
        self.opened.setdefault(source, []).append(scripted)
        return scripted

    def _write(self, rows: Sequence[Row]) -> None:
        self.rows += rows
        self.batches += 1


def test_sources_are_read_once_an_interval_at_the_same_moment() -> None:
    """On whole seconds of the wall clock, so that figures of one second belong together; rows go out in batches."""

    async def story() -> None:
        await asyncio.sleep(0.4)
        bench = Bench()
        bench.take(ENGINE, TRITON)
        await asyncio.sleep(3.0)
        assert [1.0, 2.0, 3.0] == bench.of(ENGINE).asked == bench.of(TRITON).asked
        assert 0 == bench.batches
        await asyncio.sleep(FLUSH_S - 2.0)
        assert 1 == bench.batches
        first = bench.rows[0]
        assert ("2025-11-04 10:00:01.000", "here", "r", "cpu") == (first["at"], first["node"], first["replica"], first["source"])
        written = len(bench.rows)
        await bench.sampling.aclose()
        assert written < len(bench.rows)
        assert 1 == bench.of(ENGINE).closed == bench.of(TRITON).closed

    run_virtual(story())


@pytest.mark.parametrize(("pause_s", "now", "wait_s"), [(1.0, 10.25, 0.75), (1.0, 10.875, 1.125), (1.0, 11.0, 1.0), (4.0, 10.5, 3.5)])
def test_a_moment_is_met_once_though_timers_are_not_exact(pause_s: float, now: float, wait_s: float) -> None:
    """One that came a little early was this moment's, and the next is an interval later."""
    assert wait_s == until_next(pause_s, now=now, every_s=1.0)


def test_a_source_that_fails_is_told_once_and_left_alone_for_longer(caplog: pytest.LogCaptureFixture) -> None:
    """Others go on; what comes back is read every second again."""

    async def story() -> None:
        bench = Bench()
        bench.take(ENGINE, TRITON)
        await asyncio.sleep(0.0)
        broken = bench.of(ENGINE)
        broken.outcome = SourceFailed("the cable is out")
        await asyncio.sleep(200.2)
        assert [1.0, 2.0, 3.0, 5.0, 9.0, 17.0, 33.0, 65.0] == broken.asked[:8]
        assert LONGEST_PAUSE_S == broken.asked[-1] - broken.asked[-2]
        assert 200 == len(bench.of(TRITON).asked)
        assert ["the cable is out", ""] == [state.trouble for state in bench.sampling.statistics().sources]
        broken.outcome = 1.0
        await asyncio.sleep(LONGEST_PAUSE_S + 2.5)
        assert 1.0 == broken.asked[-1] - broken.asked[-2]
        assert not bench.sampling.statistics().sources[0].trouble
        await bench.sampling.aclose()

    with caplog.at_level(logging.INFO, "tidegate.recorder"):
        run_virtual(story())
    expected = [
        "sampling.source_failed cpu local/0: the cable is out. Others go on; it is tried again.",
        "sampling.source_back cpu local/0",
    ]
    assert expected == caplog.messages


@pytest.mark.parametrize("failure", [OSError("no"), ValueError("what?"), KeyError("ours"), TimeoutError()])
def test_whatever_a_source_raises_ends_neither_it_nor_others(failure: Exception) -> None:
    """A fault of ours is logged with where it was; the rest is a failure like any."""

    async def story() -> None:
        bench = Bench()
        bench.take(ENGINE)
        await asyncio.sleep(0.0)
        bench.of(ENGINE).outcome = failure
        await asyncio.sleep(3.5)
        assert bench.sampling.statistics().sources[0].trouble
        bench.of(ENGINE).outcome = 1.0
        await asyncio.sleep(4.0)
        assert not bench.sampling.statistics().sources[0].trouble
        await bench.sampling.aclose()

    run_virtual(story())


def test_a_source_that_hangs_is_given_up_before_the_next_reading() -> None:
    """Its deadline is shorter than the interval."""

    async def story() -> None:
        bench = Bench()
        bench.take(ENGINE, TRITON)
        await asyncio.sleep(0.0)
        bench.of(ENGINE).hangs_s = 30.0
        await asyncio.sleep(3.9)
        assert [1.0, 2.0, 3.0] == bench.of(ENGINE).asked == bench.of(TRITON).asked
        assert "it did not answer within 0.8 s" == bench.sampling.statistics().sources[0].trouble
        await bench.sampling.aclose()

    run_virtual(story())


def test_a_machine_without_gpu_is_told_once_and_not_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    """Unless a GPU is expected: then it may come yet."""

    async def story(*, is_expected: bool) -> tuple[int, bool]:
        bench = Bench()
        bench.take(NvmlSource(is_expected=is_expected))
        await asyncio.sleep(0.0)
        [scripted] = bench.opened[NvmlSource(is_expected=is_expected)]
        scripted.outcome = SourceAbsent("there is no driver")
        await asyncio.sleep(20.0)
        [state] = bench.sampling.statistics().sources
        assert "there is no driver" == state.trouble
        await bench.sampling.aclose()
        return len(scripted.asked), state.is_absent

    with caplog.at_level(logging.INFO, "tidegate.recorder"):
        assert (1, True) == run_virtual(story(is_expected=False))
        assert (6, False) == run_virtual(story(is_expected=True))
    assert ["INFO", "WARNING"] == [record.levelname for record in caplog.records]


def test_another_plan_changes_only_what_is_another() -> None:
    """An engine that was started again is another process; everything else goes on. Another interval begins all anew."""

    async def story() -> None:
        bench = Bench()
        bench.take(ENGINE, TRITON)
        bench.take(ENGINE, TRITON)
        again = ProcessSource(8, "local/0")
        await asyncio.sleep(1.5)
        bench.take(again, TRITON)
        await asyncio.sleep(0.0)
        assert (1, 1, 1) == tuple(len(bench.opened[each]) for each in (ENGINE, TRITON, again))
        assert (1, 0) == (bench.of(ENGINE).closed, bench.of(TRITON).closed)
        bench.take(again, TRITON, every_s=2.0)
        await asyncio.sleep(0.0)
        assert 2 == len(bench.opened[TRITON])
        await asyncio.sleep(4.0)
        assert [2.0, 4.0] == bench.of(TRITON).asked
        bench.take()
        await asyncio.sleep(0.0)
        assert () == bench.sampling.statistics().sources
        await bench.sampling.aclose()

    run_virtual(story())


def test_one_reading_has_a_bound() -> None:
    """Whatever somebody's page holds."""

    async def story() -> None:
        bench = Bench()
        bench.take(ENGINE)
        await asyncio.sleep(0.0)
        bench.of(ENGINE).count = MAX_SAMPLES + 1
        await asyncio.sleep(1.5)
        await bench.sampling.aclose()
        assert MAX_SAMPLES == len(bench.rows)

    run_virtual(story())


def test_a_plan_comes_in_a_frame_and_is_answered_with_how_its_sources_are() -> None:
    """As the supervisor sends it; no key is in what a log would show of it."""

    async def story() -> None:
        bench = Bench()
        server = ServerSource(ServerKind.VLLM, "gpu/0", "http://10.0.0.1:8000/metrics", ((b"authorization", b"Bearer sk-secret"),))
        assert "secret" not in repr(server)
        payload = msgspec.msgpack.encode(SamplingPlan(gpus={"0": "gpu/0"}, sources=(server, ENGINE)))
        answer = msgspec.msgpack.decode(await bench.sampling.answer(payload), type=SamplingStatistics)
        assert ["other", "cpu local/0"] == [state.name for state in answer.sources]
        assert {server, ENGINE} == bench.opened.keys()
        assert "sources=2" in repr(bench.sampling)
        await bench.sampling.aclose()

    run_virtual(story())


def test_a_reading_that_hangs_in_the_kernel_is_not_started_twice() -> None:
    """One thread hangs, and not one more every second; it is closed only when nothing uses it."""

    async def story() -> None:
        loop = asyncio.get_running_loop()
        gate = asyncio.Event()
        closed: list[bool] = []

        def read(now: float) -> list[Sample]:
            asyncio.run_coroutine_threadsafe(gate.wait(), loop).result()
            return [Sample("m", now)]

        sampler = BlockingSampler("slow", read, close=lambda: closed.append(True))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await sampler.sample(now=1.0)
        with pytest.raises(SourceFailed, match="has not come back"):
            await sampler.sample(now=2.0)
        await sampler.aclose()
        assert not closed
        gate.set()
        assert sampler._reading is not None
        await sampler._reading
        assert [Sample("m", 3.0)] == await sampler.sample(now=3.0)
        await sampler.aclose()
        assert closed

    asyncio.run(story())
