"""What is expected of an answer: from whom it is learned, what is said while nothing is known, and what is forgotten."""

from __future__ import annotations

import pytest

from tidegate.domain.units import ModelName, TenantId
from tidegate.policy.metering.forecast import MAX_GROUPS, FixedForecast, Forecast, LearnedForecast
from tidegate.policy.metering.quantile_sketch import HALF_LIFE_S
from tidegate.ports import ForecastStatistics

ROUTE = "chat-*"
MODEL = ModelName("chat-large")
ACME = TenantId("acme")
OTHERS = TenantId("others")


def learn(
    forecast: Forecast,
    completion_tokens: int,
    *,
    times: int = 48,
    tenant: TenantId = ACME,
    route: str = ROUTE,
    model: ModelName = MODEL,
    prompt_tokens: int = 1000,
    cut: bool = False,
    now: float = 0.0,
) -> None:
    for _ in range(times):
        forecast.observe(tenant, route, model, prompt_tokens=prompt_tokens, completion_tokens=completion_tokens, cut=cut, now=now)


def expect(
    forecast: Forecast,
    *,
    tenant: TenantId = ACME,
    route: str = ROUTE,
    model: ModelName = MODEL,
    prompt_tokens: int = 1000,
    cap: int | None = None,
    now: float = 0.0,
) -> int:
    return forecast.expect(tenant, route, model, prompt_tokens=prompt_tokens, cap=cap, now=now)


def learned(quantile: float = 0.9) -> LearnedForecast:
    return LearnedForecast(quantile, 1024)


def test_while_nothing_is_known_the_cap_counts_with_a_margin() -> None:
    """A fifth above the cap, or the constant without one."""
    assert expect(learned(), cap=1000) == 1200
    assert expect(learned(), cap=1) == 2
    assert expect(learned()) == 1024


def test_fewer_than_thirty_observations_are_not_believed() -> None:
    """One long answer more or less would change a tenth too much."""
    forecast = learned()
    learn(forecast, 10, times=31)
    assert expect(forecast) == 1024
    learn(forecast, 10, times=1)
    assert expect(forecast) == 10


def test_a_high_quantile_needs_more_observations() -> None:
    """One in a hundred cannot be told from fifty."""
    forecast = learned(0.99)
    learn(forecast, 10, times=96)
    assert expect(forecast) == 1024
    learn(forecast, 10, times=32)
    assert expect(forecast) == 10


def test_a_cap_below_what_was_learned_is_what_is_held() -> None:
    """Nobody gets more than they asked for; a cap that is far above says little."""
    forecast = learned()
    learn(forecast, 10)
    assert expect(forecast, cap=5) == 5
    assert expect(forecast, cap=4096) == 10


def test_a_tenant_is_known_by_its_own_answers() -> None:
    """Once a tenant has been seen often enough, others do not matter."""
    forecast = learned()
    learn(forecast, 10, tenant=ACME)
    learn(forecast, 100, tenant=OTHERS)
    assert expect(forecast, tenant=ACME) == 10


def test_a_stranger_is_expected_to_be_like_everybody() -> None:
    """Of the same size first, then of any size, then of any route; an unknown model is not expected at all."""
    forecast = learned()
    learn(forecast, 10, prompt_tokens=100)
    learn(forecast, 50, prompt_tokens=100_000, times=480)
    stranger = TenantId("stranger")
    assert expect(forecast, tenant=stranger, prompt_tokens=100) == 10
    assert 50 <= expect(forecast, tenant=stranger, prompt_tokens=2000) <= 55
    assert 50 <= expect(forecast, tenant=stranger, route="elsewhere") <= 55
    assert expect(forecast, tenant=stranger, model=ModelName("other")) == 1024


def test_sizes_are_a_factor_of_four_apart() -> None:
    """Prompts below 128 tokens are alike, and so are those above 64 Ki."""
    forecast = learned()
    learn(forecast, 10, prompt_tokens=0)
    learn(forecast, 30, prompt_tokens=10**7)
    assert [10, 10] == [expect(forecast, prompt_tokens=size) for size in (1, 127)]
    assert [30, 30] == [expect(forecast, prompt_tokens=size) for size in (65_536, 10**9)]


def test_what_was_learned_is_believed_for_some_hours_of_silence() -> None:
    """Its weight halves every six hours; below thirty observations the wider groups are asked, and those have gone stale too."""
    forecast = learned()
    learn(forecast, 10, times=64)
    assert expect(forecast, now=HALF_LIFE_S) == 10
    assert expect(forecast, now=2 * HALF_LIFE_S) == 1024


def test_answers_that_were_cut_do_not_make_forecasts_shorter() -> None:
    """An answer that the gateway ended counts as twice its length, since how long it would have been is not known."""
    forecast = learned()
    learn(forecast, 100, cut=True)
    assert 200 <= expect(forecast) <= 220


def test_empty_answers_still_hold_a_token() -> None:
    """What is held is at least 1."""
    forecast = learned()
    learn(forecast, 0)
    assert expect(forecast) == 1


def test_groups_are_bounded_and_the_longest_unobserved_goes_first() -> None:
    """The wide groups stay, since every observation is theirs too."""
    forecast = learned()
    learn(forecast, 10, tenant=ACME)
    for number in range(MAX_GROUPS):
        learn(forecast, 20, times=1, tenant=TenantId(f"tenant-{number}"))
    assert forecast.statistics().groups == MAX_GROUPS
    assert repr(forecast) == "LearnedForecast(quantile=0.9, groups=4096)"
    assert expect(forecast, tenant=ACME) == 20


def test_statistics_say_what_became_of_the_promise() -> None:
    """Answers that nothing could be said about are not counted, the others by whether they were longer."""
    forecast = learned()
    learn(forecast, 10, times=32)
    assert ForecastStatistics(4, 0, 0) == forecast.statistics()
    learn(forecast, 11, times=2)
    learn(forecast, 10, times=3)
    assert ForecastStatistics(4, 5, 2) == forecast.statistics()


def test_a_fixed_forecast_learns_nothing() -> None:
    """It holds its constant, or the cap where that is heeded, and never more than the cap."""
    constant, cap = FixedForecast(1024, heeds_cap=False), FixedForecast(1024, heeds_cap=True)
    for forecast in (constant, cap):
        learn(forecast, 10)
        assert expect(forecast) == 1024
        assert expect(forecast, cap=100) == 100
        assert ForecastStatistics(0, 0, 0) == forecast.statistics()
    assert [1024, 4096] == [expect(forecast, cap=4096) for forecast in (constant, cap)]


@pytest.mark.parametrize("period", range(2, 9))
def test_a_group_that_knows_enough_hears_of_every_kind_in_a_row_that_repeats_itself(period: int) -> None:
    """It is told of one answer in eight, and still of the long ones, if they are more than a tenth, wherever they stand in each round."""
    forecast = learned()
    learn(forecast, 10, times=600)
    for number in range(8_000):
        learn(forecast, 10 if number % period else 1000, times=1)
    assert expect(forecast) >= 1000


def test_a_group_that_knows_enough_follows_a_change_more_slowly() -> None:
    """One answer in eight tells it of the change: a hundred longer ones are not a tenth of what it remembers yet, a thousand are."""
    forecast = learned()
    learn(forecast, 10, times=1000)
    learn(forecast, 100, times=100)
    assert expect(forecast) == 10
    learn(forecast, 100, times=1000)
    assert expect(forecast) >= 100
