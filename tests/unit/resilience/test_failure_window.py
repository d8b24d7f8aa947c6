"""Windows of calls: what they count, and when they forget it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidegate.policy.resilience.failure_window import SLOTS, FailureWindow, WindowStreak


def test_a_window_counts_calls_and_first_tokens() -> None:
    """Failures and slow first tokens are parts of their totals."""
    window = FailureWindow(10.0)
    window.add(failed=False, now=1.0)
    window.add(failed=True, now=2.0)
    window.add_first(slow=True, now=2.0)
    window.add_first(slow=False, now=3.0)
    assert (2, 1, 2, 1) == (window.calls, window.failures, window.firsts, window.slow_firsts)
    assert repr(window) == "FailureWindow(1 of 2 failed, 1 of 2 slow)"


def test_a_window_forgets_after_its_span_and_at_most_a_slot_more() -> None:
    """What is older than ten whole slots and the running one has left; after a long silence all has."""
    window = FailureWindow(10.0)
    window.add(failed=True, now=0.5)
    window.advance(10.5)
    assert window.failures == 1
    window.advance(11.5)
    assert (0, 0) == (window.calls, window.failures)
    window.add(failed=True, now=12.0)
    window.advance(500.0)
    assert window.calls == 0


def test_a_cleared_window_begins_with_the_next_call() -> None:
    """Nothing of before is left."""
    window = FailureWindow(10.0)
    window.add(failed=True, now=0.0)
    window.clear()
    window.add(failed=False, now=100.0)
    assert (1, 0) == (window.calls, window.failures)


@given(st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=80))
def test_a_window_holds_exactly_what_its_slots_cover(moves: list[tuple[int, bool]]) -> None:
    """Law: the counts are those of the calls in the last ten whole slots and the running one, however they came."""
    window = FailureWindow(float(SLOTS))  # slots of one second
    calls: list[tuple[float, bool]] = []
    now = origin = 0.0
    for gap, failed in moves:
        now += gap / 8
        if calls and int(now - origin) - int(calls[-1][0] - origin) > SLOTS:
            calls, origin = [], now  # a window that ran empty begins afresh
        elif not calls:
            origin = now
        calls.append((now, failed))
        window.add(failed=failed, now=now)
        live = [bad for at, bad in calls if int(now - origin) - int(at - origin) <= SLOTS]
        assert (len(live), sum(live)) == (window.calls, window.failures)


def _fill(streak: WindowStreak, start: float, *, calls: int, failures: int) -> None:
    for number in range(calls):
        streak.add(failed=number < failures, now=start)


def test_bad_windows_in_a_row_are_counted_when_they_are_over() -> None:
    """The running one does not count yet."""
    streak = WindowStreak(60.0, 0.015, 50)
    for window in range(3):
        _fill(streak, 60.0 * window, calls=50, failures=1)
        assert window == streak.length
    streak.add(failed=False, now=180.0)
    assert streak.length == 3
    assert repr(streak) == "WindowStreak(3 bad, 0 of 1 failed since)"


def test_a_good_quiet_or_missing_window_breaks_the_streak() -> None:
    """A small enough share, too few calls, or none at all."""
    for calls, failures, after in ((100, 1, 180.0), (49, 49, 180.0), (50, 50, 240.0)):
        streak = WindowStreak(60.0, 0.015, 50)
        _fill(streak, 0.0, calls=50, failures=1)
        _fill(streak, 60.0, calls=50, failures=1)
        assert streak.length == 1
        _fill(streak, 120.0, calls=calls, failures=failures)
        streak.add(failed=False, now=after)
        assert streak.length == 0


def test_a_streak_may_begin_with_a_past() -> None:
    """After a slow trip one more bad window is enough."""
    streak = WindowStreak(60.0, 0.015, 50)
    streak.clear(2)
    _fill(streak, 1000.0, calls=50, failures=1)
    streak.add(failed=False, now=1060.0)
    assert streak.length == 3
