"""Turns a `statistics()` snapshot into the flat figures of `WorkerStatistics`."""

from __future__ import annotations

from collections.abc import Collection

import msgspec


def figures(part: str, statistics: msgspec.Struct, *, levels: Collection[str]) -> tuple[dict[str, float], dict[str, float]]:
    """Give (levels, counters) with keys `<part>.<field>`, or the bare field when `part` is empty.

    Numbers only; a mapping of numbers counts as its sum. A name in `levels` that is no field is a fault of the caller.
    """
    fields = msgspec.structs.asdict(statistics)
    unknown = set(levels) - set(fields)
    if unknown:
        raise AssertionError(f"{type(statistics).__name__} has no {', '.join(sorted(unknown))}")
    level_figures: dict[str, float] = {}
    counter_figures: dict[str, float] = {}
    for name, value in fields.items():
        amount = sum(value.values()) if isinstance(value, dict) else value
        if isinstance(amount, int | float):
            chosen = level_figures if name in levels else counter_figures
            chosen[f"{part}.{name}" if part else name] = float(amount)
    return level_figures, counter_figures
