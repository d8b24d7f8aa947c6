"""Use of the last 60 s in one-second slots, with debt that is carried and never forgiven.

Invariants: the live slots never hold more than the ceiling (what is used beyond it waits as debt and moves into the
window as older slots leave it), so no 60 s interval admits more than the ceiling, and over any longer time the total use
is at most `ceiling * (time / 60 s + 1)`. Slots are counted from the window's first use, so a shifted clock changes nothing.
"""

from __future__ import annotations

SPAN_S = 60
_SLOTS = SPAN_S + 1  # 60 whole seconds and the one that is running
_LONGEST_LOOK_AHEAD_S = 3600  # a debt that needs longer than this is reported as one hour


class SlidingWindow:
    """One counter of one key. Amounts are whole units (tokens or requests); `now` is seconds on any monotonic clock."""

    __slots__ = ("_debt", "_head", "_last_used", "_origin", "_slots", "_total")

    def __init__(self, *, now: float) -> None:
        self._origin = now
        self._slots = [0] * _SLOTS
        self._head = 0
        self._total = 0
        self._debt = 0
        self._last_used = -_SLOTS

    def __repr__(self) -> str:
        return f"SlidingWindow(total={self._total}, debt={self._debt})"

    def used(self, ceiling: int, *, now: float) -> int:
        """Give the units in use, debt included: 0 or more, above `ceiling` when there is debt."""
        self._advance(ceiling, now)
        return self._total + self._debt

    def take(self, amount: int, ceiling: int, *, now: float) -> int | None:
        """Use `amount` now if it fits; give the slot it went into (for `give_back`), or None."""
        self._advance(ceiling, now)
        if self._total + self._debt + amount > ceiling:
            return None
        return self._add(amount)

    def give_back(self, amount: int, slot: int) -> None:
        """Undo a part of what `take` put into `slot`; nothing happens when the slot has left the window."""
        if self._head - slot >= _SLOTS:
            return
        index = slot % _SLOTS
        returned = min(amount, self._slots[index])
        self._slots[index] -= returned
        self._total -= returned

    def charge(self, amount: int, ceiling: int, *, now: float) -> None:
        """Use `amount` whether it fits or not; the part that does not fit becomes debt."""
        self._advance(ceiling, now)
        self._debt += amount
        self._pay(ceiling)

    def reset_s(self, ceiling: int, *, now: float) -> float:
        """Seconds until nothing of the window is in use, if nothing more is used and there is no debt."""
        self._advance(ceiling, now)
        if self._total == 0:
            return 0.0
        return max(0.0, self._origin + self._last_used + _SLOTS - now)

    def wait_s(self, amount: int, ceiling: int, *, now: float) -> float:
        """Seconds until `amount` (at most `ceiling`) will fit if nothing more is used; 0 when it fits now."""
        self._advance(ceiling, now)
        slots, total, debt = self._slots.copy(), self._total, self._debt
        if total + debt + amount <= ceiling:
            return 0.0
        for head in range(self._head + 1, self._head + _LONGEST_LOOK_AHEAD_S):
            index = head % _SLOTS
            total -= slots[index]
            paid = min(debt, ceiling - total)
            slots[index] = paid
            total += paid
            debt -= paid
            if total + debt + amount <= ceiling:
                return self._origin + head - now
        return float(_LONGEST_LOOK_AHEAD_S)

    def is_idle(self, *, now: float) -> bool:
        """Tell whether forgetting this window would change nothing. Only looks: how debt moves depends on a ceiling."""
        return self._debt == 0 and (self._total == 0 or int(now - self._origin) - self._last_used >= _SLOTS)

    def _advance(self, ceiling: int, now: float) -> None:
        head = int(now - self._origin)
        while self._head < head:
            if self._total == 0 and self._debt == 0:
                self._head = head  # all slots are zero already
                return
            self._head += 1
            index = self._head % _SLOTS
            self._total -= self._slots[index]
            self._slots[index] = 0
            self._pay(ceiling)

    def _pay(self, ceiling: int) -> None:
        if self._debt > 0:
            paid = max(0, min(self._debt, ceiling - self._total))
            self._debt -= paid
            self._add(paid)

    def _add(self, amount: int) -> int:
        self._slots[self._head % _SLOTS] += amount
        self._total += amount
        if amount:
            self._last_used = self._head
        return self._head
