"""Bins of time that stay few."""

from __future__ import annotations

from tidegate.bench.bins import Bins


class Count:
    def __init__(self) -> None:
        self.n = 0

    def take(self, other: Count) -> None:
        self.n += other.n


def test_a_late_instant_makes_bins_wider_and_not_more() -> None:
    """Two become one, as often as it takes; nothing is lost."""
    bins = Bins(Count, width_s=1.0, most=4)
    for instant_s in (0.0, 1.0, 2.5, 3.0, 9.0):
        bins.at(instant_s).n += 1
    assert ([4, 0, 1], 4.0, "Bins(3 of 4 s)") == ([one.n for one in bins.bins], bins.width_s, repr(bins))


def test_instants_out_of_all_bounds_have_a_bin() -> None:
    """Before the beginning is the first; after four months is four months."""
    bins = Bins(Count, width_s=1.0, most=4)
    bins.at(-3.0).n += 1
    bins.at(1e300).n += 1
    assert (2, True) == (sum(one.n for one in bins.bins), len(bins.bins) <= 4)
