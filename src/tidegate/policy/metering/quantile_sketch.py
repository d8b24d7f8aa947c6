"""Where a share of past values ended, in bounded memory, with old values fading.

A value counts in one of about a hundred buckets whose bounds grow by a tenth, and a quantile is the upper bound of its bucket: never below
the exact one and at most a tenth above it (DDSketch, Masson et al. 2019, with upper bounds for midpoints). Each value weighs less than the
one after it, by number and by time.

The quantile keeps a promise about the *next* value, not about the past: when values are exchangeable, the next is above `quantile(p)` with
a probability of at most 1 - p, however few were seen (split conformal prediction; with weights and drift see Barber et al. 2023). That is
why the value to come counts among the seen, as one above all of them, and why there is no quantile before enough were seen.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from itertools import accumulate
from typing import Final

_GROWTH = 1.1
_LARGEST = 131_072  # no model writes a longer answer; what is above counts as this
_HALF_LIFE_VALUES = 512.0
HALF_LIFE_S = 6 * 3600.0  # what people ask changes with the time of day
_HEAVIEST = 2.0**20  # above it weights are scaled down; single precision has room for far more beside a sum of some 700 weights
_MOST_HALVINGS = 64.0  # after so many nothing is left of a weight


def _bounds() -> tuple[int, ...]:
    bounds = [0, 1]
    while bounds[-1] < _LARGEST:
        bounds.append(min(_LARGEST, max(bounds[-1] + 1, int(bounds[-1] * _GROWTH))))
    return tuple(bounds)


BOUNDS: Final = _bounds()
"""Upper bounds of the buckets; small values have one each."""


class QuantileSketch:
    """One distribution of whole numbers >= 0. `now` is seconds on any monotonic clock; about 700 bytes."""

    __slots__ = ("_last_at", "_newest", "_weights")

    def __init__(self, *, now: float) -> None:
        self._weights = array("f", bytes(4 * len(BOUNDS)))
        self._newest = 1.0
        self._last_at = now

    def __repr__(self) -> str:
        return f"QuantileSketch(weight={self.weight():.1f})"

    def record(self, value: int, *, now: float) -> None:
        """Add a value, and let all before it fade."""
        halvings = 1 / _HALF_LIFE_VALUES + max(0.0, now - self._last_at) / HALF_LIFE_S
        self._newest *= 2.0 ** min(halvings, _MOST_HALVINGS)
        self._last_at = max(now, self._last_at)
        if self._newest > _HEAVIEST:
            self._weights = array("f", [weight / self._newest for weight in self._weights])
            self._newest = 1.0
        self._weights[bisect_left(BOUNDS, min(value, _LARGEST))] += self._newest

    def weight(self) -> float:
        """Give the weight of all values, the newest counting 1."""
        return sum(self._weights) / self._newest

    def quantile(self, share: float) -> int | None:
        """Give what the next value stays at or below with probability `share`; None while too few values were seen to say."""
        sums = list(accumulate(self._weights))
        index = bisect_left(sums, share * (sums[-1] + self._newest))
        return BOUNDS[index] if index < len(BOUNDS) else None
