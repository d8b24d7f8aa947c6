"""Durations as counts in log-linear buckets: the memory of a thousand values and of a thousand million is the same.

From `LEAST_S` on every octave is cut into `PER_OCTAVE` buckets of equal width, and a bucket answers with its middle: a quantile is wrong
by at most 0.4 % of itself. Count, sum, sum of squares, least and most are exact.

Invariants: at most `BUCKETS` counts are kept, whatever is recorded; what is shorter than `LEAST_S` (a clock that stood still) is in bucket
0, what is longer than `MOST_S` in the last one. Merging is the same as having recorded everything in one histogram, in any order.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import Final

from tidegate.bench.sample import Buckets

LEAST_S: Final = 1e-6
"""No clock that we read is finer."""
MOST_S: Final = 3600.0
"""No request is given longer."""
PER_OCTAVE: Final = 128
"""Half a bucket over its lower edge is at most 1/256, which is below the half per cent that is promised."""


def _index(value_s: float) -> int:
    """Give the bucket of a value. `frexp` gives v = m·2^e with 0.5 <= m < 1, so that m·256 numbers the cuts of its octave from 128."""
    if not value_s >= LEAST_S:
        return 0
    mantissa, exponent = math.frexp(min(value_s, MOST_S) / LEAST_S)
    return 1 + (exponent - 2) * PER_OCTAVE + int(mantissa * 2 * PER_OCTAVE)


BUCKETS: Final = _index(MOST_S) + 1


def _middle(index: int) -> float:
    if index == 0:
        return 0.0
    octave, cut = divmod(index - 1, PER_OCTAVE)
    return math.ldexp(1.0 + (cut + 0.5) / PER_OCTAVE, octave) * LEAST_S


class Histogram:
    """Counts of durations in seconds."""

    __slots__ = ("_counts", "_least", "_most", "_sum", "_sum_of_squares", "_total")

    def __init__(self, buckets: Buckets | None = None) -> None:
        """Begin empty, or with what another one gave."""
        self._counts: dict[int, int] = {}
        self._total = 0
        self._sum = 0.0
        self._sum_of_squares = 0.0
        self._least = math.inf
        self._most = 0.0
        if buckets is not None:
            self.merge(buckets)

    def record(self, value_s: float) -> None:
        """Count one value; one below 0 counts as 0."""
        self.record_many((value_s,))

    def record_many(self, values_s: Iterable[float]) -> None:
        values_s = [max(0.0, value_s) for value_s in values_s]
        if not values_s:
            return
        counts = self._counts
        for index in map(_index, values_s):
            counts[index] = counts.get(index, 0) + 1
        self._total += len(values_s)
        self._sum += sum(values_s)
        self._sum_of_squares += sum(map(operator.mul, values_s, values_s))
        self._least = min(self._least, *values_s)
        self._most = max(self._most, *values_s)

    def merge(self, buckets: Buckets) -> None:
        """Add what another histogram gave; a bucket that cannot be one of ours is an assertion."""
        if not buckets.total:
            return
        assert all(0 <= index < BUCKETS for index in buckets.counts), "these buckets are from another kind of histogram"
        for index, count in buckets.counts.items():
            self._counts[index] = self._counts.get(index, 0) + count
        self._total += buckets.total
        self._sum += buckets.sum
        self._sum_of_squares += buckets.sum_of_squares
        self._least = min(self._least, buckets.least)
        self._most = max(self._most, buckets.most)

    def buckets(self) -> Buckets:
        """Give everything, to be merged elsewhere."""
        return Buckets(
            counts=dict(self._counts),
            total=self._total,
            sum=self._sum,
            sum_of_squares=self._sum_of_squares,
            least=self.least,
            most=self._most,
        )

    def quantile(self, ratio: float) -> float:
        """Give the value of rank ceil(ratio·n), in seconds; the ends are exact, and 0 is the answer of an empty histogram."""
        rank = max(1, math.ceil(ratio * self._total - 1e-9))
        if rank >= self._total:
            return self._most
        if rank == 1:
            return self._least
        seen = 0
        found = 0
        for found in sorted(self._counts):
            seen += self._counts[found]
            if seen >= rank:
                break
        return min(max(_middle(found), self._least), self._most)

    @property
    def total(self) -> int:
        return self._total

    @property
    def least(self) -> float:
        return self._least if self._total else 0.0

    @property
    def most(self) -> float:
        return self._most

    @property
    def mean(self) -> float:
        return self._sum / self._total if self._total else 0.0

    @property
    def sd(self) -> float:
        """The standard deviation of what was recorded (of all of it, so divided by n)."""
        if not self._total:
            return 0.0
        return math.sqrt(max(0.0, self._sum_of_squares / self._total - self.mean**2))

    def __repr__(self) -> str:
        return f"<Histogram of {self._total}: p50 {self.quantile(0.5):.6f} s, p99 {self.quantile(0.99):.6f} s>"
