"""One result, and the arithmetic on rounds: a measurement is repeated, and peers are compared within a round."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

Figures = dict[str, float]
"""By name; the unit is the last part of the name (`_ms`, `_mb`, `_per_s`), ratios end in `_over_<peer>`."""


@dataclass(frozen=True)
class Row:
    """Figures of one subject in one measurement."""

    measurement: str
    subject: str
    figures: Figures
    note: str = ""
    """Why the figures mean little, when they do."""
    judged: bool = False
    """Whether the targets are about this row."""

    def line(self) -> str:
        return json.dumps(asdict(self))


def median_of(rounds: Sequence[Figures], names: Iterable[str]) -> Figures:
    """Take each figure's median over the rounds."""
    return {name: round(statistics.median(figures[name] for figures in rounds), 3) for name in names}


def ratio(ours: Sequence[Figures], peer: Sequence[Figures], name: str) -> float:
    """Give the median over rounds of ours over the peer's: what slows the machine for a while slows both sides of a pair."""
    return round(statistics.median(mine[name] / theirs[name] for mine, theirs in zip(ours, peer, strict=True)), 5)


def difference(ours: Sequence[Figures], without: Sequence[Figures], name: str) -> float:
    """Give the median over rounds of what ours has more, for the same reason."""
    return round(statistics.median(mine[name] - bare[name] for mine, bare in zip(ours, without, strict=True)), 3)


def quantile(ordered: Sequence[float], share: float) -> float:
    """Give the value below which `share` (0..1) of the sorted values lie; nan when there are none."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else float("nan")
