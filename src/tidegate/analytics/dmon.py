"""Lines of `nvidia-smi dmon -o DT`, which a child process, a file or a pipe brings.

A line that begins with `#` names the columns, and is repeated from time to time; the one below it names units. Which columns there are
depends on the version and on `-s`. A dash is a figure that this GPU does not have. The times are of the local time zone.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from tidegate.analytics.samples import (
    MEMORY_BANDWIDTH,
    MEMORY_CLOCK,
    MEMORY_USED,
    POWER,
    SM_CLOCK,
    TEMPERATURE,
    UTILIZATION,
    GpuOwners,
    Sample,
)

MAX_LINE_BYTES: Final = 4_096
"""What is longer is no line of it, and is passed over."""
MAX_LINES: Final = 2_000
"""Taken of one piece; a machine has at most some GPUs, and a piece some seconds."""
_COLUMNS: Final = {
    "mem": (MEMORY_BANDWIDTH, 0.01),
    "sm": (UTILIZATION, 0.01),
    "fb": (MEMORY_USED, 1_048_576.0),
    "pwr": (POWER, 1.0),
    "gtemp": (TEMPERATURE, 1.0),
    "pclk": (SM_CLOCK, 1.0),
    "mclk": (MEMORY_CLOCK, 1.0),
}


class DmonLines:
    """Reads its output, however that is cut into pieces."""

    def __init__(self, owners: GpuOwners, *, to_epoch: Callable[[datetime], float]) -> None:
        """`to_epoch` gives the seconds since the epoch of a time without a zone."""
        self._owners = owners
        self._to_epoch = to_epoch
        self._columns: list[str] = []
        self._rest = b""
        self._is_skipping = False
        """Within a line that is too long."""

    def feed(self, piece: bytes) -> list[Sample]:
        """Give the figures of the lines that end in this piece."""
        *lines, rest = (self._rest + piece).split(b"\n")
        if lines and self._is_skipping:
            del lines[0]
            self._is_skipping = False
        self._is_skipping = self._is_skipping or len(rest) > MAX_LINE_BYTES
        self._rest = b"" if self._is_skipping else rest
        whole = (line.decode("ascii", "replace") for line in lines[-MAX_LINES:] if len(line) <= MAX_LINE_BYTES)
        return [sample for line in whole for sample in self._line(line)]

    def _line(self, line: str) -> list[Sample]:
        words = line.split()
        if line.lstrip().startswith("#"):
            names = line.lstrip().lstrip("#").lower().split()
            if "gpu" in names:
                self._columns = names
            return []
        if len(words) != len(self._columns):
            return []  # cut off at the start, or something else that was printed
        cells = dict(zip(self._columns, words, strict=True))
        at = self._time(cells.get("date", ""), cells.get("time", ""))
        samples = []
        for name, (metric, factor) in _COLUMNS.items():
            value = _number(cells.get(name, "-"))
            if value is not None:
                samples.append(self._owners.sample(metric, value * factor, index=cells["gpu"], at=at))
        return samples

    def _time(self, date: str, time: str) -> float | None:
        try:
            return self._to_epoch(datetime.strptime(f"{date} {time}", "%Y%m%d %H:%M:%S"))  # noqa: DTZ007  the zone is the caller's to know
        except ValueError:
            return None


def _number(word: str) -> float | None:
    return float(word) if word.isdecimal() else None
