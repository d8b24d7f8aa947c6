"""Time cut into bins of equal width, of which there are never more than so many.

An instant beyond the last bin doubles the width of all, two bins becoming one. So memory is bounded whatever comes, and what the bins hold
does not depend on the order in which it came.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, Protocol, Self, TypeVar

_LAST_S: Final = 10_000_000.0
"""Later instants (there are none: about four months) are taken for this one, so that the widening has an end."""


class Mergeable(Protocol):
    def take(self, other: Self, /) -> None:
        """Add what another bin holds."""


BinT = TypeVar("BinT", bound=Mergeable)


class Bins(Generic[BinT]):
    """Bins from 0 on, made by `make` as they are needed."""

    __slots__ = ("_make", "_most", "bins", "width_s")

    def __init__(self, make: Callable[[], BinT], *, width_s: float, most: int) -> None:
        """Begin with bins of a width; there are never more than `most`, an even number."""
        self._make = make
        self._most = most
        self.width_s = width_s
        self.bins: list[BinT] = []

    def __repr__(self) -> str:
        return f"Bins({len(self.bins)} of {self.width_s:g} s)"

    def at(self, instant_s: float) -> BinT:
        """Give the bin of an instant; one before 0 is in the first."""
        instant_s = min(max(0.0, instant_s), _LAST_S)
        while instant_s >= self._most * self.width_s:
            self._widen()
        index = int(instant_s / self.width_s)
        while len(self.bins) <= index:
            self.bins.append(self._make())
        return self.bins[index]

    def _widen(self) -> None:
        bins, self.bins = self.bins, self.bins[::2]
        for kept, taken in zip(self.bins, bins[1::2], strict=False):
            kept.take(taken)
        self.width_s *= 2
