"""What wiring makes of the rules of `limits`, together with budgets, and what statistics make of what the rules did."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.config.schema import Configuration
from tidegate.config.schema_limits import LimitedName, LimitRuleSection
from tidegate.config.scopes import matches_of
from tidegate.domain.limits import CounterSpec, LimitRule, Meter, Resource
from tidegate.ports import RuleStatistics
from tidegate.wiring.prices import budget_rules

_WINDOW_S = 60.0


def limit_rules_of(configuration: Configuration) -> tuple[LimitRule, ...]:
    """Give every limit beyond a key's own ceilings: the rules, and the budgets."""
    return (*(_rule(section) for section in configuration.limits.rules), *budget_rules(configuration))


def rule_counters(rules: Sequence[RuleStatistics]) -> dict[str, float]:
    """Give, for the metrics, how many requests each rule refused, or would have."""
    counters: dict[str, float] = {}
    for one in rules:
        counters[f"limits.denied.{one.rule}"] = float(one.denied)
        counters[f"limits.would_deny.{one.rule}"] = float(one.would_deny)
    return counters


def _rule(section: LimitRuleSection) -> LimitRule:
    return LimitRule(
        name=section.name,
        resource=Resource(section.of),
        spec=_spec(section),
        scopes=matches_of(section.scope),
        mode=section.mode,
        on_store_down=section.on_store_down,
    )


def _spec(section: LimitRuleSection) -> CounterSpec:
    if section.of is LimitedName.CONCURRENCY:
        return CounterSpec(Meter.PLACES, section.ceiling)
    if section.per is not None:
        return CounterSpec(Meter.CALENDAR, section.ceiling, period=section.per)
    window_s = _WINDOW_S if section.window_s is None else section.window_s
    if section.burst is not None:
        return CounterSpec(Meter.GCRA, section.ceiling, window_s, section.burst)
    return CounterSpec(Meter.SLIDING, section.ceiling, window_s)
