"""Drives the engine model on an event loop: one timer, set to the end of the step under way."""

from __future__ import annotations

import asyncio

from tidegate.mock.engine import Engine, EngineSettings, EngineStatistics, Grant, Sequence


class Ticket:
    """A call in the engine, to be dropped once: when its client leaves or its answer has ended."""

    __slots__ = ("_driver", "_sequence")

    def __init__(self, driver: EngineDriver, sequence: Sequence) -> None:
        self._driver = driver
        self._sequence = sequence

    def drop(self) -> None:
        self._driver.drop(self._sequence)


class EngineDriver:
    """Must be used on one running loop."""

    def __init__(self, settings: EngineSettings) -> None:
        self._engine = Engine(settings)
        self._due: asyncio.TimerHandle | None = None
        self._due_at: float | None = None

    @property
    def full(self) -> bool:
        return self._engine.full

    @property
    def settings(self) -> EngineSettings:
        return self._engine.settings

    def submit(self, prompt_tokens: int, output_tokens: int, grant: Grant) -> Ticket:
        """Take a call. `grant` is never called from within."""
        sequence = self._engine.submit(prompt_tokens, output_tokens, grant, now=asyncio.get_running_loop().time())
        self._set_timer()
        return Ticket(self, sequence)

    def drop(self, sequence: Sequence) -> None:
        self._engine.cancel(sequence, now=asyncio.get_running_loop().time())
        self._set_timer()

    def statistics(self) -> EngineStatistics:
        return self._engine.statistics()

    def close(self) -> None:
        """Grant nothing more."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
            self._due_at = None

    def _set_timer(self) -> None:
        at = self._engine.next_step_at()
        if at == self._due_at:
            return
        if self._due is not None:
            self._due.cancel()
        self._due_at = at
        self._due = None if at is None else asyncio.get_running_loop().call_at(at, self._tick)

    def _tick(self) -> None:
        self._due = self._due_at = None
        # A timer may fire a clock tick early: the step is over when its timer says so.
        self._engine.advance(max(asyncio.get_running_loop().time(), self._engine.next_step_at() or 0.0))
        self._set_timer()
