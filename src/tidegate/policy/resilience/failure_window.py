"""How many calls of late failed, and how many first tokens were slow, in memory that does not grow with traffic.

`FailureWindow` slides: its ten whole slots and the running one hold every call of the last `span_s`, and at most a tenth of that more.
`WindowStreak` counts how many whole windows, one after the other, had too large a share of failures.

Invariants: a total is the sum of its live slots; slots are counted from the first call, so a shifted clock changes nothing; a time
before the last one known counts as that one.
"""

from __future__ import annotations

SLOTS = 10
_LIVE = SLOTS + 1  # the whole ones and the running one


class FailureWindow:
    """Calls, failures, first tokens and slow first tokens of the last `span_s` seconds."""

    __slots__ = ("_calls", "_failures", "_firsts", "_head", "_origin", "_slot_s", "_slow", "calls", "failures", "firsts", "slow_firsts")

    def __init__(self, span_s: float) -> None:
        self._slot_s = span_s / SLOTS
        self._calls = [0] * _LIVE
        self._failures = [0] * _LIVE
        self._firsts = [0] * _LIVE
        self._slow = [0] * _LIVE
        self._origin: float | None = None
        self._head = 0
        self.calls = 0
        self.failures = 0
        self.firsts = 0
        self.slow_firsts = 0

    def __repr__(self) -> str:
        return f"FailureWindow({self.failures} of {self.calls} failed, {self.slow_firsts} of {self.firsts} slow)"

    def add(self, *, failed: bool, now: float) -> None:
        """Count a call that ended now."""
        self.advance(now)
        slot = self._head % _LIVE
        self._calls[slot] += 1
        self.calls += 1
        if failed:
            self._failures[slot] += 1
            self.failures += 1

    def add_first(self, *, slow: bool, now: float) -> None:
        """Count a first token that came now."""
        self.advance(now)
        slot = self._head % _LIVE
        self._firsts[slot] += 1
        self.firsts += 1
        if slow:
            self._slow[slot] += 1
            self.slow_firsts += 1

    def advance(self, now: float) -> None:
        """Forget what is older than the span."""
        if self._origin is None:
            self._origin = now
        head = int((now - self._origin) / self._slot_s)
        if head <= self._head:
            return
        if head - self._head >= _LIVE:
            self.clear()
            self._origin = now
            return
        while self._head < head:
            self._head += 1
            slot = self._head % _LIVE
            self.calls -= self._calls[slot]
            self.failures -= self._failures[slot]
            self.firsts -= self._firsts[slot]
            self.slow_firsts -= self._slow[slot]
            self._calls[slot] = self._failures[slot] = self._firsts[slot] = self._slow[slot] = 0

    def clear(self) -> None:
        """Begin afresh with the next call."""
        for slots in (self._calls, self._failures, self._firsts, self._slow):
            for slot in range(_LIVE):
                slots[slot] = 0
        self._origin = None
        self._head = 0
        self.calls = self.failures = self.firsts = self.slow_firsts = 0


class WindowStreak:
    """Windows of `span_s` in a row with at least `min_calls` calls, of which more than `ratio` failed.

    A window with fewer calls proves nothing and breaks the streak.
    """

    __slots__ = ("_calls", "_failures", "_index", "_min_calls", "_origin", "_ratio", "_span_s", "length")

    def __init__(self, span_s: float, ratio: float, min_calls: int) -> None:
        self._span_s = span_s
        self._ratio = ratio
        self._min_calls = min_calls
        self._origin: float | None = None
        self._index = 0
        self._calls = 0
        self._failures = 0
        self.length = 0

    def __repr__(self) -> str:
        return f"WindowStreak({self.length} bad, {self._failures} of {self._calls} failed since)"

    def add(self, *, failed: bool, now: float) -> None:
        """Count a call that ended now; `length` tells of the windows that were over before it."""
        if self._origin is None:
            self._origin = now
        index = int((now - self._origin) / self._span_s)
        if index > self._index:
            bad = self._calls >= self._min_calls and self._failures > self._ratio * self._calls
            unbroken = bad and index == self._index + 1  # a window without any call breaks it too
            self.length = self.length + 1 if unbroken else 0
            self._index = index
            self._calls = self._failures = 0
        self._calls += 1
        if failed:
            self._failures += 1

    def clear(self, length: int = 0) -> None:
        """Begin afresh, as if `length` bad windows were just over."""
        self._origin = None
        self._index = self._calls = self._failures = 0
        self.length = length
