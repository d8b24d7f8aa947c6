"""Use of the last `span_s` seconds in slots of a 600th of it, with debt that is carried and never forgiven.

Invariants: the live slots never hold more than the ceiling (what is used beyond it waits as debt and moves into the window as older
slots leave it), so no `span_s` admits more than the ceiling, and over any longer time the total use is at most
`ceiling * (time / span_s + 1)`. A slot is kept only while something is in it: an idle key costs an empty dict. Slots are counted from
the origin that all windows of a source share, so a shifted clock changes nothing and a slot means the same to a window made again.
"""

from __future__ import annotations

from tidegate.domain.limits import CounterSpec
from tidegate.policy.metering.counter import Counter

SLOTS_PER_SPAN = 600
"""So that "any 60 s" is within 0.2 % of the ceiling, and a busy window is a few hundred entries."""

_SLOTS = SLOTS_PER_SPAN + 1  # the whole ones and the one that is running
_ROUNDING = 1e-6  # of a slot: a time that was computed as a boundary is beyond it, not a rounding error before it


class SlidingWindow(Counter):
    """A slot is the number of a 600th of the span since the origin."""

    __slots__ = ("_debt", "_head", "_origin", "_rate", "_slots", "_total")

    def __init__(self, spec: CounterSpec, *, origin: float) -> None:
        self.spec = spec
        self.holders = 0
        self._origin = origin
        self._rate = SLOTS_PER_SPAN / spec.span_s
        self._slots: dict[int, int] = {}
        """What is in use by slot, oldest first."""
        self._head = -_SLOTS
        self._total = 0
        self._debt = 0

    def __repr__(self) -> str:
        return f"SlidingWindow({self.spec.ceiling} in {self.spec.span_s:g} s, total={self._total}, debt={self._debt})"

    def take(self, amount: int, *, now: float) -> int | None:
        head = int((now - self._origin) * self._rate + _ROUNDING)
        if head > self._head:
            self._advance(head)
        total = self._total + amount
        if total + self._debt > self.spec.ceiling:
            return None
        self._total = total
        head = self._head
        slots = self._slots
        slots[head] = slots.get(head, 0) + amount
        return head

    def give_back(self, amount: int, slot: int, *, now: float) -> None:
        head = int((now - self._origin) * self._rate + _ROUNDING)
        if head > self._head:
            self._advance(head)
        held = self._slots.get(slot)
        if held is None:
            return
        returned = min(amount, held)
        self._slots[slot] = held - returned
        self._total -= returned
        if self._debt:
            self._pay(self._head)

    def charge(self, amount: int, *, now: float) -> None:
        self._advance_to(now)
        slot = int((now - self._origin) * self._rate + _ROUNDING)
        if slot < self._head:
            amount = self._charge_late(amount, slot)
        self._debt += amount
        self._pay(self._head)

    def available(self, *, now: float) -> int:
        head = int((now - self._origin) * self._rate + _ROUNDING)
        if head > self._head:
            self._advance(head)
        return max(0, self.spec.ceiling - self._total - self._debt)

    def wait_s(self, amount: int, *, now: float) -> float | None:
        ceiling = self.spec.ceiling
        if amount > ceiling:
            return None
        self._advance_to(now)
        excess = self._total + self._debt + amount - ceiling
        if excess <= 0:
            return 0.0
        return self._leaves_s(excess, now)

    def reset_s(self, *, now: float) -> float:
        self._advance_to(now)
        if self._debt:
            return self._leaves_s(self._total + self._debt, now)
        if self._total == 0:
            return 0.0
        slots = self._slots
        newest = self._head
        if not slots.get(newest):  # else the running one, as nearly always
            newest = next(slot for slot in reversed(slots) if slots[slot])
        return max(0.0, self._origin + (newest + _SLOTS) / self._rate - now)

    def is_idle(self, *, now: float) -> bool:
        self._advance_to(now)
        return self._total == 0 and self._debt == 0

    def may_come(self, amount: int, *, now: float, is_patient: bool = False) -> bool:  # noqa: ARG002  the Protocol's
        return False

    def _leaves_s(self, amount: int, now: float) -> float:
        """Seconds until `amount` of what is in use has left.

        While there is debt the window is full, and what leaves a slot is paid for again in the slot that begins then: so the slots
        pass by turn after turn, the same each time, until the debt is paid.
        """
        turns, rest = divmod(amount - 1, self._total)
        left = 0
        for slot, held in self._slots.items():
            left += held
            if left > rest:
                return max(0.0, self._origin + (slot + _SLOTS * (turns + 1)) / self._rate - now)
        raise AssertionError("the slots hold what is in use")

    def _advance_to(self, now: float) -> None:
        head = int((now - self._origin) * self._rate + _ROUNDING)
        if head > self._head:
            self._advance(head)

    def _charge_late(self, amount: int, slot: int) -> int:
        """Put a use that is told late where it belongs, as far as it fits; give what does not."""
        if slot + _SLOTS <= self._head:
            return 0
        fits = max(0, min(amount, self.spec.ceiling - self._total - self._debt))
        if fits:
            slots = self._slots
            is_known = slot in slots
            slots[slot] = slots.get(slot, 0) + fits
            if not is_known:
                self._slots = dict(sorted(slots.items()))
            self._total += fits
        return amount - fits

    def _advance(self, head: int) -> None:
        """Let slots leave, in their order; each lets debt in at the moment it leaves."""
        slots = self._slots
        while slots:
            oldest = next(iter(slots))
            if oldest + _SLOTS > head:
                break
            self._total -= slots.pop(oldest)
            if self._debt:
                self._pay(oldest + _SLOTS)
        self._head = head

    def _pay(self, slot: int) -> None:
        paid = min(self._debt, self.spec.ceiling - self._total)
        if paid > 0:
            self._debt -= paid
            self._total += paid
            self._slots[slot] = self._slots.get(slot, 0) + paid
