"""An asyncio loop on which waiting costs nothing: when nothing is ready, its clock jumps to the next timer.

Invariants: the clock never goes backwards; it moves only when no callback is ready and no worker thread started through
the loop is running; a wait that nothing can ever end raises `VirtualDeadlockError` instead of hanging.

For code that waits on timers, futures and threads. Sockets do work, but the peer's time is real while this loop's is not, so a
timer always beats a peer that has not answered yet.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class VirtualDeadlockError(RuntimeError):
    """Nothing is ready, nothing is scheduled and no thread can wake the loop: the awaited future will never be done."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Run callbacks in the order of their virtual times.

    `outside_wait_s` is how long, in real seconds, the loop waits for a thread (its own workers, or any other thread that might
    call `call_soon_threadsafe`) before it calls the situation a deadlock.
    """

    def __init__(self, *, start: float = 0.0, outside_wait_s: float = 5.0) -> None:
        self._virtual_now = start
        self._outside_wait_s = outside_wait_s
        self._working = 0
        super().__init__(_JumpingSelector(self._jump, self._patience_s))

    def time(self) -> float:
        return self._virtual_now

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """Run `func` in a thread; virtual time stands still until it is done."""
        work = super().run_in_executor(executor, func, *args)
        self._working += 1
        work.add_done_callback(self._work_ended)
        return work

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  the base class's signature
        """Join the worker threads; virtual time stands still meanwhile, so `timeout` cannot pass."""
        del timeout
        self._working += 1
        try:
            await super().shutdown_default_executor()
        finally:
            self._working -= 1

    def _work_ended(self, _work: asyncio.Future[T]) -> None:
        self._working -= 1

    def _jump(self, seconds: float) -> None:
        self._virtual_now += seconds

    def _patience_s(self, timeout: float | None) -> float:
        """How long to wait in real seconds for something from outside, given what the loop would wait for."""
        if self._working:
            return self._outside_wait_s
        if timeout is None and threading.active_count() > 1:
            return self._outside_wait_s
        return 0.0


class _JumpingSelector(selectors.DefaultSelector):
    """Poll for real events without waiting; if there are none, move the clock by the time it was asked to wait."""

    def __init__(self, jump: Callable[[float], None], patience_s: Callable[[float | None], float]) -> None:
        super().__init__()
        self._jump = jump
        self._patience_s = patience_s

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if events or timeout == 0:
            return events
        patience_s = self._patience_s(timeout)
        if patience_s:
            events = super().select(patience_s)
            if events:
                return events
        if timeout is None or patience_s:
            raise VirtualDeadlockError(
                "deadlock in virtual time: every task waits, no timer is scheduled"
                + (f" and no thread woke the loop within {patience_s} real seconds" if patience_s else "")
                + "; look for a future that nobody completes"
            )
        self._jump(timeout)
        return events


def run_virtual(main: Coroutine[Any, Any, T], *, start: float = 0.0, outside_wait_s: float = 5.0) -> T:
    """Run `main` to its end on a fresh `VirtualTimeLoop` whose clock begins at `start`, and close the loop."""
    with asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(start=start, outside_wait_s=outside_wait_s)) as runner:
        return runner.run(main)
