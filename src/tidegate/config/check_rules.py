"""Check the rules, promises and budgets: that each can ever have an effect, and that it is the one that was meant.

Errors are what cannot have been meant; what merely has no effect at the moment is a warning, since in an outage a rule for everything is
put above the others on purpose.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from tidegate.config.check_routes import covers
from tidegate.config.environment import is_pattern
from tidegate.config.problem import Path, Problem, Severity, did_you_mean
from tidegate.config.schema import Configuration
from tidegate.config.schema_routing import OrderName, RouteSection, RuleSection, WhenSection
from tidegate.config.source import Source
from tidegate.domain.features import Script, Trait
from tidegate.domain.principal import DEFAULT_TIER

_TAKEN = frozenset({"sla", "budget"})
"""What records say where no rule decided."""
_EVERYTHING = WhenSection()


def check_rules(configuration: Configuration, source: Source) -> Iterator[Problem]:
    """Check `rules`, and of `routes` and `tiers` what has to do with promises and budgets."""
    for index, rule in enumerate(configuration.rules):
        path: Path = ("rules", index)
        yield from _check_name(configuration.rules[:index], rule, path, source)
        yield from _check_model(configuration, rule, path, source)
        yield from _check_when(rule.when, (*path, "when"), source)
        yield from _check_callers(configuration, rule.when, (*path, "when"), source)
        yield from _check_shadow(configuration.rules[:index], rule, path, source)
    for index, route in enumerate(configuration.routes):
        yield from _check_order(configuration, route, ("routes", index, "order"), source)
        yield from _check_budget(route, ("routes", index, "budget"), source)
    yield from _check_promises(configuration, source)


def _check_name(earlier: tuple[RuleSection, ...], rule: RuleSection, path: Path, source: Source) -> Iterator[Problem]:
    where = (*path, "name")
    if rule.name != rule.name.strip() or not rule.name.isprintable():
        yield source.problem(where, "the name of this rule has spaces around it, or cannot be printed", "write it plainly")
    if rule.name in _TAKEN:
        message = f'"{rule.name}" cannot name a rule: records say it where no rule decided'
        yield source.problem(where, message, "choose another name")
    if any(other.name == rule.name for other in earlier):
        message = f'two rules are called "{rule.name}"'
        yield source.problem(where, message, "give each its own name: records and tidegate explain tell them apart by it")


def _check_model(configuration: Configuration, rule: RuleSection, path: Path, source: Source) -> Iterator[Problem]:
    where = (*path, "model")
    if not rule.model or rule.model != rule.model.strip():
        yield source.problem(where, "the model of this rule is empty or has spaces around it", 'write a name or a pattern like "qwen*"')
    elif not is_pattern(rule.model) and not any(fnmatchcase(rule.model, route.model) for route in configuration.routes):
        names = [route.model for route in configuration.routes if not is_pattern(route.model)]
        message = f'this rule never holds: no route takes requests for "{rule.model}"'
        yield source.problem(where, message, did_you_mean(rule.model, names) or "add a route for it", severity=Severity.WARNING)


def _check_when(when: WhenSection, path: Path, source: Source) -> Iterator[Problem]:
    """Find conditions that contradict each other, and words that are not known."""
    least, most = when.min_prompt_tokens, when.max_prompt_tokens
    if least is not None and most is not None and least > most:
        message = f"this rule never holds: no prompt has at least {least:,} and at most {most:,} tokens"
        yield source.problem((*path, "min_prompt_tokens"), message, "exchange the two")
    for index, trait in enumerate(when.lacks):
        if trait in when.has:
            message = f"this rule never holds: no request has {trait} and lacks it"
            yield source.problem((*path, "lacks", index), message, "delete it in has or in lacks")
        elif trait is Trait.XML and Trait.SOAP in when.has:
            yield source.problem((*path, "lacks", index), "this rule never holds: SOAP is XML", "delete soap in has, or xml in lacks")
    if when.language is not None and when.language not in set(Script):
        known = ", ".join(Script)
        hint = did_you_mean(when.language, list(Script)) or f"use one of: {known}"
        yield source.problem((*path, "language"), f'there is no language "{when.language}"', hint)
    if when.language is None and source.mentions((*path, "language_share")):
        message = "language_share has no effect without language"
        yield source.problem((*path, "language_share"), message, "add language, or delete this line", severity=Severity.WARNING)


def _check_callers(configuration: Configuration, when: WhenSection, path: Path, source: Source) -> Iterator[Problem]:
    for index, tier in enumerate(when.tiers):
        if tier != DEFAULT_TIER and tier not in configuration.tiers:
            hint = did_you_mean(tier, configuration.tiers) or "add it under tiers, if keys or tokens carry it"
            message = f'there is no tier "{tier}" in tiers'
            yield source.problem((*path, "tiers", index), message, hint, severity=Severity.WARNING)
    for index, feature in enumerate(when.features):
        if not feature.strip() or feature != feature.strip():
            message = f'no request can name the feature "{feature}"'
            yield source.problem((*path, "features", index), message, "write it without spaces around it")


def _check_shadow(earlier: tuple[RuleSection, ...], rule: RuleSection, path: Path, source: Source) -> Iterator[Problem]:
    for index, other in enumerate(earlier):
        if other.when in (_EVERYTHING, rule.when) and covers(other.model, rule.model):
            line = source.values.get(("rules", index))
            before = f"on line {line.line}" if line is not None else "above"
            kind = "has no conditions" if other.when == _EVERYTHING else "has the same conditions"
            message = f'the rule "{rule.name}" never gets a turn: "{other.name}" {before} {kind}, and the first that holds wins'
            yield source.problem((*path, "name"), message, "move this rule above it, or delete one", severity=Severity.WARNING)
            return


def _check_order(configuration: Configuration, route: RouteSection, path: Path, source: Source) -> Iterator[Problem]:
    if route.order is not OrderName.SLA:
        return
    if len(route.targets) == 1:
        yield source.problem(path, "order: sla has no effect on a single target", "add targets, or delete it", severity=Severity.WARNING)
    elif all(tier.promised_ttft_s is None for tier in configuration.tiers.values()):
        yield source.problem(
            path,
            "nobody is promised a time to first token, so the cheapest target always goes first",
            "set promised_ttft_s in a tier, or write the targets in order",
            severity=Severity.WARNING,
        )


def _check_budget(route: RouteSection, path: Path, source: Source) -> Iterator[Problem]:
    budget = route.budget
    if budget is None:
        return
    if budget.tokens < budget.shortest_answer_tokens:
        message = f"no request fits: the shortest answer ({budget.shortest_answer_tokens:,} tokens) is over the budget ({budget.tokens:,})"
        where = (*path, "tokens") if source.mentions((*path, "tokens")) else (*path, "shortest_answer_tokens")
        yield source.problem(where, message, "raise tokens, or lower shortest_answer_tokens")
    first = route.targets[0]
    for key, target in (("smaller", budget.smaller), ("smaller_precise", budget.smaller_precise)):
        if target is not None and (target.upstream, target.model) == (first.upstream, first.model):
            message = f"{key} has no effect: it is the route's first target"
            yield source.problem((*path, key, "upstream"), message, "name a smaller model", severity=Severity.WARNING)


def _check_promises(configuration: Configuration, source: Source) -> Iterator[Problem]:
    if any(route.order is OrderName.SLA for route in configuration.routes):
        return
    for name, tier in configuration.tiers.items():
        if tier.promised_ttft_s is not None:
            message = f"the promise to the tier {name} has no effect: no route is ordered by sla"
            yield source.problem(("tiers", name, "promised_ttft_s"), message, "set order: sla in a route", severity=Severity.WARNING)
