"""A steady rate with a bounded burst: the generic cell rate algorithm (ITU-T I.371, annex A), in whole numbers.

Everything used lies on one line of time: a unit takes `span_s / ceiling` of it, and `_full_until` is where the line ends. A request fits
when the line then ends no further than `burst` units ahead of now. Invariants: over any time `t` at most `burst + ceiling * t / span_s`
units are taken; what is charged beyond that only lengthens the line, so debt is carried and never forgiven.
"""

from __future__ import annotations

from tidegate.domain.limits import CounterSpec
from tidegate.policy.metering.counter import Counter

_TICKS_PER_S = 1_000_000  # the line is measured in ticks of a microsecond / ceiling: then a unit is a whole number of them


class Gcra(Counter):
    """A slot is where a take ended on the line, in microseconds."""

    __slots__ = ("_ceiling", "_full_until", "_origin", "_unit")

    def __init__(self, spec: CounterSpec, *, origin: float) -> None:
        self.spec = spec
        self.holders = 0
        self._origin = origin
        self._ceiling = spec.ceiling
        self._unit = round(spec.span_s * _TICKS_PER_S)
        self._full_until = 0

    def __repr__(self) -> str:
        return f"Gcra({self.spec.ceiling} in {self.spec.span_s:g} s, burst={self.spec.burst})"

    def take(self, amount: int, *, now: float) -> int | None:
        at = self._at(now)
        full_until = max(self._full_until, at) + amount * self._unit
        if full_until - at > self._burst * self._unit:
            return None
        self._full_until = full_until
        return -(-full_until // self._ceiling)

    def give_back(self, amount: int, slot: int, *, now: float) -> None:
        at = self._at(now)
        lies_ahead = min(slot * self._ceiling, self._full_until) - at
        if lies_ahead > 0:
            self._full_until -= min(amount * self._unit, lies_ahead)

    def charge(self, amount: int, *, now: float) -> None:
        at = self._at(now)  # first: it may change the scale
        self._full_until = max(self._full_until, at) + amount * self._unit

    def available(self, *, now: float) -> int:
        at = self._at(now)
        ahead = max(0, self._full_until - at)
        return max(0, self._burst * self._unit - ahead) // self._unit

    def wait_s(self, amount: int, *, now: float) -> float | None:
        if amount > self._burst:
            return None
        at = self._at(now)
        return self._seconds(max(self._full_until, at) + (amount - self._burst) * self._unit - at)

    def reset_s(self, *, now: float) -> float:
        at = self._at(now)
        return self._seconds(self._full_until - at)

    def is_idle(self, *, now: float) -> bool:
        at = self._at(now)
        return self._full_until <= at

    def may_come(self, amount: int, *, now: float, is_patient: bool = False) -> bool:  # noqa: ARG002  the Protocol's
        return False

    @property
    def _burst(self) -> int:
        return max(1, self.spec.burst)

    def _at(self, now: float) -> int:
        """Give the place of `now` on the line; a ceiling that changed changes the scale, and keeps the units that are in use."""
        passed, ceiling = int((now - self._origin) * _TICKS_PER_S), self.spec.ceiling
        if ceiling != self._ceiling:
            self._full_until += passed * (ceiling - self._ceiling)
            self._ceiling = ceiling
        return passed * ceiling

    def _seconds(self, ticks: int) -> float:
        """Give a distance on the line in seconds, rounded up to a whole microsecond and one more: `now` is rounded down."""
        return (-(-ticks // self._ceiling) + 1) / _TICKS_PER_S if ticks > 0 else 0.0
