"""Counters in the memory of one process, by name.

A counter that was forgotten is made again when it is asked for: the two are the same, for all windows of a source share one origin. With
`workers` above 1 each process holds an equal share of every ceiling.
"""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from tidegate.domain.limits import CounterSpec, Meter, StoreDown
from tidegate.policy.metering.calendar_window import CalendarWindow
from tidegate.policy.metering.counter import Counter, CounterStatistics
from tidegate.policy.metering.counter_register import MOST_PER_RULE, CounterRegister, count_alike
from tidegate.policy.metering.gcra import Gcra
from tidegate.policy.metering.places import Places
from tidegate.policy.metering.sliding_window import SlidingWindow


class LocalCounters:
    """Implements `policy.metering.counter.CounterSource`. `epoch_s`: see `calendar_window`."""

    def __init__(self, *, epoch_s: float = 0.0, workers: int = 1, most_per_rule: int = MOST_PER_RULE) -> None:
        self._epoch_s = epoch_s
        self._workers = workers
        self._register: CounterRegister[Counter] = CounterRegister(most_per_rule)
        self._origin: float | None = None

    def __repr__(self) -> str:
        return f"LocalCounters({len(self._register.counters)})"

    def counter(self, name: str, spec: CounterSpec, on_store_down: StoreDown, *, now: float) -> Counter:  # noqa: ARG002  no store to lose
        origin = self._origin
        if origin is None:
            origin = self._origin = now
        spec = self._part(spec)
        name = self._register.kept_name(name, now=now)
        known = self._register.counters.get(name)
        if known is not None and count_alike(known.spec, spec):
            if known.spec != spec:
                known.spec = spec
            return known
        made = make_counter(spec, origin=origin, epoch_s=self._epoch_s)
        self._register.keep(name, made)
        return made

    def statistics(self) -> CounterStatistics:
        return self._register.statistics()

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
