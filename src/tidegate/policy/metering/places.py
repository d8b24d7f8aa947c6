"""How many of something run at the same time. A place is taken for as long as it is used; no clock is involved."""

from __future__ import annotations

from tidegate.domain.limits import CounterSpec
from tidegate.policy.metering.counter import Counter

PLACE_RETRY_S = 1.0
"""When a running call ends is not known; OpenAI's SDKs back off from here by themselves."""


class Places(Counter):
    """There are no slots: every place is like the others."""

    __slots__ = ("_in_use",)

    def __init__(self, spec: CounterSpec) -> None:
        self.spec = spec
        self.holders = 0
        self._in_use = 0

    def __repr__(self) -> str:
        return f"Places({self._in_use} of {self.spec.ceiling})"

    def take(self, amount: int, *, now: float) -> int | None:  # noqa: ARG002  the Protocol's
        if self._in_use + amount > self.spec.ceiling:
            return None
        self._in_use += amount
        return 0

    def give_back(self, amount: int, slot: int, *, now: float) -> None:  # noqa: ARG002  the Protocol's
        assert amount <= self._in_use, "a place is given back once"
        self._in_use -= amount

    def charge(self, amount: int, *, now: float) -> None:  # noqa: ARG002  the Protocol's
        self._in_use += amount

    def available(self, *, now: float) -> int:  # noqa: ARG002  the Protocol's
        return max(0, self.spec.ceiling - self._in_use)

    def wait_s(self, amount: int, *, now: float) -> float | None:
        if amount > self.spec.ceiling:
            return None
        return 0.0 if amount <= self.available(now=now) else PLACE_RETRY_S

    def reset_s(self, *, now: float) -> float:  # noqa: ARG002  the Protocol's
        return PLACE_RETRY_S if self._in_use else 0.0

    def is_idle(self, *, now: float) -> bool:  # noqa: ARG002  the Protocol's
        return self._in_use == 0

    def may_come(self, amount: int, *, now: float, is_patient: bool = False) -> bool:  # noqa: ARG002  the Protocol's
        return False
