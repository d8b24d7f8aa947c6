"""What wiring makes of the `reserve` section."""

from __future__ import annotations

from tidegate.config.schema_reserve import ReserveMethod, ReserveSection
from tidegate.policy.metering.forecast import FixedForecast, Forecast, LearnedForecast


def forecast_of(section: ReserveSection, *, before: Forecast | None = None) -> Forecast:
    """Give the forecast; a learned one goes on with what it knows when a reload left its section as it was."""
    if section.method is not ReserveMethod.LEARNED:
        return FixedForecast(section.constant_tokens, heeds_cap=section.method is ReserveMethod.CAP)
    if isinstance(before, LearnedForecast) and (before.quantile, before.constant_tokens) == (section.quantile, section.constant_tokens):
        return before
    return LearnedForecast(section.quantile, section.constant_tokens)


def forecast_figures(forecast: Forecast | None) -> tuple[dict[str, float], dict[str, float]]:
    """Give (levels, counters)."""
    if forecast is None:
        return {}, {}
    statistics = forecast.statistics()
    kept, exceeded = statistics.foreseen - statistics.exceeded, statistics.exceeded
    return {"reserve.groups": float(statistics.groups)}, {"reserve.kept": float(kept), "reserve.exceeded": float(exceeded)}
