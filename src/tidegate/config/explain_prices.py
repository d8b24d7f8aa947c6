"""Prices and budgets as text for a terminal."""

from __future__ import annotations

from tidegate.config.check_prices import unpriced_models
from tidegate.config.schema import Configuration
from tidegate.config.schema_prices import HybridSection, ModelPriceSection, MoneyBudgetSection, PriceTierSection, TimeWindowSection
from tidegate.config.scopes import scope_words
from tidegate.domain.limits import LimitMode


def prices_text(configuration: Configuration) -> list[str]:
    """Say what calls cost, in the order in which entries are looked at, and which models cost nothing."""
    prices = configuration.prices
    if not prices.models:
        return []
    width = max(len(_where(section)) for section in prices.models)
    where = f" (from {prices.file})" if prices.file is not None else ""
    lines = [f"version {prices.version}, in {prices.currency} per million tokens{where}"]
    lines += [f"{_where(section):<{width}}  {_model(section)}" for section in prices.models]
    lines += [f"no price: {model} at {upstream}" for upstream, model in unpriced_models(configuration)]
    return lines + [_terms(terms) for terms in prices.hybrid]


def budgets_text(configuration: Configuration) -> list[str]:
    """Say what may be spent by whom."""
    return [_budget(budget, configuration.prices.currency) for budget in configuration.budgets]


def _where(section: ModelPriceSection) -> str:
    return f"{section.model} at {section.upstream}"


def _model(section: ModelPriceSection) -> str:
    words = [_rates(section)]
    words += [f"above {tier.above_tokens:,}: {_rates(tier)}" for tier in section.tiers]
    words += [f"{_plain(section.image)} a picture"] if section.image else []
    words += [f"{_plain(section.request)} a call"] if section.request else []
    words += [_window(window) for window in section.time_windows]
    words += [f"x {section.batch_ratio:g} in a batch"] if section.batch_ratio != 1 else []
    return "; ".join(words)


def _rates(part: ModelPriceSection | PriceTierSection) -> str:
    rates = (
        ("in", part.input),
        ("out", part.output),
        ("cached", part.cached),
        ("cache write", part.cache_write),
        ("thought", part.reasoning),
    )
    return ", ".join(f"{_plain(rate)} {name}" for name, rate in rates if rate is not None)


def _window(window: TimeWindowSection) -> str:
    return f"x {window.factor:g} {window.hours} UTC{' ' * bool(window.days)}{' '.join(window.days)}"


def _terms(terms: HybridSection) -> str:
    beyond = f"{_plain(terms.memory_hour)} a GB of GPU memory and hour, {_plain(terms.traffic_gb)} a GB of traffic"
    return f"tenant {terms.tenant}: {terms.free_tokens:,} tokens a month free, then {beyond}"


def _budget(budget: MoneyBudgetSection, currency: str) -> str:
    shadow = ", only watched" if budget.mode is LimitMode.SHADOW else ""
    return f"{budget.name}  {_plain(budget.amount)} {currency} per {budget.per} for {scope_words(budget.scope)}{shadow}"


def _plain(amount: float) -> str:
    """Write an amount with its decimals, of which there are six at most, and never with an exponent."""
    whole, _, decimals = f"{amount:,.6f}".partition(".")
    return f"{whole}.{decimals.rstrip('0')}".removesuffix(".")
