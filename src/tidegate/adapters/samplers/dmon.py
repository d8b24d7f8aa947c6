"""`nvidia-smi dmon -o DT`: as a child process of ours, or a file or pipe that somebody else has it write to."""

from __future__ import annotations

import asyncio
import shutil
from collections import deque
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from tidegate.adapters.child_process import end
from tidegate.adapters.samplers.source import SourceAbsent, SourceFailed
from tidegate.adapters.samplers.tail import Tail
from tidegate.analytics.dmon import DmonLines
from tidegate.analytics.samples import GpuOwners, Sample

COMMAND: Final = ("nvidia-smi", "dmon", "-o", "DT", "-s", "pucm")
"""Power and temperature, utilisation, clocks, memory; with date and time."""
CREDIBLE_S: Final = 60.0
"""Its times count when they are so near to ours; further away, its zone or its clock is another."""
END_GRACE_S: Final = 0.3
_PIECES: Final = 256
"""Between two readings; dmon prints some lines a second."""
_READ_BYTES: Final = 65_536
_LONGEST_WORDS: Final = 300


class DmonFile:
    """Reads what is appended to a file, or comes through a pipe."""

    def __init__(self, path: Path, owners: GpuOwners) -> None:
        self._tail = Tail(path)
        self._lines = dmon_lines(owners)

    def read(self, now: float) -> list[Sample]:
        return credible(self._lines.feed(self._tail.read()), now=now)

    def close(self) -> None:
        self._tail.close()


class DmonChild:
    """A `Sampler` that has it run. The command is started at the first sample, and again at the first one after its end."""

    name = "dmon"

    def __init__(self, owners: GpuOwners, *, every_s: float, command: Sequence[str] = COMMAND) -> None:
        self._owners = owners
        self._command = (*command, "-d", str(max(1, round(every_s))))
        self._lines = dmon_lines(owners)
        self._process: asyncio.subprocess.Process | None = None
        self._pieces: deque[bytes] = deque(maxlen=_PIECES)
        self._said = b""
        """The last that it printed."""
        self._reading: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"DmonChild(running={self._process is not None})"

    async def sample(self, *, now: float) -> Sequence[Sample]:
        if self._process is None:
            await self._start()
        assert self._process is not None
        assert self._reading is not None
        samples = [sample for piece in self._taken() for sample in self._lines.feed(piece)]
        if self._reading.done() and not samples:
            words = await self._last_words(self._process)
            await self.aclose()
            raise SourceFailed(f"{self._command[0]} ended: {words}")
        return credible(samples, now=now)

    async def aclose(self) -> None:
        process, self._process = self._process, None
        if self._reading is not None:
            self._reading.cancel()
        if process is not None:
            await end(process, grace_s=END_GRACE_S)

    async def _start(self) -> None:
        if shutil.which(self._command[0]) is None:
            raise SourceAbsent(f"there is no {self._command[0]} here")
        self._process = process = await asyncio.create_subprocess_exec(
            *self._command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        self._lines, self._said = dmon_lines(self._owners), b""
        self._reading = asyncio.create_task(self._read(process), name="dmon")

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while piece := await process.stdout.read(_READ_BYTES):
            self._pieces.append(piece)
            self._said = piece

    def _taken(self) -> list[bytes]:
        return [self._pieces.popleft() for _ in range(len(self._pieces))]

    async def _last_words(self, process: asyncio.subprocess.Process) -> str:
        words = self._said.decode("utf-8", "replace").strip().splitlines()
        return words[-1][:_LONGEST_WORDS] if words else f"status {await process.wait()}"


def dmon_lines(owners: GpuOwners) -> DmonLines:
    return DmonLines(owners, to_epoch=datetime.timestamp)


def credible(samples: Sequence[Sample], *, now: float) -> list[Sample]:
    """Give samples with the times that were printed, or with none where those cannot be meant."""
    doubtful = any(sample.at is not None and abs(sample.at - now) > CREDIBLE_S for sample in samples)
    return [msgspec.structs.replace(sample, at=None) for sample in samples] if doubtful else list(samples)
