"""The sliding window's edges."""

from __future__ import annotations

import pytest

from tidegate.domain.limits import CounterSpec, Meter
from tidegate.policy.metering.sliding_window import SlidingWindow


def window(ceiling: int, *, span_s: float = 60.0, origin: float = 0.0) -> SlidingWindow:
    return SlidingWindow(CounterSpec(Meter.SLIDING, ceiling, span_s), origin=origin)


def test_use_leaves_the_window_a_slot_after_the_span() -> None:
    """What was taken in the first tenth of a second still counts at 60.05 and no longer at 60.1."""
    one = window(10, origin=100.0)
    assert one.take(10, now=100.05) == 0
    assert one.take(1, now=160.09) is None
    assert one.take(1, now=160.1) == 601


def test_a_window_may_be_of_any_length() -> None:
    """A second has slots of a 600th of it, a day some two minutes."""
    second, day = window(1, span_s=1.0), window(1, span_s=86_400.0)
    for one in (second, day):
        assert one.take(1, now=0.0) == 0
    assert second.wait_s(1, now=0.5) == pytest.approx(601 / 600 - 0.5)
    assert day.wait_s(1, now=600.0) == pytest.approx(86_544 - 600.0)


def test_giving_back_after_the_slot_left_changes_nothing() -> None:
    """A refund for tokens that no longer count would be a gift."""
    one = window(20)
    slot = one.take(10, now=0.0)
    assert slot == 0
    one.take(5, now=70.0)
    one.give_back(10, slot, now=70.0)
    assert one.available(now=70.0) == 15


def test_what_is_given_back_pays_a_debt_first() -> None:
    """Nobody gets in before those who owe have paid."""
    one = window(100)
    slot = one.take(60, now=0.0)
    assert slot == 0
    one.charge(60, now=0.0)
    one.give_back(50, slot, now=1.0)
    assert one.available(now=1.0) == 30
    assert repr(one) == "SlidingWindow(100 in 60 s, total=70, debt=0)"


def test_the_reset_is_the_life_of_the_last_use() -> None:
    """An empty window needs no reset; a used one resets when its last slot leaves, one in debt when all is paid."""
    one = window(10)
    assert one.reset_s(now=5.0) == 0.0
    assert one.wait_s(10, now=5.0) == 0.0
    one.take(1, now=5.0)
    slot = one.take(1, now=7.5)
    assert one.reset_s(now=8.0) == pytest.approx(7.5 + 60.1 - 8.0)
    assert slot is not None
    one.give_back(1, slot, now=8.0)
    assert one.reset_s(now=8.0) == pytest.approx(5 + 60.1 - 8.0)
    one.charge(10, now=8.0)
    assert one.reset_s(now=8.0) == pytest.approx(5 + 2 * 60.1 - 8.0)


def test_an_overcharge_is_carried_into_the_next_window() -> None:
    """Three times the ceiling used at once blocks for three windows, not one."""
    one = window(100)
    one.charge(300, now=0.0)
    assert one.available(now=0.0) == 0
    assert one.wait_s(100, now=0.0) == pytest.approx(3 * 60.1)
    assert one.wait_s(1, now=61.0) == pytest.approx(3 * 60.1 - 61.0)
    assert one.take(1, now=180.2) is None
    assert one.take(100, now=180.4) is not None


def test_what_is_larger_than_the_ceiling_never_fits() -> None:
    """No time to wait is named for it."""
    assert window(100).wait_s(101, now=0.0) is None


def test_a_lower_ceiling_takes_nothing_away_but_admits_nothing() -> None:
    """Use above a ceiling that shrank stays use, and what is charged then waits."""
    one = window(100)
    one.take(90, now=0.0)
    one.spec = CounterSpec(Meter.SLIDING, 50)
    assert one.take(1, now=1.0) is None
    assert one.available(now=1.0) == 0
    one.charge(5, now=1.0)
    assert not one.is_idle(now=1.0)
    assert repr(one) == "SlidingWindow(50 in 60 s, total=90, debt=5)"


def test_time_that_steps_back_is_taken_as_now() -> None:
    """A clock that goes back a little does not revive expired use."""
    one = window(10, origin=10.0)
    one.take(5, now=12.0)
    assert one.available(now=9.0) == 5
    one.charge(1, now=9.0)
    assert one.available(now=12.0) == 4


def test_a_window_is_idle_once_its_last_use_has_left_and_no_debt_waits() -> None:
    """Forgetting it then loses nothing, and nothing of it is kept."""
    one = window(10)
    assert one.is_idle(now=0.0)
    one.take(5, now=2.0)
    assert not one.is_idle(now=62.0)
    assert one.is_idle(now=62.2)
    one.charge(20, now=63.0)
    assert not one.is_idle(now=63.0 + 60.5)
    assert one.is_idle(now=63.0 + 121.0)
    assert one._slots == {}


def test_a_local_window_expects_nothing_from_elsewhere() -> None:
    """A refusal of it is final for now."""
    assert not window(1).may_come(1, now=0.0)
