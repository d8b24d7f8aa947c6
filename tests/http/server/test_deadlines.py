"""Deadlines of many connections, kept in buckets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidegate.http.deadlines import NEVER, TICK_S, Deadlines


class Member:
    def __init__(self) -> None:
        self.deadline = NEVER
        self.wake_at = NEVER


def move(deadlines: Deadlines[Member], member: Member, at: float) -> None:
    """Move a deadline in the way connections do."""
    member.deadline = at
    if at + TICK_S < member.wake_at:
        deadlines.watch(member)


@given(
    st.floats(0, 1e6),
    st.lists(st.tuples(st.integers(0, 3), st.one_of(st.just(NEVER), st.floats(0, 20)), st.floats(0.01, 3)), max_size=40),
)
def test_law_a_deadline_is_noticed_never_early_and_at_most_two_ticks_late(start: float, moves: list[tuple[int, float, float]]) -> None:
    """Law: with a sweep each tick, every deadline that stands expires once, within [0, 2] ticks and the sweep's own step."""
    now = start
    deadlines: Deadlines[Member] = Deadlines(now)
    members = [Member() for _ in range(4)]

    def sweep() -> None:
        for member in deadlines.due(now, at_most=100):
            assert member.deadline <= now
            assert member.wake_at == NEVER
            member.deadline = NEVER
        for member in members:
            assert member.deadline == NEVER or now < member.deadline + 2 * TICK_S + 1e-6

    for index, delay, pause in moves:
        move(deadlines, members[index], now + delay)
        end = now + pause
        while now < end:
            now += TICK_S / 2
            sweep()
    for _ in range(200):
        now += TICK_S / 2
        sweep()
    assert all(member.deadline == NEVER for member in members)


def test_a_forgotten_member_does_not_expire() -> None:
    """A closed connection is not kept alive by its deadline."""
    deadlines: Deadlines[Member] = Deadlines(0.0)
    member = Member()
    move(deadlines, member, 1.0)
    deadlines.forget(member)
    deadlines.forget(member)
    assert deadlines.due(10.0, at_most=10) == []
    assert member.wake_at == NEVER


def test_many_due_at_once_are_spread_over_sweeps() -> None:
    """One sweep ends at most `at_most` connections; the rest come with the next."""
    deadlines: Deadlines[Member] = Deadlines(0.0)
    members = [Member() for _ in range(25)]
    for member in members:
        move(deadlines, member, 1.0)
    counts = [len(deadlines.due(2.0, at_most=10)) for _ in range(4)]
    assert counts == [10, 10, 5, 0]
