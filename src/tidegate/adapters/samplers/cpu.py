"""CPU and memory of one process of this machine, out of `/proc` (Linux)."""

from __future__ import annotations

import os
from pathlib import Path

from tidegate.adapters.samplers.plan import ProcessSource
from tidegate.adapters.samplers.source import SourceFailed
from tidegate.analytics.process_stat import ProcessFigures
from tidegate.analytics.samples import Sample


class ProcessReader:
    """Reads it again and again."""

    def __init__(self, source: ProcessSource, *, proc: Path = Path("/proc")) -> None:
        self._path = proc / str(source.pid) / "stat"
        self._figures = ProcessFigures(replica=source.replica, ticks_per_s=os.sysconf("SC_CLK_TCK"), page_bytes=os.sysconf("SC_PAGE_SIZE"))

    def __repr__(self) -> str:
        return f"ProcessReader({str(self._path)!r})"

    def read(self, now: float) -> list[Sample]:
        try:
            text = self._path.read_text(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            raise SourceFailed(f"{self._path} is not there: the process ended, or this is no Linux") from None
        return self._figures.take(text, now=now)
