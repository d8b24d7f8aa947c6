"""The `reserve` section, and what wiring makes of it."""

from __future__ import annotations

from tidegate.config.schema_reserve import ReserveMethod, ReserveSection
from tidegate.domain.units import ModelName, TenantId
from tidegate.policy.metering.forecast import FixedForecast, Forecast, LearnedForecast
from tidegate.wiring.reserve import forecast_figures, forecast_of


def held(forecast: Forecast, cap: int | None) -> int:
    return forecast.expect(TenantId("t"), "r", ModelName("m"), prompt_tokens=10, cap=cap, now=0.0)


def test_learning_is_the_default() -> None:
    """All answers but one in twenty stay within what was held for them."""
    forecast = forecast_of(ReserveSection())
    assert isinstance(forecast, LearnedForecast)
    assert forecast.quantile == 0.95
    assert held(forecast, None) == 1024


def test_the_other_methods_hold_what_they_are_named_for() -> None:
    """The client's cap, or a constant that the cap only lowers."""
    cap = forecast_of(ReserveSection(method=ReserveMethod.CAP, constant_tokens=500))
    constant = forecast_of(ReserveSection(method=ReserveMethod.CONSTANT, constant_tokens=500))
    assert [4096, 500] == [held(cap, 4096), held(cap, None)]
    assert [500, 100] == [held(constant, 4096), held(constant, 100)]


def test_a_reload_keeps_what_was_learned() -> None:
    """Only a change of the section itself begins anew."""
    before = forecast_of(ReserveSection())
    assert forecast_of(ReserveSection(), before=before) is before
    assert forecast_of(ReserveSection(quantile=0.8), before=before) is not before
    assert isinstance(forecast_of(ReserveSection(method=ReserveMethod.CAP), before=before), FixedForecast)
    assert isinstance(forecast_of(ReserveSection(), before=forecast_of(ReserveSection(method=ReserveMethod.CAP))), LearnedForecast)


def test_figures_tell_what_became_of_the_promise() -> None:
    """What stayed within its forecast, what did not, and how many groups are remembered; without a forecast, nothing."""
    forecast = forecast_of(ReserveSection(quantile=0.5))
    for length in [10] * 32 + [11, 9, 8]:
        forecast.observe(TenantId("t"), "r", ModelName("m"), prompt_tokens=10, completion_tokens=length, cut=False, now=0.0)
    assert ({"reserve.groups": 4.0}, {"reserve.kept": 2.0, "reserve.exceeded": 1.0}) == forecast_figures(forecast)
    assert ({}, {}) == forecast_figures(None)
