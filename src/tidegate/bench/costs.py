"""What requests cost, how evenly, and whether the server's figure is ours.

A price book, when there is one, makes the cost from the reported tokens; without one, or for a model that it does not name, it is what the
upstream reports. Where both are known they are compared. Failed requests cost what they report: a broken answer is billed as well.

Stability has two parts: how far single requests are from their mean, and how far the last third of the run is from its first. Costs per
thousand tokens set the lengths of answers aside: when *they* drift, it is the price, or the share of tokens from a cache.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from tidegate.bench.bins import Bins
from tidegate.bench.distribution import Distribution, distribution
from tidegate.bench.histogram import Histogram
from tidegate.bench.sample import Sample
from tidegate.domain.money import MICRO
from tidegate.domain.usage import Usage
from tidegate.policy.billing.pricing import Pricing

_THIRDS: Final = 3
_MOST_BINS: Final = 300
"""By when requests were due: of a run that is just over a bound 150 remain, so that a third is a third within 1 %."""
_FIRST_WIDTH_S: Final = 0.01
_SAME_RATIO: Final = 0.01
"""Reported and computed costs that are nearer than this are the same: currencies are converted, lines are rounded."""


class Basis(StrEnum):
    PRICE_BOOK = "price_book"
    REPORTED = "reported"


class Prices(msgspec.Struct, frozen=True):
    """A price book as it applies to one run."""

    pricing: Pricing
    upstream: str
    model: str
    began_at: float
    """Seconds since the epoch at the run's origin: prices may depend on the hour."""

    @property
    def currency(self) -> str:
        return self.pricing.book.currency

    def computed_micro(self, sample: Sample) -> int | None:
        """Give the cost of a request by the book; None without usage, or when the book does not name the model."""
        if sample.prompt_tokens is None or sample.completion_tokens is None:
            return None
        if self.pricing.price_of(self.upstream, self.model) is None:
            return None
        usage = Usage(
            prompt_tokens=sample.prompt_tokens,
            completion_tokens=sample.completion_tokens,
            cached_tokens=sample.cached_tokens or 0,
            reasoning_tokens=sample.reasoning_tokens or 0,
        )
        return self.pricing.settled(self.upstream, self.model, usage, at=self.began_at + sample.sent_at).amount_micro


class Disagreement(msgspec.Struct, frozen=True):
    """Requests of which both costs are known."""

    n: int
    differing: int
    """By more than a hundredth, and a millionth."""
    reported_micro: int
    computed_micro: int

    @property
    def ratio(self) -> float | None:
        """Give how much more was reported than computed, over computed."""
        return self.reported_micro / self.computed_micro - 1.0 if self.computed_micro else None


class CostFigures(msgspec.Struct, frozen=True):
    """The costs of requests of which one is known. Distributions are in whole units of the currency."""

    basis: Basis
    currency: str
    total_micro: int
    per_request: Distribution
    per_1k_tokens: Distribution | None
    variation: float | None
    """Coefficient of variation of the cost per request."""
    drift_ratio: float | None
    """Cost per request of the run's last third over its first, less one."""
    variation_1k: float | None
    drift_ratio_1k: float | None
    unknown: int
    """Requests with an answer that no cost is known of."""
    disagreement: Disagreement | None = None


class _Spent:
    __slots__ = ("micro", "n", "tokens")

    def __init__(self) -> None:
        self.n = self.micro = self.tokens = 0

    def take(self, other: _Spent) -> None:
        self.n += other.n
        self.micro += other.micro
        self.tokens += other.tokens


class RunCosts:
    """Collects the costs of requests."""

    def __init__(self, prices: Prices | None = None) -> None:
        self._prices = prices
        self._over_time = Bins(_Spent, width_s=_FIRST_WIDTH_S, most=_MOST_BINS)
        self._per_request = Histogram()
        self._per_1k = Histogram()
        self._by_book = False
        self._unknown = 0
        self._both = self._differing = self._reported_micro = self._computed_micro = 0

    def add(self, sample: Sample, *, answered: bool) -> None:
        """Count a request; `answered` when a cost is to be expected."""
        reported = sample.cost_micro
        computed = None if self._prices is None else self._prices.computed_micro(sample)
        if reported is not None and computed is not None:
            self._compare(reported, computed)
        cost_micro = reported if computed is None else computed
        if cost_micro is None:
            self._unknown += answered
            return
        self._by_book = self._by_book or computed is not None
        tokens = (sample.prompt_tokens or 0) + (sample.completion_tokens or 0)
        self._per_request.record(cost_micro / MICRO)
        if tokens:
            self._per_1k.record(cost_micro / MICRO * 1000 / tokens)
        spent = self._over_time.at(sample.due_at)
        spent.n += 1
        spent.micro += cost_micro
        spent.tokens += tokens

    def figures(self) -> CostFigures | None:
        """Sum up; None when no cost is known."""
        per_request, per_1k = distribution(self._per_request), distribution(self._per_1k)
        if per_request is None:
            return None
        first, last = self._thirds()
        return CostFigures(
            basis=Basis.PRICE_BOOK if self._by_book else Basis.REPORTED,
            currency=self._prices.currency if self._by_book and self._prices is not None else "",
            total_micro=sum(spent.micro for spent in self._over_time.bins),
            per_request=per_request,
            per_1k_tokens=per_1k,
            variation=per_request.variation,
            drift_ratio=_drift(first.micro, first.n, last.micro, last.n),
            variation_1k=None if per_1k is None else per_1k.variation,
            drift_ratio_1k=_drift(first.micro, first.tokens, last.micro, last.tokens),
            unknown=self._unknown,
            disagreement=self._disagreement(),
        )

    def _compare(self, reported: int, computed: int) -> None:
        self._both += 1
        self._reported_micro += reported
        self._computed_micro += computed
        difference = abs(reported - computed)
        self._differing += difference > 1 and difference > _SAME_RATIO * computed

    def _thirds(self) -> tuple[_Spent, _Spent]:
        """Give the first and the last third of the time in which costs arose; both empty when it has no thirds."""
        bins = self._over_time.bins
        begins = next((index for index, spent in enumerate(bins) if spent.n), 0)
        length = (len(bins) - begins) // _THIRDS
        first, last = _Spent(), _Spent()
        for spent in bins[begins : begins + length]:
            first.take(spent)
        for spent in bins[len(bins) - length :]:
            last.take(spent)
        return first, last

    def _disagreement(self) -> Disagreement | None:
        if not self._both:
            return None
        return Disagreement(self._both, self._differing, self._reported_micro, self._computed_micro)


def _drift(first: int, first_by: int, last: int, last_by: int) -> float | None:
    """Compare two quotients; None where one of them is nothing."""
    if not (first and first_by and last_by):
        return None
    return (last / last_by) / (first / first_by) - 1.0
