"""Tasks are ended, also those that swallow a cancellation."""

from __future__ import annotations

import asyncio

import pytest

from tidegate.adapters.ending import AGAIN_S, end
from tidegate.testing.virtual_time import run_virtual


async def deaf(times: int) -> None:
    """Wait for ever, and miss so many cancellations."""
    for _ in range(times):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue
    await asyncio.Event().wait()


def test_a_task_that_misses_its_cancellation_is_told_again() -> None:
    """Once more for each that it misses; one that is over already is left as it is."""

    async def story() -> None:
        loop = asyncio.get_running_loop()
        over, once, thrice = (loop.create_task(work) for work in (asyncio.sleep(0), deaf(0), deaf(3)))
        await asyncio.sleep(0.001)
        began = loop.time()
        await end(over, once, thrice)
        assert (over.cancelled(), once.cancelled(), thrice.cancelled()) == (False, True, True)
        assert loop.time() - began == pytest.approx(3 * AGAIN_S)

    run_virtual(story())


def test_who_is_cancelled_meanwhile_ends_them_first() -> None:
    """No task is left behind, and the cancellation is not lost."""

    async def story() -> None:
        loop = asyncio.get_running_loop()
        task = loop.create_task(deaf(2))
        await asyncio.sleep(0.001)
        ending = loop.create_task(end(task))
        await asyncio.sleep(0.001)
        ending.cancel()
        await asyncio.wait({ending})
        assert ending.cancelled()
        assert task.cancelled()

    run_virtual(story())
