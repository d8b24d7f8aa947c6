"""Linux' `/proc/PID/stat` (proc_pid_stat(5)): how much of the CPU and of memory a process takes."""

from __future__ import annotations

from typing import Final

import msgspec

from tidegate.analytics.samples import Sample

_UTIME, _STIME, _THREADS, _STARTED, _PAGES = (number - 3 for number in (14, 15, 20, 22, 24))
"""Fields are counted from 1; the first two stand before the last bracket, for a program's name may hold spaces and brackets."""
_FIELDS: Final = 22


class ProcessStat(msgspec.Struct, frozen=True):
    """`started` is in ticks since the machine began: with the number of the process it tells one process from a later one."""

    cpu_ticks: int
    threads: int
    started: int
    pages: int


def read_stat(text: str) -> ProcessStat:
    """Read the file's line; `ValueError` when it is none."""
    fields = text.rpartition(")")[2].split()
    if len(fields) < _FIELDS:
        raise ValueError("it has too few fields")
    return ProcessStat(int(fields[_UTIME]) + int(fields[_STIME]), int(fields[_THREADS]), int(fields[_STARTED]), max(0, int(fields[_PAGES])))


class ProcessFigures:
    """One process, read again and again."""

    def __init__(self, *, replica: str, ticks_per_s: int, page_bytes: int) -> None:
        self._replica = replica
        self._ticks_per_s = ticks_per_s
        self._page_bytes = page_bytes
        self._before: tuple[float, ProcessStat] | None = None

    def take(self, text: str, *, now: float) -> list[Sample]:
        """Give its figures; CPU time from the second reading on."""
        stat = read_stat(text)
        samples = [
            Sample("cpu.memory_bytes", float(stat.pages * self._page_bytes), replica=self._replica),
            Sample("cpu.threads", float(stat.threads), replica=self._replica),
        ]
        if self._before is not None:
            before_at, before = self._before
            more = stat.cpu_ticks - before.cpu_ticks
            if now > before_at and stat.started == before.started and more >= 0:
                samples.append(Sample("cpu.used_cores", more / self._ticks_per_s / (now - before_at), replica=self._replica))
        self._before = (now, stat)
        return samples
