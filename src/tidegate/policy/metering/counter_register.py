"""Counters by name: which are kept, which names share one, and which are forgotten.

A counter is kept while something is in use or somebody holds it. Invariant: a rule has at most `most_per_rule` counters, and one more that
all further names share.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from tidegate.domain.limits import CounterSpec
from tidegate.policy.metering.counter import Counter, CounterStatistics

MOST_PER_RULE = 65_536
"""Names under which one rule counts apart; a client that invents features or models without end gets a counter it shares with others."""

_SWEEP_EVERY_S = 60.0  # idle counters cannot appear faster than windows empty

Kept = TypeVar("Kept", bound=Counter)


class CounterRegister(Generic[Kept]):
    """The counters of one source; it forgets, once a minute, what is idle and not held."""

    def __init__(self, most_per_rule: int) -> None:
        self.counters: dict[str, Kept] = {}
        """For reading."""
        self._most_per_rule = most_per_rule
        self._of_rule: dict[str, int] = {}
        self._swept_at: float | None = None
        self._shared = 0

    def kept_name(self, name: str, *, now: float) -> str:
        """Give the name to look up and to keep a counter by: its own, or the one that it shares because its rule has too many."""
        self.sweep(now=now)
        rule = _rule(name)
        if name in self.counters or self._of_rule.get(rule, 0) < self._most_per_rule:
            return name
        self._shared += 1
        return f"{rule};*"

    def keep(self, name: str, counter: Kept) -> None:
        """Keep a counter by a name that `kept_name` gave, in place of the one before."""
        if name not in self.counters:
            self._of_rule[_rule(name)] = self._of_rule.get(_rule(name), 0) + 1
        self.counters[name] = counter

    def sweep(self, *, now: float) -> None:
        if self._swept_at is None:
            self._swept_at = now
        if now - self._swept_at < _SWEEP_EVERY_S:
            return
        self._swept_at = now
        idle = [name for name, counter in self.counters.items() if counter.holders == 0 and counter.is_idle(now=now)]
        for name in idle:
            del self.counters[name]
            left = self._of_rule[_rule(name)] = self._of_rule[_rule(name)] - 1
            if left == 0:
                del self._of_rule[_rule(name)]

    def statistics(self) -> CounterStatistics:
        return CounterStatistics(len(self.counters), self._shared)


def count_alike(before: CounterSpec, after: CounterSpec) -> bool:
    """Tell whether what was counted one way can be kept when it is counted the other."""
    return (before.meter, before.span_s, before.period) == (after.meter, after.span_s, after.period)


def _rule(name: str) -> str:
    return name.partition(";")[0]
