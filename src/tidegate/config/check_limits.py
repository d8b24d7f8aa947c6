"""Check the rules of `limits`: that each counts in one way, has a name of its own, and can ever hold for somebody."""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.config.check_health import check_redis_address
from tidegate.config.check_scopes import check_scope
from tidegate.config.problem import Path, Problem
from tidegate.config.schema import Configuration
from tidegate.config.schema_limits import LimitedName, LimitRuleSection
from tidegate.config.source import Source
from tidegate.config.words import is_name
from tidegate.domain.limits import OWN_RULES

MOST_RULES = 100
"""Likewise of budgets. Each is looked at for every subject that appears, and each is a label of the metrics."""


def check_limits(configuration: Configuration, source: Source) -> Iterator[Problem]:
    """Check `limits.rules` and `limits.store`."""
    if configuration.limits.store is not None:
        yield from check_redis_address(("limits", "store"), configuration.limits.store, source)
    rules = configuration.limits.rules
    if len(rules) > MOST_RULES:
        message = f"there are {len(rules)} rules of limits, more than {MOST_RULES}"
        yield source.problem(("limits", "rules"), message, "let one rule with `each` stand for many")
    budgets = {budget.name for budget in configuration.budgets}
    for index, rule in enumerate(rules):
        path: Path = ("limits", "rules", index)
        yield from _check_name(rules[:index], budgets, rule, path, source)
        yield from _check_counting(rule, path, source)
        yield from check_scope(configuration, rule.scope, (*path, "scope"), source, kind="limit")


def _check_name(
    earlier: tuple[LimitRuleSection, ...], budgets: set[str], rule: LimitRuleSection, path: Path, source: Source
) -> Iterator[Problem]:
    where = (*path, "name")
    if not is_name(rule.name):
        yield source.problem(where, f'"{rule.name}" cannot name a limit', "use letters, digits, dots, dashes and underscores")
    if rule.name in OWN_RULES:
        yield source.problem(where, f'"{rule.name}" is the name of a ceiling that every key has', "choose another name")
    if any(other.name == rule.name for other in earlier):
        yield source.problem(where, f'two limits are called "{rule.name}"', "give each its own name: refusals and metrics name it")
    if rule.name in budgets:
        yield source.problem(where, f'a budget is called "{rule.name}" too', "give each its own name: refusals and metrics name it")


def _check_counting(rule: LimitRuleSection, path: Path, source: Source) -> Iterator[Problem]:
    over_time = [name for name in ("window_s", "burst", "per") if getattr(rule, name) is not None]
    if rule.of is LimitedName.CONCURRENCY:
        for name in over_time:
            yield source.problem((*path, name), f"{name} says nothing of what runs at the same time", "delete it")
    elif rule.per is not None:
        for name in over_time[:-1]:
            yield source.problem((*path, name), f"a limit per {rule.per} has no {name}", f"delete {name}, or per")
