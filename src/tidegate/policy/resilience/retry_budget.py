"""How many extra attempts may be made: a share of the requests of the last 10 s, and a few always.

Retries make an overload worse; beyond the budget a failure goes to the client as it is. Invariants: memory is constant; in any 10 s
`withdraw` grants at most `floor + ratio * requests` attempts, where the requests are those of the same 10 s and the second before.
Slots are counted from the first use, so a shifted clock changes nothing.
"""

from __future__ import annotations

SPAN_S = 10
_SLOTS = SPAN_S + 1  # 10 whole seconds and the one that is running


class RetryBudget:
    """One for all requests of a worker. `now` is seconds on any monotonic clock."""

    __slots__ = ("_extra", "_extra_total", "_floor", "_head", "_origin", "_ratio", "_refused", "_requests", "_requests_total")

    def __init__(self, *, ratio: float = 0.2, floor: int = 10) -> None:
        self._ratio = ratio
        self._floor = floor
        self._origin: float | None = None
        self._head = 0
        self._requests = [0] * _SLOTS
        self._extra = [0] * _SLOTS
        self._requests_total = 0
        self._extra_total = 0
        self._refused = 0

    def __repr__(self) -> str:
        return f"RetryBudget({self._extra_total} extra attempts on {self._requests_total} requests, {self._refused} refused)"

    @property
    def refused(self) -> int:
        """Extra attempts that were not granted, since the beginning."""
        return self._refused

    def deposit(self, *, now: float) -> None:
        """A request begins its first attempt."""
        self._advance(now)
        self._requests[self._head % _SLOTS] += 1
        self._requests_total += 1

    def withdraw(self, *, now: float) -> bool:
        """Ask for one extra attempt."""
        self._advance(now)
        if self._extra_total + 1 > self._floor + self._ratio * self._requests_total:
            self._refused += 1
            return False
        self._charge()
        return True

    def charge(self, *, now: float) -> None:
        """Count an extra attempt that is made in any case: its call leaves a replica that was found dead, and nobody has served it yet."""
        self._advance(now)
        self._charge()

    def _charge(self) -> None:
        self._extra[self._head % _SLOTS] += 1
        self._extra_total += 1

    def _advance(self, now: float) -> None:
        if self._origin is None:
            self._origin = now
        head = int(now - self._origin)
        if head - self._head >= _SLOTS:  # all slots are old: no need to visit the time between
            self._requests, self._extra = [0] * _SLOTS, [0] * _SLOTS
            self._requests_total = self._extra_total = 0
            self._head = head
        while self._head < head:
            self._head += 1
            index = self._head % _SLOTS
            self._requests_total -= self._requests[index]
            self._extra_total -= self._extra[index]
            self._requests[index] = self._extra[index] = 0
