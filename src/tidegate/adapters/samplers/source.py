"""What every source of samples is, how it says that it has none, and a way to read one that may block."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from tidegate.analytics.samples import Sample


class SourceFailed(Exception):
    """It gives nothing at the moment; the text says why, and what to look at."""


class SourceAbsent(SourceFailed):
    """There is no such thing on this machine."""


class Sampler(Protocol):
    """One source, opened. It belongs to the event loop."""

    name: str
    """What logs call it; the `source` of its samples is the part before the first space."""

    async def sample(self, *, now: float) -> Sequence[Sample]:
        """Read it; `SourceFailed`, `OSError` or `ValueError` when that fails. `now` is in seconds since the epoch."""

    async def aclose(self) -> None: ...


class BlockingSampler:
    """A `Sampler` whose reading may take long in the kernel or a driver: it is done in a thread, one reading at a time."""

    def __init__(self, name: str, read: Callable[[float], Sequence[Sample]], *, close: Callable[[], None] = lambda: None) -> None:
        self.name = name
        self._read = read
        self._close = close
        self._reading: asyncio.Future[Sequence[Sample]] | None = None

    def __repr__(self) -> str:
        return f"BlockingSampler({self.name!r})"

    async def sample(self, *, now: float) -> Sequence[Sample]:
        if self._reading is not None and not self._reading.done():
            raise SourceFailed("the reading before has not come back")
        self._reading = asyncio.ensure_future(asyncio.to_thread(self._read, now))
        self._reading.add_done_callback(_retrieve)
        return await asyncio.shield(self._reading)

    async def aclose(self) -> None:
        """Close it, unless a reading hangs: what that uses is left alone."""
        if self._reading is None or self._reading.done():
            self._close()


def _retrieve(reading: asyncio.Future[Sequence[Sample]]) -> None:
    """Look at what became of a reading that nobody waits for any more."""
    if not reading.cancelled():
        reading.exception()
