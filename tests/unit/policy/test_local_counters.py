"""Counters by name in one process: which are kept, which are shared, and what a reload changes."""

from __future__ import annotations

import pytest

from tidegate.domain.limits import CounterSpec, Meter, Period, StoreDown
from tidegate.policy.metering.calendar_window import CalendarWindow
from tidegate.policy.metering.counter import Counter, CounterStatistics
from tidegate.policy.metering.gcra import Gcra
from tidegate.policy.metering.local_counters import LocalCounters
from tidegate.policy.metering.places import Places
from tidegate.policy.metering.sliding_window import SlidingWindow

SPEC = CounterSpec(Meter.SLIDING, 100)


def ask(source: LocalCounters, name: str, spec: CounterSpec = SPEC, *, now: float = 0.0) -> Counter:
    return source.counter(name, spec, StoreDown.DENY, now=now)


@pytest.mark.parametrize(
    ("meter", "kind"), [(Meter.SLIDING, SlidingWindow), (Meter.GCRA, Gcra), (Meter.CALENDAR, CalendarWindow), (Meter.PLACES, Places)]
)
def test_every_meter_has_a_counter(meter: Meter, kind: type) -> None:
    """A name is one counter as long as it is used."""
    source = LocalCounters()
    counter = ask(source, "r", CounterSpec(meter, 5))
    assert isinstance(counter, kind)
    assert ask(source, "r", CounterSpec(meter, 5)) is counter
    assert repr(source) == "LocalCounters(1)"


def test_another_ceiling_keeps_the_use_and_another_meter_does_not() -> None:
    """After a reload a key owes what it owed; what was counted in minutes says nothing about a month."""
    source = LocalCounters()
    counter = ask(source, "r")
    counter.take(90, now=0.0)
    wider = CounterSpec(Meter.SLIDING, 200)
    assert ask(source, "r", wider) is counter
    assert counter.available(now=0.0) == 110
    longer = CounterSpec(Meter.SLIDING, 200, 3600.0)
    assert ask(source, "r", longer).available(now=0.0) == 200
    assert ask(source, "r", CounterSpec(Meter.CALENDAR, 200, period=Period.MONTH)).available(now=0.0) == 200


def test_idle_counters_that_nobody_holds_are_forgotten() -> None:
    """Memory follows the counters in use."""
    source = LocalCounters()
    held = ask(source, "r;key=held")
    held.holders += 1
    ask(source, "r;key=busy").charge(1000, now=0.0)
    ask(source, "r;key=idle").take(1, now=0.0)
    ask(source, "other;key=idle")
    assert source.statistics() == CounterStatistics(4)
    ask(source, "r;key=held", now=61.0)
    assert source.statistics() == CounterStatistics(2)
    assert ask(source, "r;key=held", now=200.0) is held


def test_a_counter_made_again_counts_in_the_same_slots() -> None:
    """Whoever still has a slot of the forgotten one gives back nothing of the other's."""
    source = LocalCounters()
    ask(source, "x")
    first = ask(source, "r", now=0.25)
    slot = first.take(10, now=0.25)
    assert slot is not None
    again = ask(source, "r", now=130.0)
    assert again is not first
    again.take(10, now=130.0)
    again.give_back(10, slot, now=130.0)
    assert again.available(now=130.0) == 90


def test_names_without_end_share_one_counter() -> None:
    """A client that invents features gets no memory for it, and no further limit either; other rules go on."""
    source = LocalCounters(most_per_rule=2)
    ask(source, "r;feature=a"), ask(source, "r;feature=b")
    shared = ask(source, "r;feature=c")
    shared.holders += 1
    shared.take(100, now=0.0)
    assert ask(source, "r;feature=d") is shared
    assert ask(source, "r;feature=d").take(1, now=0.0) is None
    assert ask(source, "s;feature=d").take(1, now=0.0) is not None
    assert source.statistics() == CounterStatistics(4, 3)
    ask(source, "s;feature=e", now=61.0)
    assert ask(source, "r;feature=a", now=61.0).take(1, now=61.0) is not None


def test_several_workers_have_a_share_each() -> None:
    """A quarter of the ceiling and of the burst, at least 1; asking for the same again changes nothing."""
    source = LocalCounters(workers=4)
    rate = CounterSpec(Meter.GCRA, 100, 60.0, 2)
    assert ask(source, "r", rate).spec == CounterSpec(Meter.GCRA, 25, 60.0, 1)
    assert ask(source, "r", rate).spec is ask(source, "r", rate).spec
    assert ask(source, "few", CounterSpec(Meter.PLACES, 2)).spec.ceiling == 1
