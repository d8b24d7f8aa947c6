"""Alarms: each driver is woken at its time, whichever bucket that is in, and not after it dropped it."""

from __future__ import annotations

import asyncio

from tidegate.gateway.alarms import NEVER, Alarms
from tidegate.gateway.request_driver import RequestDriver
from tidegate.testing.virtual_time import run_virtual


class Sleeper(RequestDriver):
    """A driver that does nothing but note when it was woken."""

    def __init__(self) -> None:
        self.timer = None
        self.wake_at = NEVER
        self.woken: list[float] = []

    def wake(self) -> None:
        self.timer = None
        self.wake_at = NEVER
        self.woken.append(asyncio.get_running_loop().time())


def test_each_is_woken_at_its_own_time() -> None:
    """Within the second that runs, in a later one, and two of the same second; not a bucket's beginning but the very time."""

    async def story() -> None:
        alarms, sleepers = Alarms(), [Sleeper() for _ in range(4)]
        for sleeper, at in zip(sleepers, (100.75, 103.25, 103.5, 107.0), strict=True):
            alarms.set(sleeper, at)
        assert repr(alarms) == "Alarms(waiting=3)"
        await asyncio.sleep(10.0)
        assert [[100.75], [103.25], [103.5], [107.0]] == [sleeper.woken for sleeper in sleepers]
        assert repr(alarms) == "Alarms(waiting=0)"

    run_virtual(story(), start=100.5)


def test_an_alarm_that_was_dropped_or_replaced_does_not_ring() -> None:
    """Before its second begins, after it, and where a sooner one takes its place."""

    async def story() -> None:
        alarms, early, late, moved = Alarms(), Sleeper(), Sleeper(), Sleeper()
        alarms.set(early, 3.5)
        alarms.set(late, 3.5)
        alarms.set(moved, 5.5)
        alarms.set(moved, 2.5)
        alarms.drop(early)
        await asyncio.sleep(3.25)
        alarms.drop(late)
        alarms.drop(late)
        await asyncio.sleep(10.0)
        assert [[], [], [2.5]] == [early.woken, late.woken, moved.woken]

    run_virtual(story())
