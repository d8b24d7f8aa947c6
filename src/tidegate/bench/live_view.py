"""A run as it goes, on standard error: a panel on a terminal, else a line every few seconds, so that nobody waits before a dead screen.

It is told how things stand (`show`) as often as one likes and draws no more often than is of use. It judges and counts nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tidegate.bench import shown
from tidegate.bench.distribution import Distribution
from tidegate.bench.figures import Snapshot
from tidegate.bench.outcome import Outcome
from tidegate.domain.money import MICRO

PANEL_EVERY_S: Final = 0.25
LINE_EVERY_S: Final = 5.0
_BAR_WIDTH: Final = 30


class RunProgress(msgspec.Struct, frozen=True):
    """How far a run is, and how it goes."""

    title: str
    """What is run, in words."""
    elapsed_s: float
    length_s: float
    planned: int | None
    """Requests of the plan; None in a closed loop that only time ends."""
    in_flight: int
    snapshot: Snapshot
    rate_per_s: float | None = None
    """Asked for; None in a closed loop."""
    doubts: tuple[str, ...] = ()
    """Why the run would not count, if it ended now."""
    stopping: bool = False

    @property
    def ratio(self) -> float:
        """Give how much of the run is over: of its time or of its requests, whichever is further."""
        by_time = self.elapsed_s / self.length_s if self.length_s > 0 else 0.0
        by_number = self.snapshot.requests / self.planned if self.planned else 0.0
        return min(1.0, max(by_time, by_number))


class LiveView:
    """Shows a run; a context manager, so that a terminal is left as it was found."""

    def __init__(self, console: Console, now: Callable[[], float]) -> None:
        self._console = console
        self._now = now
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        self._drawn_at: float | None = None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, sentence: str) -> None:
        """Write a line that stays."""
        self._console.print(sentence, markup=False, highlight=False, soft_wrap=True)

    @property
    def is_due(self) -> bool:
        """Tell whether another drawing is of use yet."""
        every_s = LINE_EVERY_S if self._live is None else PANEL_EVERY_S
        return self._drawn_at is None or self._now() - self._drawn_at >= every_s

    def show(self, progress: RunProgress) -> None:
        """Draw how things stand."""
        self._drawn_at = self._now()
        if self._live is None:
            self.say(line(progress))
        else:
            self._live.update(panel(progress), refresh=True)


def line(progress: RunProgress) -> str:
    """Give one line, for logs."""
    snapshot = progress.snapshot
    parts = [
        _time(progress),
        _counted(progress),
        f"ok {_ok(snapshot)}",
        f"ttft p50 {shown.time_s(snapshot.ttft.p50 if snapshot.ttft else None)}",
        f"p99 {shown.time_s(snapshot.ttft.p99 if snapshot.ttft else None)}",
        f"e2e p99 {shown.time_s(snapshot.e2e.p99 if snapshot.e2e else None)}",
    ]
    return ", ".join(parts) + "".join(f"; NOT VALID: {doubt}" for doubt in progress.doubts[:1])


def panel(progress: RunProgress) -> RenderableType:
    """Give what a terminal shows."""
    snapshot = progress.snapshot
    grid = Table.grid(padding=(0, 2))
    grid.add_row(ProgressBar(total=1.0, completed=progress.ratio, width=_BAR_WIDTH), _time(progress), _counted(progress))
    return Group(
        Text(progress.title, style="bold"),
        grid,
        Text(_pace(progress)),
        _latencies(snapshot),
        Text.assemble("outcomes  ", *_outcomes(snapshot)),
        *_verdict(progress),
    )


def _time(progress: RunProgress) -> str:
    if progress.stopping:
        return f"stopping after {progress.elapsed_s:.0f} s"
    if progress.elapsed_s > progress.length_s:
        return f"{progress.elapsed_s:.0f} s, waiting for answers"
    return f"{progress.elapsed_s:.0f} of {progress.length_s:.0f} s"


def _counted(progress: RunProgress) -> str:
    of = "" if progress.planned is None else f" of {progress.planned:,}"
    return f"{progress.snapshot.requests:,}{of} requests, {progress.in_flight} under way"


def _pace(progress: RunProgress) -> str:
    rates, snapshot = progress.snapshot.rates, progress.snapshot
    achieved = snapshot.requests / progress.elapsed_s if progress.elapsed_s > 0 else None
    asked = "closed loop" if progress.rate_per_s is None else f"asked {shown.per_s(progress.rate_per_s)}"
    cost = "" if snapshot.cost_micro is None else f"   cost {shown.money(snapshot.cost_micro / MICRO, '')}"
    return f"rate      {asked}   ended {shown.per_s(achieved)}   tokens out {shown.per_s(rates.tokens_out)}{cost}"


def _latencies(snapshot: Snapshot) -> Table:
    table = Table("from due", "p50", "p90", "p99", "most", box=None, pad_edge=False, header_style="dim")
    rows: tuple[tuple[str, Distribution | None], ...] = (("ttft", snapshot.ttft), ("tpot", snapshot.tpot), ("e2e", snapshot.e2e))
    for name, found in rows:
        values = (None,) * 4 if found is None else (found.p50, found.p90, found.p99, found.most)
        table.add_row(name, *(shown.time_s(value) for value in values))
    return table


def _outcomes(snapshot: Snapshot) -> list[Text]:
    return [
        Text(f"{name} {number:,}  ", style="green" if name == Outcome.OK else "red")
        for name, number in snapshot.outcomes.items()
        if number or name == Outcome.OK
    ]


def _verdict(progress: RunProgress) -> list[Text]:
    if progress.doubts:
        return [Text(f"NOT VALID: {doubt}", style="bold red") for doubt in progress.doubts]
    lag = "" if progress.snapshot.lag_p99_s is None else f"; sent p99 {shown.time_s(progress.snapshot.lag_p99_s)} after due"
    return [Text(f"valid so far{lag}", style="dim")]


def _ok(snapshot: Snapshot) -> str:
    return shown.share(snapshot.outcomes.get(Outcome.OK, 0) / snapshot.requests if snapshot.requests else None)
