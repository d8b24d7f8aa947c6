"""The virtual-time loop: waiting is free, order is kept, deadlocks are reported, threads are waited for."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.testing import ManualClock, VirtualDeadlockError, VirtualTimeLoop, run_virtual


async def sleep_and_tell(seconds: float) -> float:
    await asyncio.sleep(seconds)
    return asyncio.get_running_loop().time()


def test_a_day_of_waiting_takes_no_real_time() -> None:
    """Sleeping moves the loop's clock by the time slept and costs next to nothing."""
    began = time.perf_counter()
    assert run_virtual(sleep_and_tell(86_400.0)) == 86_400.0
    assert time.perf_counter() - began < 1.0


def test_the_clock_begins_where_it_is_told() -> None:
    """`start` is the first instant."""
    assert run_virtual(sleep_and_tell(1.5), start=1_000_000.0) == 1_000_001.5


@given(st.lists(st.floats(min_value=0.0, max_value=1e6), min_size=1, max_size=20))
def test_law_sleepers_wake_in_order_at_their_own_times(delays: list[float]) -> None:
    """Each sleeper wakes at its own instant, and earlier ones wake first."""
    woken: list[float] = []

    async def sleeper(delay: float) -> None:
        await asyncio.sleep(delay)
        now = asyncio.get_running_loop().time()
        woken.append(now)
        assert now == pytest.approx(delay, abs=1e-6)

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            for delay in delays:
                tasks.create_task(sleeper(delay))

    run_virtual(main())
    assert woken == sorted(woken)
    assert len(woken) == len(delays)


def test_timeouts_fire_in_virtual_time() -> None:
    """`asyncio.timeout` ends a wait that would last for ever."""

    async def main() -> float:
        loop = asyncio.get_running_loop()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await loop.create_future()
        return loop.time()

    assert run_virtual(main()) == 30.0


def test_a_wait_that_nothing_ends_is_a_deadlock() -> None:
    """Awaiting a future with nothing scheduled raises instead of hanging, and names the likely cause."""

    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(VirtualDeadlockError, match="future that nobody completes"):
        run_virtual(main(), outside_wait_s=0.05)


def test_another_thread_can_wake_the_loop() -> None:
    """`call_soon_threadsafe` from a thread ends a wait that no timer would end."""

    async def main() -> str:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[str] = loop.create_future()
        thread = threading.Thread(target=loop.call_soon_threadsafe, args=(answer.set_result, "from outside"))
        thread.start()
        try:
            return await answer
        finally:
            thread.join()

    assert run_virtual(main()) == "from outside"


def test_time_stands_still_while_a_worker_thread_runs() -> None:
    """A timer does not overtake work handed to a thread."""
    release = threading.Event()

    async def main() -> tuple[bool, float]:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(5.0):
            threading.Timer(0.05, release.set).start()
            done = await loop.run_in_executor(None, release.wait, 10.0)
        return done, loop.time()

    assert run_virtual(main()) == (True, 0.0)


def test_a_loop_can_be_closed_after_a_deadlock() -> None:
    """Tasks left behind by a deadlock are cancelled when the runner closes."""
    ended: list[str] = []

    async def main() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append("cancelled")

    with pytest.raises(VirtualDeadlockError), asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(outside_wait_s=0.05)) as runner:
        runner.run(main())
    assert ended == ["cancelled"]


def test_manual_clock_moves_only_when_told() -> None:
    """Advancing adds up; the wall clock keeps its distance; backwards is refused."""
    clock = ManualClock(5.0, wall_offset_s=100.0)
    assert (clock(), clock.now, clock.wall) == (5.0, 5.0, 105.0)
    assert clock.advance(2.5) == 7.5
    assert clock.advance_to(10.0) == 10.0
    assert clock.wall == 110.0
    with pytest.raises(ValueError, match="only goes forward"):
        clock.advance(-0.1)
    with pytest.raises(ValueError, match="only goes forward"):
        clock.advance(float("nan"))
    with pytest.raises(ValueError, match="only goes forward"):
        clock.advance_to(9.0)
    assert repr(clock) == "ManualClock(now=10.0)"
