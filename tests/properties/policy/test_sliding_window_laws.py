"""Laws of the sliding window: what it admits, what it forgives (nothing), and that it has no clock of its own."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidegate.policy.metering.sliding_window import SPAN_S, SlidingWindow

CEILING = 100

steps = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 120)), min_size=1, max_size=60)
"""Quarter seconds to wait, and how much to take then."""


def _admitted(moves: list[tuple[int, int]], *, epoch: float = 0.0) -> list[tuple[float, int]]:
    window = SlidingWindow(now=epoch)
    now, taken = epoch, []
    for quarters, amount in moves:
        now += quarters / 4
        if window.take(amount, CEILING, now=now) is not None:
            taken.append((now - epoch, amount))
    return taken


@given(steps)
def test_no_interval_of_sixty_seconds_admits_more_than_the_ceiling(moves: list[tuple[int, int]]) -> None:
    """Law: whatever is asked and when, any 60 s hold at most the ceiling."""
    taken = _admitted(moves)
    for start, _ in taken:
        assert CEILING >= sum(amount for at, amount in taken if start <= at <= start + SPAN_S)


@given(steps)
def test_a_shifted_clock_changes_nothing(moves: list[tuple[int, int]]) -> None:
    """Law: adding a constant to all times gives the same decisions."""
    assert _admitted(moves) == _admitted(moves, epoch=2.0**20 + 0.25)


@given(steps, st.integers(1, CEILING))
def test_the_announced_wait_is_true(moves: list[tuple[int, int]], amount: int) -> None:
    """Law: after `wait_s` the amount fits, and a moment before it does not."""
    window = SlidingWindow(now=0.0)
    now = 0.0
    for quarters, used in moves:
        now += quarters / 4
        window.charge(used, CEILING, now=now)
    wait_s = window.wait_s(amount, CEILING, now=now)
    if wait_s >= 3600:
        return  # beyond what is looked ahead: said as an hour
    if wait_s > 0:
        probe = _copy(window)
        assert probe.take(amount, CEILING, now=now + wait_s - 0.125) is None
    assert window.take(amount, CEILING, now=now + wait_s) is not None


@given(steps)
def test_debt_is_paid_in_full(moves: list[tuple[int, int]]) -> None:
    """Law: what was charged beyond the ceiling keeps the window full until the time it would have taken to earn it has passed."""
    window = SlidingWindow(now=0.0)
    charged, now = 0, 0.0
    for quarters, amount in moves:
        now += quarters / 4
        window.charge(amount, CEILING, now=now)
        charged += amount
    windows_passed = 0
    while window.used(CEILING, now=now) > 0:
        now += SPAN_S + 1
        windows_passed += 1
    assert windows_passed >= (window_debt_floor(moves, charged))


def window_debt_floor(moves: list[tuple[int, int]], charged: int) -> int:
    """The least number of further windows: total charge, less what the time of the moves could give, over the ceiling."""
    duration = sum(quarters for quarters, _ in moves) / 4
    return max(0, -(-int(charged - CEILING * (duration / SPAN_S + 1)) // CEILING))


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 50), st.integers(0, 50)), max_size=40))
def test_taking_and_giving_back_all_leaves_nothing(moves: list[tuple[int, int, int]]) -> None:
    """Law: a window whose takes were all given back at once is empty."""
    window = SlidingWindow(now=0.0)
    now = 0.0
    for quarters, amount, _ in moves:
        now += quarters / 4
        slot = window.take(amount, CEILING, now=now)
        if slot is not None:
            window.give_back(amount, slot)
    assert window.used(CEILING, now=now) == 0


def _copy(window: SlidingWindow) -> SlidingWindow:
    twin = SlidingWindow(now=0.0)
    for name in SlidingWindow.__slots__:
        value = getattr(window, name)
        setattr(twin, name, list(value) if isinstance(value, list) else value)
    return twin
