"""Laws of what calls cost."""

from __future__ import annotations

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tidegate.domain.money import Price, PriceBook, PriceEntry, PriceTier, TimeWindow
from tidegate.domain.usage import Usage
from tidegate.policy.billing.pricing import Pricing

RATES = st.integers(0, 5_000_000)
TOKENS = st.integers(0, 3_000)
USAGES = st.builds(Usage, TOKENS, TOKENS, TOKENS, TOKENS, TOKENS)
INSTANTS = st.floats(0, 4e9)


@st.composite
def pricings(draw: st.DrawFn) -> Pricing:
    """Draw a price whose tiers do not fall; a class of tokens has a rate of its own in all tiers or in none."""
    count = draw(st.integers(1, 3))
    lengths = [0, *accumulate(draw(st.lists(st.integers(1, 1_000), min_size=count - 1, max_size=count - 1)))]
    columns = [list(accumulate(draw(st.lists(RATES, min_size=count, max_size=count)))) for _ in range(5)]
    named = draw(st.tuples(st.booleans(), st.booleans(), st.booleans()))
    tiers = tuple(
        PriceTier(
            columns[0][row],
            columns[1][row],
            cached_rate=columns[2][row] if named[0] else None,
            cache_write_rate=columns[3][row] if named[1] else None,
            reasoning_rate=columns[4][row] if named[2] else None,
            above_tokens=lengths[row],
        )
        for row in range(count)
    )
    window = TimeWindow(draw(st.integers(0, 3_000_000)), draw(st.integers(0, 1439)), draw(st.integers(0, 1440)))
    price = Price(tiers, draw(RATES), draw(RATES), (window,), draw(st.integers(0, 1_000_000)))
    return Pricing(PriceBook("1", "USD", (PriceEntry("*", "*", price),)))


@given(pricings(), USAGES, st.integers(0, 9), st.integers(0, 9), INSTANTS, st.booleans())
def test_law_more_tokens_never_cost_less(pricing: Pricing, usage: Usage, more_in: int, more_out: int, at: float, batch: bool) -> None:
    """Of the prompt or of the answer, whatever was cached, written or thought."""
    more = replace(usage, prompt_tokens=usage.prompt_tokens + more_in, completion_tokens=usage.completion_tokens + more_out)
    costs = [pricing.settled("a", "b", each, at=at, batch=batch).amount_micro for each in (usage, more)]
    assert costs[0] <= costs[1]


@given(pricings(), USAGES, st.integers(0, 5), INSTANTS, st.booleans())
def test_law_the_lines_make_the_cost_and_what_is_held_covers_it(
    pricing: Pricing, usage: Usage, images: int, at: float, batch: bool
) -> None:
    """Every token is in one line; whichever of them turn out dear, the hold was enough."""
    cost = pricing.settled("a", "b", usage, at=at, images=images, batch=batch)
    assert sum(line.amount_micro for line in cost.lines) == cost.amount_micro
    tokens_in, tokens_out = usage.prompt_tokens, usage.completion_tokens
    held = pricing.cost_micro("a", "b", input_tokens=tokens_in, output_tokens=tokens_out, at=at, images=images, batch=batch)
    assert cost.amount_micro <= held


@given(pricings(), TOKENS, TOKENS, INSTANTS, st.integers(-50, 50))
def test_law_the_same_instant_of_another_week_costs_the_same(pricing: Pricing, prompt: int, answer: int, at: float, weeks: int) -> None:
    """Windows know the hour and the day of the week, and nothing else of time."""
    shifted = int(at) + 604_800 * (60 + weeks)
    assert pricing.settled("a", "b", Usage(prompt, answer), at=int(at)) == pricing.settled("a", "b", Usage(prompt, answer), at=shifted)
