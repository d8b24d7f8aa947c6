"""Settings of money: prices by upstream and model, terms of billing by resources, budgets, and traffic that nobody pays for."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from tidegate.config.schema_limits import ScopeSection
from tidegate.config.section import AtLeastOne, Section
from tidegate.domain.limits import LimitMode, Period, StoreDown

Money = Annotated[float, Meta(ge=0, le=1_000_000)]
"""Whole units of the currency with at most six decimals, which a float of this size gives back exactly."""
Factor = Annotated[float, Meta(ge=0, le=100)]


class PriceTierSection(Section, frozen=True, kw_only=True):
    """Prices of calls with a long input. The length of the input picks one tier for the whole call."""

    above_tokens: Annotated[AtLeastOne, Meta(description="For inputs longer than this.")]
    input: Annotated[Money | None, Meta(description="Per million tokens; what a tier leaves out costs what it does below.")] = None
    output: Annotated[Money | None, Meta(description="Per million tokens.")] = None
    cached: Annotated[Money | None, Meta(description="Per million tokens.")] = None
    cache_write: Annotated[Money | None, Meta(description="Per million tokens.")] = None
    reasoning: Annotated[Money | None, Meta(description="Per million tokens.")] = None


class TimeWindowSection(Section, frozen=True, kw_only=True):
    """Hours in which everything costs more or less. The first that holds counts."""

    hours: Annotated[str, Meta(description="From and to, in UTC, like `16:30-00:30`; an end before the begin is on the next day.")] = (
        "00:00-24:00"
    )
    days: Annotated[tuple[str, ...], Meta(description="Days on which it begins: `mon`, `tue` …; without any, every day.")] = ()
    factor: Annotated[Factor, Meta(description="What the prices are multiplied by, at most six decimals.")]


class ModelPriceSection(Section, frozen=True, kw_only=True):
    """What one model, or all models of one pattern, cost at one upstream."""

    model: Annotated[str, Meta(description="Name or shell-style pattern, as the upstream knows the model.")]
    upstream: Annotated[str, Meta(description="Name or shell-style pattern of the upstream.")] = "*"
    input: Annotated[Money, Meta(description="Per million tokens of the prompt.")]
    output: Annotated[Money, Meta(description="Per million tokens of the answer.")]
    cached: Annotated[
        Money | None, Meta(description="Per million prompt tokens read from the provider's cache; without it, as `input`.")
    ] = None
    cache_write: Annotated[
        Money | None, Meta(description="Per million prompt tokens put into the provider's cache; without it, as `input`.")
    ] = None
    reasoning: Annotated[Money | None, Meta(description="Per million tokens of hidden thought; without it, as `output`.")] = None
    tiers: Annotated[tuple[PriceTierSection, ...], Meta(description="Other prices for long inputs, the shortest first.")] = ()
    image: Annotated[Money, Meta(description="For each picture in the request.")] = 0.0
    request: Annotated[Money, Meta(description="For each call, whatever its length.")] = 0.0
    time_windows: Annotated[tuple[TimeWindowSection, ...], Meta(description="Cheap or dear hours.")] = ()
    batch_ratio: Annotated[Factor, Meta(description="What the prices of calls in a batch are multiplied by.")] = 1.0


class HybridSection(Section, frozen=True, kw_only=True):
    """Terms of tenants who get a quota of tokens each month, and pay beyond it for the resources that they use."""

    tenant: Annotated[str, Meta(description="Name or shell-style pattern; the first that matches counts.")]
    free_tokens: Annotated[int, Meta(ge=0, description="Tokens (prompt and completion) of each month that cost nothing.")]
    memory_hour: Annotated[Money, Meta(description="For a gigabyte (10^9 bytes) of GPU memory over an hour.")]
    traffic_gb: Annotated[Money, Meta(description="For a gigabyte (10^9 bytes) of requests and answers.")]
    memory_per_token_bytes: Annotated[
        AtLeastOne, Meta(description="GPU memory that one token takes while its call runs: the model's keys and values.")
    ] = 131_072


class PriceListSection(Section, frozen=True, kw_only=True):
    """What calls cost. The first entry of `models` whose upstream and model match counts; a model without one costs nothing."""

    version: Annotated[str, Meta(description="Name of this list; it stands in every record and on every invoice.")] = ""
    currency: Annotated[str, Meta(description="Of all prices and budgets, e.g. `USD`.")] = "USD"
    models: Annotated[tuple[ModelPriceSection, ...], Meta(description="Prices by model.")] = ()
    hybrid: Annotated[tuple[HybridSection, ...], Meta(description="Tenants who pay for resources instead of tokens.")] = ()


class PricesSection(PriceListSection, frozen=True, kw_only=True):
    """What calls cost. The first entry of `models` whose upstream and model match counts; a model without one costs nothing."""

    file: Annotated[str | None, Meta(description="A YAML file with these settings, in their place; relative to the working directory.")] = (
        None
    )


class UnbilledSection(Section, frozen=True, kw_only=True):
    """Traffic that nobody pays for: no invoice, no books, no budget. Every other limit applies, and its records say what it cost."""

    color: Annotated[str, Meta(description="What the client sends in `X-Tidegate-Color`, e.g. `bench`.")]
    tenant: Annotated[
        str, Meta(description="Whose: name or shell-style pattern. Any other tenant's traffic of this colour is billed as usual.")
    ]


class MoneyBudgetSection(Section, frozen=True, kw_only=True):
    """The most that may be spent from one boundary of the calendar (UTC) to the next."""

    name: Annotated[str, Meta(min_length=1, max_length=60, description="For refusals, records and metrics.")]
    scope: Annotated[ScopeSection, Meta(description="Whose cost counts; empty: everybody's together.")] = ScopeSection()
    amount: Annotated[float, Meta(gt=0, le=100_000_000, description="In the currency of the prices.")]
    per: Annotated[Period, Meta(description="How long it has to last.")] = Period.MONTH
    mode: Annotated[LimitMode, Meta(description="`shadow`: counted and reported, never refused.")] = LimitMode.ENFORCE
    on_store_down: Annotated[
        StoreDown, Meta(description="While the process, or the store, that keeps the budget is away: `deny`, `local_share` or `allow`.")
    ] = StoreDown.DENY
