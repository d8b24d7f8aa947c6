"""Check the targets that stand outside a route's own list: of rules, and in a target's place (`budget`, `ladder`, `classes`)."""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.config.environment import LOCAL, is_pattern
from tidegate.config.problem import Path, Problem, Severity, did_you_mean
from tidegate.config.schema import Configuration
from tidegate.config.schema_routing import OrderName, RouteSection, TargetSection
from tidegate.config.source import Source

_FOR_SLA = ("typical_ttft_s", "relative_cost")
_NOT_ITS_OWN = "only a route's own targets are ordered by sla"


def check_targets(configuration: Configuration, source: Source) -> Iterator[Problem]:
    """Check that each names an upstream and one model, and says nothing that is not looked at there."""
    for index, rule in enumerate(configuration.rules):
        seen: set[tuple[str, str | None]] = set()
        for position, target in enumerate(rule.use):
            path: Path = ("rules", index, "use", position)
            yield from check_target(configuration, target, path, source)
            yield from _check_unread(path, _NOT_ITS_OWN, source)
            if (target.upstream, target.model) in seen:
                message = f"{target.upstream} stands twice in this rule with the same model"
                yield source.problem((*path, "upstream"), message, "delete one of them", severity=Severity.WARNING)
            seen.add((target.upstream, target.model))
    for index, route in enumerate(configuration.routes):
        for steps, target in stand_ins(route):
            yield from check_target(configuration, target, ("routes", index, *steps), source)
            yield from _check_unread(("routes", index, *steps), _NOT_ITS_OWN, source)
        if route.order is not OrderName.SLA:
            for position in range(len(route.targets)):
                yield from _check_unread(("routes", index, "targets", position), "this route is not ordered by sla", source)


def stand_ins(route: RouteSection) -> Iterator[tuple[tuple[str, ...], TargetSection]]:
    """Give the targets that a route names in place of its own, and where they stand in it."""
    for name, section in (("budget", route.budget), ("ladder", route.ladder)):
        if section is not None:
            for key, target in (("smaller", section.smaller), ("smaller_precise", section.smaller_precise)):
                if target is not None:
                    yield (name, key), target
    if route.classes is not None:
        yield ("classes", "fallback"), route.classes.fallback


def check_target(configuration: Configuration, target: TargetSection, path: Path, source: Source) -> Iterator[Problem]:
    """Check that a target names an upstream that exists, and one model."""
    known = [*configuration.upstreams, *([LOCAL] if configuration.local_engine.enabled else [])]
    if target.upstream not in known:
        if target.upstream == LOCAL:
            message, hint = "the local engine is disabled", "set local_engine.enabled to true, or name another upstream"
        else:
            message = f'there is no upstream "{target.upstream}"'
            hint = did_you_mean(target.upstream, known) or (f"there are: {', '.join(known)}" if known else "add it under upstreams")
        yield source.problem((*path, "upstream"), message, hint)
    if target.model is not None and (not target.model.strip() or is_pattern(target.model)):
        message = f'"{target.model}" is not the name of one model'
        yield source.problem((*path, "model"), message, "a target sends one name; leave it out to send the client's")


def _check_unread(path: Path, why: str, source: Source) -> Iterator[Problem]:
    for key in _FOR_SLA:
        if source.mentions((*path, key)):
            yield source.problem((*path, key), f"{key} has no effect here: {why}", "delete it", severity=Severity.WARNING)
