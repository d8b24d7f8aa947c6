"""How many extra attempts the retry budget grants."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidegate.policy.resilience.retry_budget import SPAN_S, RetryBudget


def _granted(budget: RetryBudget, wanted: int, *, now: float) -> int:
    return sum(budget.withdraw(now=now) for _ in range(wanted))


def test_quiet_times_have_a_floor() -> None:
    """Without any traffic a few attempts are allowed, and no more until they have left the window."""
    budget = RetryBudget(ratio=0.2, floor=3)
    assert _granted(budget, 10, now=5.0) == 3
    assert budget.refused == 7
    assert _granted(budget, 1, now=5.0 + SPAN_S) == 0
    assert _granted(budget, 5, now=6.0 + SPAN_S) == 3


def test_a_share_of_the_traffic_may_be_tried_again() -> None:
    """A fifth of the requests of the last seconds, beyond the floor."""
    budget = RetryBudget(ratio=0.2, floor=0)
    for number in range(100):
        budget.deposit(now=number / 10)
    assert _granted(budget, 100, now=9.9) == 20
    assert repr(budget) == "RetryBudget(20 extra attempts on 100 requests, 80 refused)"


def test_leaving_a_dead_replica_is_counted_and_never_refused() -> None:
    """A hundred calls on a server that died all move on; ordinary retries wait for it."""
    budget = RetryBudget(ratio=0.2, floor=10)
    for _ in range(100):
        budget.charge(now=0.0)
    assert not budget.withdraw(now=1.0)
    assert budget.withdraw(now=100.0)


moves = st.lists(st.tuples(st.booleans(), st.integers(0, 48)), max_size=150)


@given(moves, st.integers(0, 5), st.sampled_from([0.0, 1000.0, 2.0**20]))
def test_no_ten_seconds_hold_more_than_the_budget(steps: list[tuple[bool, int]], floor: int, epoch: float) -> None:
    """Law: in any 10 s at most `floor + ratio * requests` attempts, of those and of the second before; any zero of the clock."""
    budget = RetryBudget(ratio=0.5, floor=floor)
    now = epoch
    requests: list[float] = []
    granted: list[float] = []
    for is_request, ticks in steps:
        now += ticks / 16
        if is_request:
            budget.deposit(now=now)
            requests.append(now)
        elif budget.withdraw(now=now):
            granted.append(now)
    for end in granted:
        extra = sum(end - SPAN_S < at <= end for at in granted)
        near = sum(end - SPAN_S - 1 < at <= end for at in requests)
        assert extra <= floor + 0.5 * near


@given(moves)
def test_a_shifted_clock_changes_no_grant(steps: list[tuple[bool, int]]) -> None:
    """Law: same facts, same grants."""

    def run(epoch: float) -> list[bool]:
        budget, now, grants = RetryBudget(ratio=0.3, floor=1), epoch, []
        for is_request, ticks in steps:
            now += ticks / 16
            if is_request:
                budget.deposit(now=now)
            else:
                grants.append(budget.withdraw(now=now))
        return grants

    assert run(0.0) == run(2.0**20)
