"""How long an answer will be, learned from the answers before it, so that a request without a cap holds neither too little nor too much.

Invariants: of requests like those before them, at most a share of `1 - quantile` uses more than was expected (see `quantile_sketch`);
the same observations give the same answers; memory is bounded. What is like a request is looked for in the narrowest group that was
observed often enough lately: its tenant's requests of one route, model and prompt size; then everybody's; then of all sizes; then of all
routes. When no group can say, it is the client's cap with a margin, or a constant.

Whoever calls measures a prompt in the same way before and after: by its cheap bound, since the exact number is known only afterwards.
"""

from __future__ import annotations

from collections import OrderedDict
from math import ceil, log2

from tidegate.domain.units import ModelName, TenantId
from tidegate.policy.metering.quantile_sketch import HALF_LIFE_S, QuantileSketch
from tidegate.ports import ForecastStatistics

CAP_MARGIN = 1.2
"""Held of a cap while nothing is known: some models count their reasoning apart from the cap."""

MAX_GROUPS = 4096
"""Some 4 MB. The group that was not observed for longest goes; its requests are then expected by a wider one, which is observed more."""

_ENOUGH = 30.0  # observations of which a tenth says something; a higher quantile asks for more by itself
_RENEW_EVERY = 16  # observations; the quantile of hundreds moves little with a few more
_WIDER_LEARN_ONE_IN = 8  # a busy tenant's answers need not all be told to groups that others are expected by
_SMALLEST_BITS = 7  # prompts below 128 tokens are of one size
_LARGEST_BITS = 17  # those of 64 Ki and more too
_LENGTH_OF_A_CUT = 2  # times what was written; of an answer of unknown length that has come so far, as much again is to be expected

_Key = tuple[str | int, ...]


class FixedForecast:
    """Expects the same of every answer, and heeds the client's cap: as the expected length, or only as the most there can be."""

    def __init__(self, tokens: int, *, heeds_cap: bool) -> None:
        self._tokens = tokens
        self._heeds_cap = heeds_cap

    def expect(self, tenant: TenantId, route: str, model: ModelName, *, prompt_tokens: int, cap: int | None, now: float) -> int:  # noqa: ARG002
        if cap is None:
            return self._tokens
        return cap if self._heeds_cap else min(cap, self._tokens)

    def observe(
        self, tenant: TenantId, route: str, model: ModelName, *, prompt_tokens: int, completion_tokens: int, cut: bool, now: float
    ) -> None:
        """Learn nothing."""

    def statistics(self) -> ForecastStatistics:
        return ForecastStatistics(0, 0, 0)


class _Group:
    """What is known of one kind of request. `expected` holds until `good_until`, which is past while nothing can be said."""

    __slots__ = ("expected", "good_until", "observed", "sketch")

    def __init__(self, *, now: float) -> None:
        self.sketch = QuantileSketch(now=now)
        self.observed = 0
        self.expected = 0
        self.good_until = now


class LearnedForecast:
    """Expects of an answer the length that a share of `quantile` of those like it stays within. Implements `ports.Forecast`."""

    def __init__(self, quantile: float, constant_tokens: int) -> None:
        self.quantile = quantile
        self.constant_tokens = constant_tokens
        self._enough = max(_ENOUGH, quantile / (1 - quantile))  # with less there is no quantile that keeps the promise
        self._groups: OrderedDict[_Key, _Group] = OrderedDict()
        self._foreseen = 0
        self._exceeded = 0

    def __repr__(self) -> str:
        return f"LearnedForecast(quantile={self.quantile:g}, groups={len(self._groups)})"

    def expect(self, tenant: TenantId, route: str, model: ModelName, *, prompt_tokens: int, cap: int | None, now: float) -> int:
        """Give the output tokens to hold for one answer; `cap` is the client's own."""
        narrow, wide = _sized(tenant, route, model, prompt_tokens)
        expected = self._learned(narrow, wide, route, model, now)
        if expected is None:
            return self.constant_tokens if cap is None else ceil(cap * CAP_MARGIN)
        return expected if cap is None or expected < cap else cap

    def observe(
        self, tenant: TenantId, route: str, model: ModelName, *, prompt_tokens: int, completion_tokens: int, cut: bool, now: float
    ) -> None:
        """Learn from an answer that has ended. `cut`: the gateway ended it for want of tokens.

        How long it would have been nobody knows. Taken at its length, each cut would make the next forecast shorter, and that cuts more.
        """
        narrow, wide = _sized(tenant, route, model, prompt_tokens)
        expected = self._learned(narrow, wide, route, model, now)
        if expected is not None:
            self._foreseen += 1
            self._exceeded += completion_tokens > expected
        length = completion_tokens * _LENGTH_OF_A_CUT if cut else completion_tokens
        if self._observe(narrow, length, now):
            for key in (wide, (route, model), (model,)):
                self._observe(key, length, now)
        while len(self._groups) > MAX_GROUPS:
            self._groups.popitem(last=False)

    def statistics(self) -> ForecastStatistics:
        return ForecastStatistics(len(self._groups), self._foreseen, self._exceeded)

    def _learned(self, narrow: _Key, wide: _Key, route: str, model: ModelName, now: float) -> int | None:
        group = self._groups.get(narrow)  # nearly always the one, so it goes before the loop
        if group is not None and now < group.good_until:
            return group.expected
        for key in (wide, (route, model), (model,)):
            group = self._groups.get(key)
            if group is not None and now < group.good_until:
                return group.expected
        return None

    def _observe(self, key: _Key, length: int, now: float) -> bool:
        """Learn of one group; tell whether the wider ones should, too: from a group that can speak for itself, of one in eight."""
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group(now=now)
        else:
            self._groups.move_to_end(key)
        group.sketch.record(length, now=now)
        group.observed += 1
        if group.observed % _RENEW_EVERY == 0:
            self._renew(group, now)
        return now >= group.good_until or group.observed % _WIDER_LEARN_ONE_IN == 0

    def _renew(self, group: _Group, now: float) -> None:
        expected, weight = group.sketch.quantile(self.quantile), group.sketch.weight()
        if expected is not None and weight >= self._enough:
            group.expected = max(1, expected)
            group.good_until = now + HALF_LIFE_S * log2(weight / self._enough)


def _sized(tenant: TenantId, route: str, model: ModelName, prompt_tokens: int) -> tuple[_Key, _Key]:
    """Name the two groups of one prompt size: the tenant's, and everybody's. Sizes are a factor of four apart."""
    size = min(max(prompt_tokens.bit_length(), _SMALLEST_BITS), _LARGEST_BITS) // 2
    return (tenant, route, model, size), (route, model, size)
