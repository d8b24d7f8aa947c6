"""Wakes requests at their times without a timer of the loop's for each: most are over long before, and setting and ending one costs more
than all else that a deadline takes.

A request waits in the bucket of the second in which its time falls. The loop has one timer for each bucket; who is still there when its
second begins gets a timer of its own, so nobody is woken earlier or later than without buckets.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tidegate.gateway.request_driver import RequestDriver

NEVER: Final = float("inf")


class Alarms:
    """The alarms of one gateway, at most one for each driver. A driver's `wake_at` and `timer` belong to this class."""

    __slots__ = ("_by_second", "_loop")

    def __init__(self) -> None:
        self._by_second: dict[int, set[RequestDriver]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def __repr__(self) -> str:
        return f"Alarms(waiting={sum(map(len, self._by_second.values()))})"

    def set(self, driver: RequestDriver, at: float) -> None:
        """Call the driver's `wake` at this time of the loop's clock, and at no other that was set before."""
        self.drop(driver)
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        driver.wake_at = at
        second = int(at)
        if second <= loop.time():
            driver.timer = loop.call_at(at, driver.wake)
            return
        waiting = self._by_second.get(second)
        if waiting is None:
            waiting = self._by_second[second] = set()
            loop.call_at(second, self._begin, second)
        waiting.add(driver)

    def drop(self, driver: RequestDriver) -> None:
        """Forget the driver's alarm, if it has one."""
        if driver.timer is not None:
            driver.timer.cancel()
            driver.timer = None
        elif driver.wake_at != NEVER:
            self._by_second[int(driver.wake_at)].discard(driver)
        driver.wake_at = NEVER

    def _begin(self, second: int) -> None:
        """Give those a timer of their own whose time is within this second."""
        assert self._loop is not None
        for driver in self._by_second.pop(second):
            driver.timer = self._loop.call_at(driver.wake_at, driver.wake)
