"""What wiring makes of `prices`, `budgets` and `unbilled`: the price book, what answers by it, and budgets as limits on cost."""

from __future__ import annotations

import msgspec

from tidegate.config.price_values import DAYS, hours_of, micro_of, rates_of
from tidegate.config.schema import Configuration
from tidegate.config.schema_prices import ModelPriceSection, MoneyBudgetSection, TimeWindowSection
from tidegate.config.scopes import matches_of
from tidegate.domain.limits import CounterSpec, LimitRule, Meter, Resource
from tidegate.domain.money import EVERY_DAY, HybridPlan, Price, PriceBook, PriceEntry, PriceTier, TimeWindow, UnbilledColor
from tidegate.policy.billing.pricing import Pricing


def pricing_of(configuration: Configuration) -> Pricing | None:
    """Give what answers what calls cost; None where nothing has a price."""
    return Pricing(price_book_of(configuration)) if configuration.prices.models else None


def price_book_of(configuration: Configuration) -> PriceBook:
    """Give the price book of a configuration that was checked."""
    prices = configuration.prices
    return PriceBook(
        version=prices.version,
        currency=prices.currency,
        entries=tuple(PriceEntry(each.upstream, each.model, _price(each)) for each in prices.models),
        hybrid=tuple(
            HybridPlan(
                tenant=terms.tenant,
                free_tokens=terms.free_tokens,
                memory_hour_micro=_micro(terms.memory_hour),
                traffic_gb_micro=_micro(terms.traffic_gb),
                memory_bytes_per_token=terms.memory_per_token_bytes,
            )
            for terms in prices.hybrid
        ),
    )


def unbilled_colors(configuration: Configuration) -> tuple[UnbilledColor, ...]:
    """Give the traffic that nobody pays for."""
    return tuple(UnbilledColor(each.color, each.tenant) for each in configuration.unbilled)


def budget_rules(configuration: Configuration) -> tuple[LimitRule, ...]:
    """Give each budget as a limit of the calendar; the limiter keeps it like any other."""
    return tuple(_rule(budget) for budget in configuration.budgets)


def _price(section: ModelPriceSection) -> Price:
    lengths = (0, *(tier.above_tokens for tier in section.tiers))
    return Price(
        tiers=tuple(_tier(rates, above_tokens) for rates, above_tokens in zip(rates_of(section), lengths, strict=True)),
        image_micro=_micro(section.image),
        request_micro=_micro(section.request),
        windows=tuple(_window(window) for window in section.time_windows),
        batch_ppm=_micro(section.batch_ratio),
    )


def _tier(rates: dict[str, float | None], above_tokens: int) -> PriceTier:
    micro = {f"{name}_rate": None if rate is None else _micro(rate) for name, rate in rates.items()}
    return msgspec.convert({**micro, "above_tokens": above_tokens}, PriceTier)


def _window(section: TimeWindowSection) -> TimeWindow:
    hours = hours_of(section.hours)
    assert hours is not None, "the configuration was checked"
    days = frozenset(DAYS.index(day) for day in section.days) or EVERY_DAY
    return TimeWindow(_micro(section.factor), *hours, days)


def _rule(budget: MoneyBudgetSection) -> LimitRule:
    return LimitRule(
        name=budget.name,
        resource=Resource.COST,
        spec=CounterSpec(Meter.CALENDAR, _micro(budget.amount), period=budget.per),
        scopes=matches_of(budget.scope),
        mode=budget.mode,
        on_store_down=budget.on_store_down,
    )


def _micro(amount: float) -> int:
    micro = micro_of(amount)
    assert micro is not None, "the configuration was checked"
    return micro
