"""Check prices, terms and budgets: names that exist, money that can be written exactly, prices that do not fall with the input's length.

A price that fell would let a longer request cost less than a shorter one, and what was held for the shorter one would not cover it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import pairwise

from tidegate.config.check_limits import MOST_RULES
from tidegate.config.check_routes import covers
from tidegate.config.check_scopes import check_scope
from tidegate.config.check_targets import stand_ins
from tidegate.config.environment import LOCAL, is_pattern
from tidegate.config.price_values import DAYS, DECIMALS, RATES, hours_of, micro_of, rates_of
from tidegate.config.problem import Path, Problem, Severity, did_you_mean
from tidegate.config.schema import Configuration
from tidegate.config.schema_prices import HybridSection, ModelPriceSection, MoneyBudgetSection, TimeWindowSection, UnbilledSection
from tidegate.config.source import Source
from tidegate.config.words import is_name
from tidegate.domain.limits import OWN_RULES
from tidegate.domain.request import is_color

_CURRENCY = re.compile(r"[A-Z]{3}")
_EVERYBODY = "default"
"""The tenant of a key that was made without one."""
_MOST_NAMED = 8
"""Models without a price that a warning names; the rest it counts."""


def check_prices(configuration: Configuration, source: Source) -> Iterator[Problem]:
    """Check `prices`, `budgets` and `unbilled`; a price list in a file of its own is checked where it is read."""
    prices, at = configuration.prices, ("prices",)
    if prices.file is None:
        yield from check_price_list(configuration, source, at)
    else:
        for setting in ("version", "currency", "models", "hybrid"):
            if source.mentions((*at, setting)):
                message = f"prices.{setting} stands beside prices.file, which would replace it"
                yield source.problem((*at, setting), message, "keep one of the two", at_key=True)
    names: set[str] = set()
    for index, budget in enumerate(configuration.budgets):
        yield from _check_budget(configuration, budget, ("budgets", index), source)
        if budget.name in names:
            yield source.problem(("budgets", index, "name"), f'two budgets are called "{budget.name}"', "give each a name of its own")
        names.add(budget.name)
    if len(configuration.budgets) > MOST_RULES:
        message = f"there are {len(configuration.budgets)} budgets, more than {MOST_RULES}"
        yield source.problem(("budgets",), message, "let one budget with `each` stand for many")
    for index, grant in enumerate(configuration.unbilled):
        yield from _check_unbilled(grant, ("unbilled", index), source)
    if configuration.budgets and not prices.models and prices.file is None:
        message = "nothing has a price, so no budget can ever be used up"
        yield source.problem(("budgets",), message, "add prices.models, or prices.file", severity=Severity.WARNING, at_key=True)


def check_price_list(configuration: Configuration, source: Source, at: Path) -> Iterator[Problem]:
    """Check a price list that stands under `at` in its file."""
    prices = configuration.prices
    if (prices.models or prices.hybrid) and not prices.version.strip():
        hint = 'write a name that changes with every change of a price, like version: "2026-11"'
        yield source.problem((*at, "version"), "the price list has no version", hint)
    if not _CURRENCY.fullmatch(prices.currency):
        yield source.problem((*at, "currency"), "the currency is not a code of three capital letters", "write USD, CNY, EUR …")
    for index, section in enumerate(prices.models):
        path = (*at, "models", index)
        yield from _check_model(configuration, section, path, source)
        for number, earlier in enumerate(prices.models[:index]):
            if covers(earlier.upstream, section.upstream) and covers(earlier.model, section.model):
                message = f'no call can have this price: entry {number + 1} ("{earlier.model}") takes all of them'
                yield source.problem((*path, "model"), message, "move it up, or delete it")
                break
    for index, terms in enumerate(prices.hybrid):
        yield from _check_hybrid(prices.hybrid[:index], terms, (*at, "hybrid", index), source)
    if prices.models:
        yield from _check_unpriced(configuration, source, (*at, "models"))


def _check_model(configuration: Configuration, section: ModelPriceSection, path: Path, source: Source) -> Iterator[Problem]:
    known = {*configuration.upstreams, LOCAL}
    if not any(fnmatchcase(name, section.upstream) for name in known):
        yield source.problem(
            (*path, "upstream"),
            f'there is no upstream "{section.upstream}"',
            did_you_mean(section.upstream, known) or f"there are: {', '.join(sorted(known))}",
            severity=Severity.WARNING if is_pattern(section.upstream) else Severity.ERROR,
        )
    if not section.model or section.model != section.model.strip():
        yield source.problem((*path, "model"), "the model is empty or has spaces around it", 'write a name or a pattern like "qwen*"')
    for name in (*RATES, "image", "request", "batch_ratio"):
        yield from _check_decimals(getattr(section, name), (*path, name), source)
    for index, window in enumerate(section.time_windows):
        yield from _check_window(window, (*path, "time_windows", index), source)
    yield from _check_tiers(section, path, source)


def _check_tiers(section: ModelPriceSection, path: Path, source: Source) -> Iterator[Problem]:
    for index, tier in enumerate(section.tiers):
        for name in RATES:
            yield from _check_decimals(getattr(tier, name), (*path, "tiers", index, name), source)
    for index, (below, tier) in enumerate(pairwise(section.tiers), start=1):
        if tier.above_tokens <= below.above_tokens:
            where = (*path, "tiers", index)
            message = f"the tier above {tier.above_tokens:,} tokens stands after the one above {below.above_tokens:,}"
            yield source.problem((*where, "above_tokens"), message, "write the tier for the shortest inputs first, each length once")
    for index, (lower, higher) in enumerate(pairwise(rates_of(section))):
        for name, rate in higher.items():
            before = lower[name]
            if rate is not None and before is not None and rate < before:
                message = f"a longer input would cost less: {name} falls from {before:g} to {rate:g}"
                yield source.problem((*path, "tiers", index), message, "prices may only rise with the length of the input")
                break


def _check_window(window: TimeWindowSection, path: Path, source: Source) -> Iterator[Problem]:
    if hours_of(window.hours) is None:
        message = f'"{window.hours}" is not a span of hours'
        yield source.problem((*path, "hours"), message, 'write it like "16:30-00:30", in UTC')
    for index, day in enumerate(window.days):
        if day not in DAYS:
            hint = did_you_mean(day, DAYS) or f"they are: {', '.join(DAYS)}"
            yield source.problem((*path, "days", index), f'there is no day "{day}"', hint)
    yield from _check_decimals(window.factor, (*path, "factor"), source)


def _check_decimals(amount: float | None, path: Path, source: Source) -> Iterator[Problem]:
    if amount is not None and micro_of(amount) is None:
        message = f"{amount!r} has more than {DECIMALS} decimals, which an amount of money cannot have here"
        yield source.problem(path, message, "prices are per million tokens; round it")


def _check_hybrid(earlier: tuple[HybridSection, ...], terms: HybridSection, path: Path, source: Source) -> Iterator[Problem]:
    yield from _check_tenant(terms.tenant, path, source)
    if any(covers(other.tenant, terms.tenant) for other in earlier):
        message = f'no tenant can have these terms: an entry above "{terms.tenant}" takes all of them'
        yield source.problem((*path, "tenant"), message, "move it up, or delete it")
    for name in ("memory_hour", "traffic_gb"):
        yield from _check_decimals(getattr(terms, name), (*path, name), source)


def _check_tenant(tenant: str, path: Path, source: Source) -> Iterator[Problem]:
    if not tenant or tenant != tenant.strip():
        yield source.problem((*path, "tenant"), "the tenant is empty or has spaces around it", 'write a name or a pattern like "acme*"')


def _check_unbilled(grant: UnbilledSection, path: Path, source: Source) -> Iterator[Problem]:
    if not is_color(grant.color):
        hint = "use at most 64 letters, digits, dots, dashes and underscores"
        yield source.problem((*path, "color"), f'no request can have the color "{grant.color}"', hint)
    yield from _check_tenant(grant.tenant, path, source)
    if fnmatchcase(_EVERYBODY, grant.tenant):
        message = f'every key that was made without a tenant can leave its bill unpaid: "{grant.tenant}" holds for them'
        hint = "give load tests a key with a tenant of their own, and name that one"
        yield source.problem((*path, "tenant"), message, hint, severity=Severity.WARNING)


def _check_unpriced(configuration: Configuration, source: Source, path: Path) -> Iterator[Problem]:
    unpriced = unpriced_models(configuration)
    if unpriced:
        named = ", ".join(f"{model} at {upstream}" for upstream, model in unpriced[:_MOST_NAMED])
        more = f" and {len(unpriced) - _MOST_NAMED} more" if len(unpriced) > _MOST_NAMED else ""
        message = f"no price: {named}{more}; their calls count as free"
        yield source.problem(path, message, "add entries, with a price of 0 where it is meant", severity=Severity.WARNING, at_key=True)


def unpriced_models(configuration: Configuration) -> list[tuple[str, str]]:
    """List the models that are known to be called and have no price, each with its upstream; the local engine's is free."""
    priced = configuration.prices.models
    targets = [(rule.model, target) for rule in configuration.rules for target in rule.use]
    for route in configuration.routes:
        targets += ((route.model, target) for target in (*route.targets, *(target for _, target in stand_ins(route))))
    called = dict.fromkeys(
        (target.upstream, model)
        for pattern, target in targets
        if target.upstream in configuration.upstreams
        for model in _models_called(configuration, pattern, target.upstream, target.model)
    )
    return [
        (upstream, model)
        for upstream, model in called
        if not any(fnmatchcase(upstream, each.upstream) and fnmatchcase(model, each.model) for each in priced)
    ]


def _models_called(configuration: Configuration, pattern: str, upstream: str, model: str | None) -> list[str]:
    if model is not None:
        return [model]
    if not is_pattern(pattern):
        return [pattern]
    return [name for name in configuration.upstreams[upstream].models if not is_pattern(name) and fnmatchcase(name, pattern)]


def _check_budget(configuration: Configuration, budget: MoneyBudgetSection, path: Path, source: Source) -> Iterator[Problem]:
    if not is_name(budget.name):
        hint = "use letters, digits, dots, dashes and underscores"
        yield source.problem((*path, "name"), f'"{budget.name}" cannot name a budget', hint)
    if budget.name in OWN_RULES:
        yield source.problem((*path, "name"), f'"{budget.name}" is the name of a ceiling that every key has', "choose another name")
    yield from _check_decimals(budget.amount, (*path, "amount"), source)
    yield from check_scope(configuration, budget.scope, (*path, "scope"), source, kind="budget")
