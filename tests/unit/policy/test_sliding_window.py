"""The sliding window's edges."""

from __future__ import annotations

from tidegate.policy.metering.sliding_window import SlidingWindow


def test_use_leaves_the_window_after_sixty_whole_seconds() -> None:
    """What was taken in second 0 still counts at 60.9 and no longer at 61."""
    window = SlidingWindow(now=100.0)
    assert window.take(10, 10, now=100.5) == 0
    assert window.take(1, 10, now=160.9) is None
    assert window.take(1, 10, now=161.0) == 61


def test_giving_back_after_the_slot_left_changes_nothing() -> None:
    """A refund for tokens that no longer count would be a gift."""
    window = SlidingWindow(now=0.0)
    slot = window.take(10, 20, now=0.0)
    assert slot == 0
    window.take(5, 20, now=70.0)
    window.give_back(10, slot)
    assert window.used(20, now=70.0) == 5


def test_the_reset_is_the_life_of_the_last_use() -> None:
    """An empty window needs no reset; a used one resets when its last slot leaves."""
    window = SlidingWindow(now=0.0)
    assert window.reset_s(10, now=5.0) == 0.0
    assert window.wait_s(10, 10, now=5.0) == 0.0
    window.take(1, 10, now=5.0)
    window.take(1, 10, now=7.5)
    assert window.reset_s(10, now=8.0) == 7 + 61 - 8.0


def test_an_overcharge_is_carried_into_the_next_window() -> None:
    """Three times the ceiling used at once blocks for three windows, not one."""
    window = SlidingWindow(now=0.0)
    window.charge(300, 100, now=0.0)
    assert window.used(100, now=0.0) == 300
    assert window.used(100, now=61.0) == 200
    assert window.wait_s(100, 100, now=61.0) == 61 * 3 - 61
    assert window.take(100, 100, now=182.0) is None
    assert window.take(100, 100, now=183.0) is not None


def test_a_debt_beyond_an_hour_is_announced_as_an_hour() -> None:
    """The look-ahead is bounded."""
    window = SlidingWindow(now=0.0)
    window.charge(100_000, 10, now=0.0)
    assert window.wait_s(1, 10, now=0.0) == 3600.0


def test_a_lower_ceiling_after_a_reload_takes_nothing_away_but_admits_nothing() -> None:
    """Use above a ceiling that shrank stays use."""
    window = SlidingWindow(now=0.0)
    window.take(90, 100, now=0.0)
    assert window.take(1, 50, now=1.0) is None
    assert window.used(50, now=1.0) == 90
    window.charge(5, 50, now=1.0)
    assert window.used(50, now=1.0) == 95
    assert window.is_idle(now=1.0) is False
    assert repr(window) == "SlidingWindow(total=90, debt=5)"


def test_time_that_steps_back_is_taken_as_now() -> None:
    """A clock that goes back a little does not revive expired use."""
    window = SlidingWindow(now=10.0)
    window.take(5, 10, now=12.0)
    assert window.used(10, now=9.0) == 5


def test_a_window_is_idle_once_its_last_use_has_left_and_no_debt_waits() -> None:
    """Forgetting it then loses nothing; looking changes nothing."""
    window = SlidingWindow(now=0.0)
    assert window.is_idle(now=0.0)
    window.take(5, 10, now=2.0)
    assert not window.is_idle(now=62.9)
    assert window.is_idle(now=63.0)
    window.charge(20, 10, now=63.0)
    assert not window.is_idle(now=1000.0)
    assert window.used(10, now=63.0) == 20
