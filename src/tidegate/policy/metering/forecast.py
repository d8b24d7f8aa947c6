"""How long an answer will be, learned from the answers before it, so that a request without a cap holds neither too little nor too much.

Invariants: of requests like those before them, at most a share of `1 - quantile` uses more than was expected (see `quantile_sketch`);
the same observations give the same answers; memory is bounded. What is like a request is looked for in the narrowest group that was
observed often enough lately: its tenant's requests of one route, model and prompt size; then everybody's; then of all sizes; then of all
routes. When no group can say, it is the client's cap with a margin, or a constant.

A group that knows enough is told of one answer in eight, chosen by their number alone and evenly over any row that repeats itself: of
answers that are long and short by turns it hears of both. What it says of the next answer is as true, since it hears of no kind more than
of another; it only takes eight times as many answers to follow a change.

Whoever calls measures a prompt in the same way before and after: by its cheap bound, since the exact number is known only afterwards.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import OrderedDict
from math import ceil, log2

from tidegate.domain.units import ModelName, TenantId
from tidegate.policy.metering.quantile_sketch import HALF_LIFE_S, QuantileSketch
from tidegate.ports import ForecastStatistics

CAP_MARGIN = 1.2
"""Held of a cap while nothing is known: some models count their reasoning apart from the cap."""

MAX_GROUPS = 4096
"""Some 4 MB. The group that was told nothing for longest goes; its requests are then expected by a wider one, which is told more."""

_ENOUGH = 30.0  # observations of which a tenth says something; a higher quantile asks for more by itself
_RENEW_EVERY = 16  # observations; the quantile of hundreds moves little with a few more
_KNOWS_ENOUGH = 512  # observations: half of the weight there can be
_TURN = 1 / 8  # of answers; what a group that knows enough is told, and what a busy tenant's answers tell groups that others go by
_STEP = (5**0.5 - 1) / 2  # the golden ratio: of all steps the one whose multiples lie most evenly, whatever part of them is looked at
_SMALLEST_BITS = 7  # prompts below 128 tokens are of one size
_LARGEST_BITS = 17  # those of 64 Ki and more too
_LENGTH_OF_A_CUT = 2  # times what was written; of an answer of unknown length that has come so far, as much again is to be expected

_Key = tuple[str | int, ...]


class Forecast:
    """Expects how long answers will be. A prompt is measured in the same way in both calls: by its cheap bound.

    A plain class, so that compiled code calls it directly.
    """

    @abstractmethod
    def expect(self, tenant: TenantId, route: str, model: ModelName, *, prompt_tokens: int, cap: int | None, now: float) -> int:
        """Give the output tokens to hold for one answer, at least 1; `cap` is the client's own."""

    @abstractmethod
    def observe(
        self, tenant: TenantId, route: str, model: ModelName, *, prompt_tokens: int, completion_tokens: int, cut: bool, now: float
    ) -> None:
        """Learn from an answer that has ended; `cut`: the gateway ended it for want of tokens, so it would have been longer."""

    @abstractmethod
    def statistics(self) -> ForecastStatistics: ...


class FixedForecast(Forecast):
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

    __slots__ = ("_turn", "expected", "good_until", "observed", "sketch")

    def __init__(self, *, now: float) -> None:
        self.sketch = QuantileSketch(now=now)
        self.observed = 0
        """Of the answers that it was told of."""
        self.expected = 0
        self.good_until = now
        self._turn = 0.0

    def is_turn(self) -> bool:
        """Choose one answer in eight; call it once for each."""
        self._turn += _STEP
        if self._turn >= 1:
            self._turn -= 1
        return self._turn < _TURN


class LearnedForecast(Forecast):
    """Expects of an answer the length that a share of `quantile` of those like it stays within."""

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
        size = _size(prompt_tokens)
        group = self._groups.get((tenant, route, model, size))
        if group is None or now >= group.good_until:
            group = self._wider(route, model, size, now)
        if group is None:
            return self.constant_tokens if cap is None else ceil(cap * CAP_MARGIN)
        return group.expected if cap is None or group.expected < cap else cap

    def observe(
        self, tenant: TenantId, route: str, model: ModelName, *, prompt_tokens: int, completion_tokens: int, cut: bool, now: float
    ) -> None:
        """Learn from an answer that has ended. `cut`: the gateway ended it for want of tokens.

        How long it would have been nobody knows. Taken at its length, each cut would make the next forecast shorter, and that cuts more.
        """
        size = _size(prompt_tokens)
        narrow: _Key = (tenant, route, model, size)
        group = self._groups.get(narrow)
        speaks = group is not None and now < group.good_until
        informed = group if speaks else self._wider(route, model, size, now)
        if informed is not None:
            self._foreseen += 1
            if completion_tokens > informed.expected:
                self._exceeded += 1
        is_turn = group is None or group.is_turn()
        if group is not None and speaks and not is_turn and group.observed >= _KNOWS_ENOUGH:
            return
        length = completion_tokens * _LENGTH_OF_A_CUT if cut else completion_tokens
        self._tell(narrow, length, now)
        if is_turn or not speaks:
            for key in _wider_keys(route, model, size):
                self._tell(key, length, now)
            while len(self._groups) > MAX_GROUPS:
                self._groups.popitem(last=False)

    def statistics(self) -> ForecastStatistics:
        return ForecastStatistics(len(self._groups), self._foreseen, self._exceeded)

    def _wider(self, route: str, model: ModelName, size: int, now: float) -> _Group | None:
        """Give the narrowest group of all tenants that can say something."""
        for key in _wider_keys(route, model, size):
            group = self._groups.get(key)
            if group is not None and now < group.good_until:
                return group
        return None

    def _tell(self, key: _Key, length: int, now: float) -> None:
        """Have one group learn."""
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group(now=now)
        else:
            self._groups.move_to_end(key)
        group.sketch.record(length, now=now)
        group.observed += 1
        if group.observed % _RENEW_EVERY == 0:
            self._renew(group, now)

    def _renew(self, group: _Group, now: float) -> None:
        expected, weight = group.sketch.quantile(self.quantile), group.sketch.weight()
        if expected is not None and weight >= self._enough:
            group.expected = max(1, expected)
            group.good_until = now + HALF_LIFE_S * log2(weight / self._enough)


def _size(prompt_tokens: int) -> int:
    """Number a prompt's size. Sizes are a factor of four apart."""
    return min(max(prompt_tokens.bit_length(), _SMALLEST_BITS), _LARGEST_BITS) // 2


def _wider_keys(route: str, model: ModelName, size: int) -> tuple[_Key, _Key, _Key]:
    """Name the groups of all tenants that a request is in, the narrowest first."""
    return (route, model, size), (route, model), (model,)
