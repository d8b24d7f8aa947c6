"""What calls cost."""

from __future__ import annotations

import pytest

from tidegate.domain.money import Charge, Cost, CostLine, Price, PriceBook, PriceEntry, PriceTier, TimeWindow, divided
from tidegate.domain.usage import Usage
from tidegate.policy.billing.pricing import Pricing, holds, tier_of

THURSDAY = 0.0  # 1970-01-01, midnight in UTC
HOUR = 3600.0
DAY = 24 * HOUR
PLUS = Price(
    (PriceTier(2_000_000, 12_000_000, cached_rate=400_000), PriceTier(4_000_000, 24_000_000, cached_rate=800_000, above_tokens=262_144)),
    image_micro=1500,
    request_micro=10,
    batch_ppm=500_000,
)
PLAIN = Price((PriceTier(500_000, 1_500_000),))
BOOK = PriceBook("2026-11", "CNY", (PriceEntry("dashscope", "qwen3.6-plus", PLUS), PriceEntry("*", "qwen*", PLAIN)))


def cost(usage: Usage, *, model: str = "qwen3.6-plus", images: int = 0, at: float = THURSDAY, batch: bool = False) -> Cost:
    return Pricing(BOOK).settled("dashscope", model, usage, at=at, images=images, batch=batch)


def test_each_class_of_tokens_has_its_line_and_the_lines_make_the_cost() -> None:
    """A thousand tokens of a prompt, of which 400 were cached, 50 of an answer, two pictures and the call itself."""
    expected = (
        CostLine(Charge.INPUT, 600, 1200),
        CostLine(Charge.CACHED, 400, 160),
        CostLine(Charge.OUTPUT, 50, 600),
        CostLine(Charge.IMAGE, 2, 3000),
        CostLine(Charge.REQUEST, 1, 10),
    )
    assert Cost(4970, "2026-11", expected) == cost(Usage(1000, 50, cached_tokens=400), images=2)


def test_a_class_without_a_price_of_its_own_is_billed_with_the_whole() -> None:
    """Thoughts are output and cache writes are input where the list says no more."""
    expected = (CostLine(Charge.INPUT, 100, 200), CostLine(Charge.OUTPUT, 50, 600), CostLine(Charge.REQUEST, 1, 10))
    assert expected == cost(Usage(100, 50, reasoning_tokens=30, cache_write_tokens=40)).lines


def test_thoughts_and_cache_writes_can_have_prices() -> None:
    """And what is reported of them beyond the whole is not believed."""
    tier = PriceTier(1_000_000, 2_000_000, cached_rate=100_000, cache_write_rate=1_250_000, reasoning_rate=4_000_000)
    pricing = Pricing(PriceBook("1", "USD", (PriceEntry("*", "*", Price((tier,))),)))
    usage = Usage(100, 10, cached_tokens=70, reasoning_tokens=15, cache_write_tokens=60)
    expected = (CostLine(Charge.CACHED, 70, 7), CostLine(Charge.CACHE_WRITE, 30, 38), CostLine(Charge.REASONING, 10, 40))
    assert expected == pricing.settled("a", "b", usage, at=0.0).lines


@pytest.mark.parametrize(("tokens", "amount"), [(262_144, 524_288), (262_145, 1_048_580)])
def test_the_inputs_length_picks_one_tier_for_all_of_it(tokens: int, amount: int) -> None:
    """One token more and the whole input costs the next tier's price."""
    assert amount + 10 == cost(Usage(tokens, 0)).amount_micro


def test_an_empty_input_is_in_the_first_tier() -> None:
    """No tier is above nothing."""
    assert PLUS.tiers[0] is tier_of(PLUS, 0)


def test_the_first_entry_that_matches_is_the_price() -> None:
    """And a model that no entry knows costs nothing and has no version."""
    pricing = Pricing(BOOK)
    assert (PLUS, PLAIN, PLAIN, None) == tuple(
        pricing.price_of(*pair)
        for pair in [("dashscope", "qwen3.6-plus"), ("other", "qwen3.6-plus"), ("dashscope", "qwen-max"), ("dashscope", "gpt")]
    )
    assert Cost() == pricing.settled("dashscope", "gpt", Usage(10, 10), at=0.0)
    assert 0 == pricing.cost_micro("dashscope", "gpt", input_tokens=10, output_tokens=10, at=0.0)


def test_what_is_remembered_of_model_names_is_bounded() -> None:
    """A client that invents names costs no memory."""
    pricing = Pricing(BOOK)
    for number in range(10_000):
        pricing.price_of("dashscope", f"invented-{number}")
    assert 4096 >= len(pricing._found)
    assert PLUS is pricing.price_of("dashscope", "qwen3.6-plus")


def test_a_batch_costs_its_share() -> None:
    """Half, here; what is half a millionth counts as one."""
    assert 100 + 5 == cost(Usage(100, 0), batch=True).amount_micro
    assert 1 == Pricing(BOOK).settled("x", "qwen", Usage(1, 0), at=0.0).amount_micro


@pytest.mark.parametrize(
    ("hours", "days", "at", "expected"),
    [
        ((0, 1440), range(7), 0.0, True),
        ((60, 120), range(7), HOUR - 1, False),
        ((60, 120), range(7), HOUR, True),
        ((60, 120), range(7), 2 * HOUR, False),
        ((60, 120), [3], HOUR, True),
        ((60, 120), [4], HOUR, False),
        ((1380, 60), [3], 23 * HOUR, True),
        ((1380, 60), [3], 24 * HOUR, True),
        ((1380, 60), [3], 25 * HOUR, False),
        ((1380, 60), [3], 0.0, False),
        ((1380, 60), [4], DAY, False),
        ((1380, 60), [6], 4 * DAY, True),
    ],
)
def test_a_window_holds_in_its_hours_on_its_days(hours: tuple[int, int], days: list[int], at: float, expected: bool) -> None:
    """In UTC; one that runs past midnight belongs to the day on which it began. 1970 began on a Thursday, which is day 3."""
    assert expected is holds(TimeWindow(500_000, *hours, frozenset(days)), at)


def test_the_first_window_that_holds_multiplies_every_line() -> None:
    """By the instant given, not by when the question is asked."""
    windows = (TimeWindow(500_000, 0, 60), TimeWindow(100_000, 0, 120))
    pricing = Pricing(PriceBook("1", "USD", (PriceEntry("*", "*", Price(PLAIN.tiers, request_micro=100, windows=windows)),)))
    costs = [pricing.settled("a", "b", Usage(1000, 0), at=at).amount_micro for at in (0.0, HOUR, 2 * HOUR)]
    assert [300, 60, 600] == costs
    assert costs == [pricing.cost_micro("a", "b", input_tokens=1000, output_tokens=0, at=at) for at in (0.0, HOUR, 2 * HOUR)]


@pytest.mark.parametrize(("amount", "by", "expected"), [(0, 10, 0), (4, 10, 0), (5, 10, 1), (14, 10, 1), (15, 10, 2), (10**40, 10**39, 10)])
def test_a_half_is_rounded_upwards(amount: int, by: int, expected: int) -> None:
    """Whole numbers of any size, without floating point."""
    assert expected == divided(amount, by)


def test_pricing_says_what_it_goes_by() -> None:
    """For debugging."""
    assert "Pricing(version='2026-11', prices=2)" == repr(Pricing(BOOK))
    assert "Pricing(version='', prices=0)" == repr(Pricing())
