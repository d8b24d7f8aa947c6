"""Decides why the 99th percentile of the durations rose from one window to the next, given a sample of both.

What is *slow* is fixed: longer than 99 % of the requests of the window before. The rise is then that more requests are slow, and that can
be shared out among groups. Three stories are told apart, in this order:

* the *mix* of traffic shifted: with each group as slow as before, the sizes of today's groups alone make the rise;
* all of it became slower: today's slow ones are spread over the groups as the slowest of before were, just more of them;
* one group, or where two traits meet, has much more of the rise than that spread would give it, or several groups have together.

Rows are sampled by strata of their duration, with known sizes, so that there are many slow ones at little cost; weights make up for it.
Everything is an estimate with a standard error, and the verdict says how sure it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import combinations
from math import inf, sqrt
from typing import Final

import msgspec

FEWEST: Final = 500
"""Requests of a window: of fewer, the slowest hundredth is a handful, and their traits are chance."""
LEAST_RISE: Final = 1.03
SURE_RISE: Final = 4.0
"""Standard errors by which slow requests must be more than before."""
MOST_GROUPS: Final = 12
"""Rows of the table: the largest contributions."""
_MIX: Final = 0.6
_LIFT: Final = 0.3
"""Of the rise, beyond what a general slow-down gives the group; below it, the slow-down is called general."""
_SMALL: Final = 0.1
_MOST: Final = 0.5
_CHANCE: Final = 0.57
"""What the positive part of the difference of two samples comes to on average, in standard deviations of one."""
MOST_SEVERAL: Final = 5
"""Groups named together when no single one explains it."""
_NEARLY_ALL: Final = 0.95
"""Of the traffic: a group so large is no cause that anybody can look into."""
_NARROWER_KEEPS: Final = 0.85
_NARROWER_EXPECTS: Final = 0.6
"""Two traits tell more than one if the group where they meet has most of the rise, and much less of it was to be expected."""
_PRIOR: Final = 0.0005
"""Weight, as a share of the traffic, of the overall rate in a group's rate of before: a tiny or unseen group has no history of its own."""


class Verdict(StrEnum):
    TOO_FEW = "too_few"
    NO_RISE = "no_rise"
    MIX = "mix"
    GENERAL = "general"
    GROUP = "group"
    SEVERAL = "several"
    """It is in some groups and not in others, and no single one has most of it."""


class Sureness(StrEnum):
    SURE = "sure"
    LIKELY = "likely"
    UNSURE = "unsure"


class Stratum(msgspec.Struct, frozen=True):
    """Rows of one window with durations in one span: how many there were, and some of them, drawn evenly."""

    size: float
    durations: Sequence[float]
    traits: Sequence[Sequence[str]]
    """For each dimension, the value of each row."""


class Window(msgspec.Struct, frozen=True):
    """One window; `strata` from short durations to long. The last one has the rows above the 99th percentile of before."""

    p99_s: float
    strata: Sequence[Stratum]

    @property
    def size(self) -> float:
        return sum(stratum.size for stratum in self.strata)


class Group(msgspec.Struct, frozen=True):
    """Requests with the same value in one dimension, or in two. Ratios are 0..1; `share` and `expected` are of the rise."""

    traits: tuple[tuple[str, str], ...]
    traffic_before: float
    traffic_after: float
    slow_before: float
    slow_after: float
    share: float
    expected: float
    """What it would have if all had become slower."""

    @property
    def lift(self) -> float:
        return self.share - self.expected

    @property
    def name(self) -> str:
        return ", ".join(f"{dimension}={value or '(none)'}" for dimension, value in self.traits)


class Finding(msgspec.Struct, frozen=True):
    verdict: Verdict
    sureness: Sureness
    sentence: str
    before_s: float
    after_s: float
    cause: Group | None = None
    groups: tuple[Group, ...] = ()
    without_s: float | None = None
    """The 99th percentile of today's other requests."""


def why(before: Window, after: Window, dimensions: Sequence[str]) -> Finding:
    """Say why the 99th percentile rose."""
    if min(before.size, after.size) < FEWEST:
        sentence = (
            f"There are {before.size:,.0f} requests before and {after.size:,.0f} after: too few to say, {FEWEST} of each are needed. "
            "Choose a longer window."
        )
        return Finding(Verdict.TOO_FEW, Sureness.UNSURE, sentence, before.p99_s, after.p99_s)
    slow = after.strata[-1].size
    usual = before.strata[-1].size / before.size
    z = (slow - after.size * usual) / sqrt(max(after.size * usual * (1 + after.size / before.size), 1.0))
    if after.p99_s < before.p99_s * LEAST_RISE:
        sentence = f"P99 did not rise: {_seconds(before.p99_s)} before, {_seconds(after.p99_s)} after."
        return Finding(Verdict.NO_RISE, Sureness.SURE, sentence, before.p99_s, after.p99_s)
    if z < SURE_RISE:
        sentence = (
            f"P99 was {_seconds(before.p99_s)} before and {_seconds(after.p99_s)} after, which with so few slow requests may be chance. "
            "Choose a longer window."
        )
        return Finding(Verdict.NO_RISE, Sureness.UNSURE, sentence, before.p99_s, after.p99_s)
    return _Comparison(before, after, dimensions).finding()


class _Comparison:
    def __init__(self, before: Window, after: Window, dimensions: Sequence[str]) -> None:
        self._before = before
        self._after = after
        self._dimensions = dimensions
        self._usual = before.strata[-1].size / before.size
        self._rate = after.strata[-1].size / after.size
        self._rise = self._rate - self._usual
        self._slowest_of_before = _slowest(before, self._rate)
        self._strata = [(window, stratum) for window in (before, after) for stratum in window.strata]
        self._found: dict[tuple[str, str], list[frozenset[int]]] = {}
        self._groups: list[Group] = []
        self._mixes: list[tuple[float, Group]] = []
        self._departures: list[tuple[float, list[Group]]] = []
        for index, dimension in enumerate(dimensions):
            groups = [self._group(((dimension, value),), counts) for value, counts in self._counted(index).items()]
            mixed = sum(group.traffic_after * self._history(group) for group in groups) - self._usual
            grown = max(groups, key=lambda group: (group.traffic_after - group.traffic_before) * (group.slow_before - self._usual))
            self._mixes.append((mixed / self._rise, grown))
            self._departures.append(self._departed(groups))
            self._groups += groups
        self._groups.sort(key=lambda group: -group.share)
        drawn = max(1, len(after.strata[-1].durations))
        self._error = sqrt(0.25 / drawn) * self._rate / self._rise

    def finding(self) -> Finding:
        mix, grown = max(self._mixes, key=lambda each: each[0])
        best = max(self._groups, key=lambda group: group.lift)
        rise = f"P99 rose from {_seconds(self._before.p99_s)} to {_seconds(self._after.p99_s)}"
        if mix >= _MIX:
            sentence = (
                f"{rise} because the traffic is another: {grown.name} went from {_per_cent(grown.traffic_before)} to "
                f"{_per_cent(grown.traffic_after)} of it, and was slow before, too. Such shifts by {grown.traits[0][0]} make "
                f"{_per_cent(mix)} of the rise."
            )
            return self._told(Verdict.MIX, self._sureness(mix - _MIX / 2), sentence, grown)
        departure, several = max(self._departures, key=lambda each: each[0])
        if departure < max(_LIFT, 4 * self._error):
            sentence = (
                f"{rise}, and all became slower: the slow requests are spread over the groups as the slowest of before were. The largest "
                f"departure is {best.name}, with {_per_cent(best.share)} of the rise where {_per_cent(best.expected)} were to be expected."
            )
            return self._told(Verdict.GENERAL, self._sureness(2 * _LIFT - max(0.0, departure)), sentence, None)
        cause = self._narrowed(best) or best
        if cause.share < _MOST or cause.lift < _LIFT:
            shares = ", ".join(f"{group.name} {_per_cent(group.share)}" for group in several)
            sentence = f"{rise}, and no single group explains it. Of the rise, these have more than their part: {shares}."
            return self._told(Verdict.SEVERAL, self._sureness(departure), sentence, several[0])
        without = self._p99_without(cause)
        sentence = (
            f"{rise}. {cause.name} has {_per_cent(cause.share)} of the rise with {_per_cent(cause.traffic_after)} of the traffic: "
            f"{_per_cent(cause.slow_after)} of it is slow, {_per_cent(cause.slow_before)} was before. "
            f"Without it P99 would be {_seconds(without)}."
        )
        return self._told(Verdict.GROUP, self._sureness(cause.lift), sentence, cause, without)

    def _departed(self, groups: Sequence[Group]) -> tuple[float, list[Group]]:
        """Give how much of the rise is elsewhere than a general slow-down would put it, less what chance makes of that, and where it is."""
        above = sorted((group for group in groups if group.lift > 0), key=lambda group: -group.lift)
        chance = sum(sqrt(max(0.0, group.slow_after * group.traffic_after / self._rate)) for group in groups)
        drawn = max(1, len(self._after.strata[-1].durations))
        departure = sum(group.lift for group in above) - _CHANCE * chance / sqrt(drawn) * self._rate / self._rise
        return departure, above[:MOST_SEVERAL]

    def _told(self, verdict: Verdict, sureness: Sureness, sentence: str, cause: Group | None, without_s: float | None = None) -> Finding:
        groups = [cause] if cause is not None else []
        groups += [group for group in self._groups if group != cause and group.traffic_after < _NEARLY_ALL][: MOST_GROUPS - len(groups)]
        return Finding(verdict, sureness, sentence, self._before.p99_s, self._after.p99_s, cause, tuple(groups), without_s)

    def _sureness(self, margin: float) -> Sureness:
        if min(1.0, margin) >= max(_LIFT, 6 * self._error):
            return Sureness.SURE
        return Sureness.LIKELY if min(1.0, margin) >= 3 * self._error else Sureness.UNSURE

    def _narrowed(self, best: Group) -> Group | None:
        """Find where two traits meet that tells more than the best single one; None when none does."""
        strong = [group for group in self._groups if group.share >= 0.8 * best.share][:MOST_STRONG]
        found = [best]
        for first, second in combinations(strong, 2):
            if first.traits[0][0] == second.traits[0][0]:
                continue
            pair = self._of_traits((*first.traits, *second.traits))
            if pair.share >= _NARROWER_KEEPS * best.share and pair.expected <= _NARROWER_EXPECTS * best.expected:
                found.append(pair)
        chosen = max(found, key=lambda group: group.lift)
        return chosen if chosen is not best else None

    def _of_traits(self, traits: tuple[tuple[str, str], ...]) -> Group:
        counts = [0.0, 0.0, 0.0, 0.0, 0.0]
        found = zip(*(self._rows(trait) for trait in traits), strict=True)
        for (window, stratum), rows in zip(self._strata, (frozenset.intersection(*each) for each in found), strict=True):
            weight = _weight(stratum)
            counts[window is self._after] += weight * len(rows)
            if stratum is window.strata[-1]:
                counts[2 + (window is self._after)] += weight * len(rows)
            if window is self._before:
                counts[4] += weight * sum(stratum.durations[row] > self._slowest_of_before for row in rows)
        return self._group(traits, counts)

    def _rows(self, trait: tuple[str, str]) -> list[frozenset[int]]:
        """Give the rows of each stratum that have a trait."""
        if trait not in self._found:
            index = self._dimensions.index(trait[0])
            self._found[trait] = [
                frozenset(row for row, value in enumerate(stratum.traits[index]) if value == trait[1]) for _, stratum in self._strata
            ]
        return self._found[trait]

    def _counted(self, index: int) -> dict[str, list[float]]:
        """Count the values of one dimension: all before and after, slow before and after, among the slowest of before."""
        counted: dict[str, list[float]] = {}

        def add(values: Iterable[str], weight: float, *places: int) -> None:
            for value, count in Counter(values).items():
                row = counted.setdefault(value, [0.0, 0.0, 0.0, 0.0, 0.0])
                for place in places:
                    row[place] += weight * count

        for window, stratum in self._strata:
            late = window is self._after
            add(stratum.traits[index], _weight(stratum), *((late, 2 + late) if stratum is window.strata[-1] else (late,)))
        for stratum in self._before.strata:
            pairs = zip(stratum.traits[index], stratum.durations, strict=True)
            add((value for value, duration in pairs if duration > self._slowest_of_before), _weight(stratum), 4)
        return counted

    def _group(self, traits: tuple[tuple[str, str], ...], counts: Sequence[float]) -> Group:
        all_before, all_after, slow_before, slow_after, slowest = counts
        prior = _PRIOR * self._before.size
        history = (slow_before + prior * self._usual) / (all_before + prior)
        slowed = (slowest + prior * self._rate) / (all_before + prior)
        traffic = all_after / self._after.size
        return Group(
            traits=traits,
            traffic_before=all_before / self._before.size,
            traffic_after=traffic,
            slow_before=slow_before / all_before if all_before else 0.0,
            slow_after=slow_after / all_after if all_after else 0.0,
            share=(slow_after / self._after.size - traffic * history) / self._rise,
            expected=traffic * (slowed - history) / self._rise,
        )

    def _history(self, group: Group) -> float:
        """Give how often such a group was slow before, held to the overall rate where there is little of it."""
        return (group.slow_before * group.traffic_before + _PRIOR * self._usual) / (group.traffic_before + _PRIOR)

    def _p99_without(self, group: Group) -> float:
        found = [frozenset.intersection(*each) for each in zip(*(self._rows(trait) for trait in group.traits), strict=True)]
        rest = []
        for stratum, rows in zip(self._after.strata, found[len(self._before.strata) :], strict=True):
            kept = [duration for row, duration in enumerate(stratum.durations) if row not in rows]
            rest.append(Stratum(size=_weight(stratum) * len(kept), durations=kept, traits=()))
        return _slowest(Window(p99_s=0.0, strata=rest), 0.01)


MOST_STRONG: Final = 16
"""Single traits that are tried in pairs: more than there are dimensions, so that each can be among them."""


def _slowest(window: Window, share: float) -> float:
    """Give the duration above which this share of a window's rows is."""
    rows = sorted((duration, _weight(stratum)) for stratum in window.strata for duration in stratum.durations)
    reached = 0.0
    for duration, weight in reversed(rows):
        reached += weight
        if reached > share * window.size:
            return duration
    return -inf  # all of them are


def _weight(stratum: Stratum) -> float:
    return stratum.size / len(stratum.durations) if stratum.durations else 0.0


def _seconds(value: float) -> str:
    return f"{value:.3g} s" if value < 100 else f"{value:.0f} s"  # noqa: PLR2004  three digits


def _per_cent(ratio: float) -> str:
    return f"{ratio * 100:.1f} %" if abs(ratio) < _SMALL else f"{ratio * 100:.0f} %"
