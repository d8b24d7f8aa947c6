"""Counters in the memory of one process, by name.

A counter is kept while something is in use or somebody holds it, and is made again when it is asked for: the two are the same, for
all windows of a source share one origin. With `workers` above 1 each process holds an equal share of every ceiling.
"""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from tidegate.domain.limits import CounterSpec, Meter, StoreDown
from tidegate.policy.metering.calendar_window import CalendarWindow
from tidegate.policy.metering.counter import Counter, CounterStatistics
from tidegate.policy.metering.gcra import Gcra
from tidegate.policy.metering.places import Places
from tidegate.policy.metering.sliding_window import SlidingWindow

MOST_PER_RULE = 65_536
"""Names under which one rule counts apart; a client that invents features or models without end gets a counter it shares with others."""

_SWEEP_EVERY_S = 60.0  # idle counters cannot appear faster than windows empty


class LocalCounters:
    """Implements `policy.metering.counter.CounterSource`. `epoch_s`: see `calendar_window`."""

    def __init__(self, *, epoch_s: float = 0.0, workers: int = 1, most_per_rule: int = MOST_PER_RULE) -> None:
        self._epoch_s = epoch_s
        self._workers = workers
        self._most_per_rule = most_per_rule
        self._counters: dict[str, Counter] = {}
        self._asked: dict[str, CounterSpec] = {}
        """The whole ceilings, of which the counters have this process's share."""
        self._of_rule: dict[str, int] = {}
        self._origin: float | None = None
        self._swept_at = 0.0
        self._shared = 0

    def __repr__(self) -> str:
        return f"LocalCounters({len(self._counters)})"

    def counter(self, name: str, spec: CounterSpec, on_store_down: StoreDown, *, now: float) -> Counter:  # noqa: ARG002  no store to lose
        origin = self._origin
        if origin is None:
            origin = self._origin = self._swept_at = now
        self.sweep(now=now)
        known = self._counters.get(name)
        if known is None and self._of_rule.get(_rule(name), 0) >= self._most_per_rule:
            name = f"{_rule(name)};*"
            self._shared += 1
            known = self._counters.get(name)
        if known is not None:
            if self._asked[name] == spec:
                return known
            if _alike(self._asked[name], spec):
                self._asked[name] = spec
                known.spec = self._part(spec)
                return known
        else:
            self._of_rule[_rule(name)] = self._of_rule.get(_rule(name), 0) + 1
        self._asked[name] = spec
        made = self._counters[name] = make_counter(self._part(spec), origin=origin, epoch_s=self._epoch_s)
        return made

    def statistics(self) -> CounterStatistics:
        return CounterStatistics(len(self._counters), self._shared)

    def sweep(self, *, now: float) -> None:
        """Forget, once a minute, what is idle and not held."""
        if now - self._swept_at < _SWEEP_EVERY_S:
            return
        self._swept_at = now
        idle = [name for name, counter in self._counters.items() if counter.holders == 0 and counter.is_idle(now=now)]
        for name in idle:
            del self._counters[name], self._asked[name]
            left = self._of_rule[_rule(name)] = self._of_rule[_rule(name)] - 1
            if left == 0:
                del self._of_rule[_rule(name)]

    def _part(self, spec: CounterSpec) -> CounterSpec:
        """Give this process's share of a ceiling, at least 1."""
        if self._workers == 1:
            return spec
        return replace(spec, ceiling=max(1, spec.ceiling // self._workers), burst=max(1, spec.burst // self._workers))


def make_counter(spec: CounterSpec, *, origin: float, epoch_s: float) -> Counter:
    """Make an empty counter that counts as `spec` says."""
    match spec.meter:
        case Meter.SLIDING:
            return SlidingWindow(spec, origin=origin)
        case Meter.GCRA:
            return Gcra(spec, origin=origin)
        case Meter.CALENDAR:
            return CalendarWindow(spec, epoch_s=epoch_s)
        case Meter.PLACES:
            return Places(spec)
        case _:
            assert_never(spec.meter)


def _alike(before: CounterSpec, after: CounterSpec) -> bool:
    """Tell whether what was counted one way can be kept when it is counted the other."""
    return (before.meter, before.span_s, before.period) == (after.meter, after.span_s, after.period)


def _rule(name: str) -> str:
    return name.partition(";")[0]
