"""A clock that stands still until the test moves it.

It never goes backwards, and it carries the wall clock at a fixed distance so that records made under it are reproducible.
"""

from __future__ import annotations


class ManualClock:
    """Give instants in seconds; `clock()` and `clock.now` are the monotonic one, `clock.wall` the one since the epoch."""

    __slots__ = ("_now", "_wall_offset_s")

    def __init__(self, now: float = 0.0, *, wall_offset_s: float = 1_700_000_000.0) -> None:
        self._now = now
        self._wall_offset_s = wall_offset_s

    @property
    def now(self) -> float:
        return self._now

    @property
    def wall(self) -> float:
        return self._now + self._wall_offset_s

    def __call__(self) -> float:
        return self._now

    def advance(self, seconds: float) -> float:
        """Move forward by `seconds` >= 0 and give the instant reached."""
        if not seconds >= 0:  # also refuses NaN
            raise ValueError(f"a clock only goes forward; asked to advance by {seconds} s")
        self._now += seconds
        return self._now

    def advance_to(self, instant: float) -> float:
        """Move forward to `instant`, which must not lie in the past."""
        if not instant >= self._now:
            raise ValueError(f"a clock only goes forward; it is at {self._now} and was asked to go to {instant}")
        self._now = instant
        return self._now

    def __repr__(self) -> str:
        return f"ManualClock(now={self._now})"
