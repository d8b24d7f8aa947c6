"""How quickly a replica answers, as two figures: one that follows it closely for picking, one that is steady for comparing upstreams."""

from __future__ import annotations

import math
from collections import deque

_DECAY_S = 10.0  # a latency counts for a third after this time
_UNKNOWN_S = 60.0  # what a replica that has not answered yet is taken for, once calls wait for it
_KEPT = 32  # first tokens that a median is taken of
_ENOUGH = 5
_OLDEST_S = 300.0  # an upstream that was slow five minutes ago is asked again


class PeakEwma:
    """A mean of latencies that rises at once and falls slowly, with time as well as with answers (peak-EWMA, as in Finagle)."""

    __slots__ = ("_at", "_value")

    def __init__(self) -> None:
        self._value: float | None = None
        self._at = 0.0

    def __repr__(self) -> str:
        return f"PeakEwma({self._value})"

    def observe(self, latency_s: float, *, now: float) -> None:
        known = self._value
        if known is None or latency_s >= known:
            self._value = latency_s
        else:
            kept = math.exp(min(0.0, self._at - now) / _DECAY_S)
            self._value = known * kept + latency_s * (1.0 - kept)
        self._at = now

    def cost(self, in_flight: int, *, now: float) -> float:
        """Give the seconds that one more call may take to be answered."""
        if self._value is None:
            return _UNKNOWN_S * in_flight
        return self._value * math.exp(min(0.0, self._at - now) / _DECAY_S) * (in_flight + 1)


class RecentFirsts:
    """The last first tokens of an upstream."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: deque[tuple[float, float]] = deque(maxlen=_KEPT)

    def __repr__(self) -> str:
        return f"RecentFirsts({len(self._kept)})"

    def add(self, ttft_s: float, *, now: float) -> None:
        self._kept.append((now, ttft_s))

    def median_s(self, *, now: float) -> float | None:
        """Give the median (the lower one of two) of the last five minutes; None when it has fewer than five."""
        recent = sorted(ttft_s for at, ttft_s in self._kept if now - at <= _OLDEST_S)
        return recent[(len(recent) - 1) // 2] if len(recent) >= _ENOUGH else None
