"""Laws of the counters: what they admit, what they forgive (nothing), and that they have no clock of their own."""

from __future__ import annotations

from copy import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.domain.limits import CounterSpec, Meter, Period
from tidegate.policy.metering.counter import Counter
from tidegate.policy.metering.local_counters import make_counter

CEILING = 100
BURST = 40
SPECS = {
    "window": CounterSpec(Meter.SLIDING, CEILING),
    "short window": CounterSpec(Meter.SLIDING, CEILING, 1.0),
    "rate": CounterSpec(Meter.GCRA, CEILING, 60.0, BURST),
    "hour": CounterSpec(Meter.CALENDAR, CEILING, period=Period.HOUR),
    "month": CounterSpec(Meter.CALENDAR, CEILING, period=Period.MONTH),
    "places": CounterSpec(Meter.PLACES, CEILING),
}
TIMED = [name for name in SPECS if name != "places"]
RATIO = {"window": 1 / 4, "short window": 1 / 256, "rate": 1 / 4, "hour": 16.0, "month": 8192.0}
"""Seconds of one step of time: so that a few dozen steps are a few windows. All are exact in binary."""

steps = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 120)), min_size=1, max_size=60)
"""Steps of time to wait, and how much to take then."""
every_counter = pytest.mark.parametrize("kind", list(SPECS))
every_timed_counter = pytest.mark.parametrize("kind", TIMED)


def make(kind: str, *, origin: float = 0.0, epoch_s: float = 0.0) -> Counter:
    return make_counter(SPECS[kind], origin=origin, epoch_s=epoch_s)


def admitted(kind: str, moves: list[tuple[int, int]], *, shift: float = 0.0) -> list[tuple[float, int]]:
    """Take again and again; the calendar's distance to the clock shifts against the clock."""
    counter = make(kind, origin=shift, epoch_s=-shift)
    now, taken = shift, []
    for wait, amount in moves:
        now += wait * RATIO.get(kind, 1.0)
        if counter.take(amount, now=now) is not None:
            taken.append((now - shift, amount))
    return taken


@every_timed_counter
@given(moves=steps)
def test_no_span_admits_more_than_the_ceiling(kind: str, moves: list[tuple[int, int]]) -> None:
    """Law: whatever is asked and when, any span of a window holds at most its ceiling; of a rate, its burst and what it gives meanwhile."""
    taken, spec = admitted(kind, moves), SPECS[kind]
    for start, _ in taken:
        for end, _ in taken:
            total = sum(amount for at, amount in taken if start <= at <= end)
            if spec.meter is Meter.SLIDING:
                assert end - start > spec.span_s or total <= CEILING
            elif spec.meter is Meter.GCRA:
                assert total <= BURST + CEILING * max(0.0, end - start) / spec.span_s + 1e-6


@given(moves=steps)
def test_no_hour_of_the_calendar_admits_more_than_the_ceiling(moves: list[tuple[int, int]]) -> None:
    """Law: from one full hour to the next at most the ceiling."""
    by_hour: dict[int, int] = {}
    for at, amount in admitted("hour", moves):
        by_hour[int(at // 3600)] = by_hour.get(int(at // 3600), 0) + amount
    assert all(total <= CEILING for total in by_hour.values())


@every_timed_counter
@given(moves=steps)
def test_over_any_time_use_is_bounded_even_with_debt(kind: str, moves: list[tuple[int, int]]) -> None:
    """Law: charged or taken, what was used less what is still owed is at most the ceiling for each span, and one more."""
    counter, now, total, spec = make(kind), 0.0, 0, SPECS[kind]
    for wait, amount in moves:
        now += wait * RATIO[kind]
        if counter.take(amount, now=now) is None:
            counter.charge(amount, now=now)
        total += amount
    most = BURST if spec.meter is Meter.GCRA else CEILING
    spans = 0
    while (wait_s := counter.wait_s(most, now=now)) is None or wait_s > 0:
        assert wait_s is not None
        now += wait_s
        spans += 1
        assert spans <= 2, "the wait for everything is known at once"
    length_s = {Period.HOUR: 3600.0, Period.MONTH: 28 * 86_400.0}[spec.period] if spec.meter is Meter.CALENDAR else spec.span_s
    assert total <= CEILING * (now / length_s + 1) + (BURST if spec.meter is Meter.GCRA else 0)
    assert counter.is_idle(now=now + 1e-3)


@every_counter
@given(moves=steps)
def test_a_shifted_clock_changes_nothing(kind: str, moves: list[tuple[int, int]]) -> None:
    """Law: adding a constant to all times gives the same decisions."""
    assert admitted(kind, moves) == admitted(kind, moves, shift=2.0**20 + 0.25)


@every_timed_counter
@given(moves=steps, amount=st.integers(1, BURST))
def test_the_announced_wait_is_true(kind: str, moves: list[tuple[int, int]], amount: int) -> None:
    """Law: after `wait_s` the amount fits, and a moment before it does not."""
    counter, now = make(kind), 0.0
    for wait, used in moves:
        now += wait * RATIO[kind]
        counter.charge(used, now=now)
    wait_s = counter.wait_s(amount, now=now)
    assert wait_s is not None
    if wait_s > 0:
        probe = duplicate(counter)
        assert probe.take(amount, now=now + wait_s - 0.001) is None
    assert counter.take(amount, now=now + wait_s) is not None


@every_timed_counter
@given(moves=steps)
def test_the_announced_reset_is_true(kind: str, moves: list[tuple[int, int]]) -> None:
    """Law: after `reset_s` nothing is in use, and a moment before something is."""
    counter, now = make(kind), 0.0
    for wait, used in moves:
        now += wait * RATIO[kind]
        if counter.take(used, now=now) is None:
            counter.charge(used, now=now)
    reset_s = counter.reset_s(now=now)
    assert not duplicate(counter).is_idle(now=now + reset_s - 0.001)
    assert counter.is_idle(now=now + reset_s)


@every_counter
@given(moves=steps)
def test_giving_back_is_exact(kind: str, moves: list[tuple[int, int]]) -> None:
    """Law: a take that is given back at once leaves everything as it was."""
    counter, now = make(kind), 0.0
    for wait, amount in moves:
        now += wait * RATIO.get(kind, 1.0)
        before = counter.available(now=now)
        slot = counter.take(amount, now=now)
        if slot is not None:
            assert before - amount == counter.available(now=now)
            counter.give_back(amount, slot, now=now)
        assert before == counter.available(now=now)
        counter.take(amount // 3, now=now)


@every_counter
@given(moves=steps)
def test_looking_changes_nothing(kind: str, moves: list[tuple[int, int]]) -> None:
    """Law: a counter that is looked at all the time decides as one that is left alone."""
    quiet, watched, now = make(kind), make(kind), 0.0
    for wait, amount in moves:
        for _ in range(wait):
            now += RATIO.get(kind, 1.0)
            watched.available(now=now), watched.wait_s(amount, now=now), watched.reset_s(now=now), watched.is_idle(now=now)
        for counter in (quiet, watched):
            if amount % 3:
                counter.take(amount, now=now)
            else:
                counter.charge(amount, now=now)
        assert quiet.available(now=now) == watched.available(now=now)
        assert quiet.reset_s(now=now) == watched.reset_s(now=now)


def duplicate(counter: Counter) -> Counter:
    """Copy a counter, slots and all."""
    twin = copy(counter)
    slots = getattr(counter, "_slots", None)
    if slots is not None:
        twin._slots = dict(slots)  # type: ignore[attr-defined]
    return twin
