"""Keeps how far our figures for prompts were from what upstreams reported, in bounded memory.

Two figures of each prompt are kept apart: our count, and the estimate that `/v1/estimate` makes of it. A model's name is one that an
upstream answered to; routes come from the configuration. Beyond `MAX_SERIES` everything counts as `other`.
"""

from __future__ import annotations

from bisect import bisect_left

from tidegate.domain.statistics import ErrorHistogram, Histogram

ERROR_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0)
MAX_SERIES = 200
"""Pairs of route and model, each with two figures of thirteen numbers: a scrape stays small."""
OTHER = "other"


class EstimateErrors:
    """Counts only grow."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, str], list[int]] = {}
        self._sums: dict[tuple[str, str, str], float] = {}

    def __repr__(self) -> str:
        return f"EstimateErrors({len(self._counts)} series)"

    def observe(self, route: str, model: str, *, counted: int, estimated: int, reported: int) -> None:
        """Compare both figures with a prompt's reported tokens, which are 1 or more."""
        if (route, model, "count") not in self._counts and len(self._counts) >= 2 * MAX_SERIES:
            route = model = OTHER
        for figure, tokens in (("count", counted), ("estimate", estimated)):
            ratio = abs(tokens - reported) / reported
            key = (route, model, figure)
            counts = self._counts.setdefault(key, [0] * (len(ERROR_BOUNDS) + 1))
            counts[bisect_left(ERROR_BOUNDS, ratio)] += 1
            self._sums[key] = self._sums.get(key, 0.0) + ratio

    def statistics(self) -> tuple[ErrorHistogram, ...]:
        return tuple(ErrorHistogram(*key, Histogram(ERROR_BOUNDS, tuple(counts), self._sums[key])) for key, counts in self._counts.items())
