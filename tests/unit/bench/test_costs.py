"""Costs of requests: by the book, as reported, and how steady they are."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.bench.runs import answer, failure

from tidegate.bench.costs import Basis, CostFigures, Prices, RunCosts
from tidegate.bench.sample import Sample
from tidegate.domain.money import Price, PriceBook, PriceEntry, PriceTier
from tidegate.policy.billing.pricing import Pricing

BOOK = PriceBook("v1", "USD", (PriceEntry("*", "m", Price((PriceTier(2_000_000, 6_000_000, cached_rate=500_000),))),))
PRICES = Prices(Pricing(BOOK), "any", "m", began_at=1_700_000_000.0)
BY_BOOK_MICRO = 50 * 2 + 100 * 6


def costing(cost_micro: int | None, *, due_at: float = 0.0, tokens: int | None = 100) -> Sample:
    return msgspec.structs.replace(answer(due_at=due_at, tokens=tokens), cost_micro=cost_micro)


def tallied(samples: list[Sample], prices: Prices | None = None) -> CostFigures | None:
    tally = RunCosts(prices)
    for sample in samples:
        tally.add(sample, answered=True)
    return tally.figures()


def test_a_price_book_makes_the_cost_from_the_tokens() -> None:
    """50 tokens in at 2 and 100 out at 6 for a million."""
    found = tallied([answer(), answer()], PRICES)
    assert found is not None
    assert (Basis.PRICE_BOOK, "USD", 2 * BY_BOOK_MICRO, None) == (found.basis, found.currency, found.total_micro, found.disagreement)
    assert pytest.approx(0.0007) == found.per_request.mean
    assert found.per_1k_tokens is not None
    assert pytest.approx(0.0007 * 1000 / 150) == found.per_1k_tokens.mean
    assert [pytest.approx(0.0, abs=1e-6)] * 2 == [found.variation, found.variation_1k]


def test_cached_tokens_have_the_price_of_cached_tokens() -> None:
    """What the answer says of its prompt is used."""
    found = tallied([msgspec.structs.replace(answer(), cached_tokens=40)], PRICES)
    assert found is not None
    assert 10 * 2 + 40 * 0.5 + 600 == found.total_micro


def test_without_a_book_the_reported_cost_counts() -> None:
    """In a currency that nobody has named."""
    found = tallied([costing(300), costing(500)])
    assert found is not None
    assert (Basis.REPORTED, "", 800, 0) == (found.basis, found.currency, found.total_micro, found.unknown)


def test_a_model_that_the_book_does_not_name_costs_what_is_reported() -> None:
    """No price is not a price of nothing."""
    unknown = Prices(Pricing(BOOK), "any", "another", began_at=0.0)
    found = tallied([costing(300)], unknown)
    assert found is not None
    assert (Basis.REPORTED, 300) == (found.basis, found.total_micro)


def test_no_cost_is_no_figure() -> None:
    """Without usage and without a reported cost there is nothing to say."""
    assert [None, None] == [tallied([answer()]), tallied([answer(tokens=None)], PRICES)]


def test_answers_of_unknown_cost_are_counted() -> None:
    """They are in no mean, and that is said; a failure is expected to cost nothing."""
    tally = RunCosts()
    tally.add(costing(300), answered=True)
    tally.add(costing(None), answered=True)
    tally.add(failure(), answered=False)
    found = tally.figures()
    assert found is not None
    assert (1, 1) == (found.per_request.n, found.unknown)


def test_reported_and_computed_costs_are_compared() -> None:
    """Within a hundredth they are the same; the book's is the one that counts."""
    found = tallied([costing(BY_BOOK_MICRO), costing(BY_BOOK_MICRO + 7), costing(2 * BY_BOOK_MICRO)], PRICES)
    assert found is not None
    assert found.disagreement is not None
    assert (3, 1, 3 * BY_BOOK_MICRO) == (found.disagreement.n, found.disagreement.differing, found.total_micro)
    assert pytest.approx((7 + BY_BOOK_MICRO) / (3 * BY_BOOK_MICRO)) == found.disagreement.ratio


def test_nothing_computed_has_no_ratio() -> None:
    """A free model that charges after all differs without measure."""
    free = Prices(Pricing(PriceBook("v1", "USD", (PriceEntry("*", "m", Price((PriceTier(0, 0),))),))), "any", "m", began_at=0.0)
    found = tallied([costing(300)], free)
    assert found is not None
    assert found.disagreement is not None
    assert (1, None, None) == (found.disagreement.differing, found.disagreement.ratio, found.variation)


def test_drift_is_the_last_third_over_the_first() -> None:
    """Half as much again at the end; what lies between does not matter."""
    found = tallied([costing(200), costing(9_000, due_at=4.0), costing(300, due_at=8.9), costing(300, due_at=9.0)])
    assert found is not None
    assert [pytest.approx(0.5), pytest.approx(0.5)] == [found.drift_ratio, found.drift_ratio_1k]


def test_longer_answers_drift_by_request_but_not_by_token() -> None:
    """Twice the tokens for twice the money."""
    longer = msgspec.structs.replace(costing(400, due_at=8.0), prompt_tokens=100, completion_tokens=200)
    found = tallied([costing(200), longer])
    assert found is not None
    assert [pytest.approx(1.0), pytest.approx(0.0)] == [found.drift_ratio, found.drift_ratio_1k]


def test_a_third_without_costs_shows_no_drift() -> None:
    """Nor do costs without tokens have a price per token."""
    found = tallied([costing(200, tokens=None)])
    assert found is not None
    assert [None, None, None, None] == [found.drift_ratio, found.drift_ratio_1k, found.per_1k_tokens, found.variation_1k]
