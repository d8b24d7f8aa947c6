"""Check the scope of a limit or a budget: patterns that can be meant, and that hold for somebody."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from tidegate.config.environment import is_pattern
from tidegate.config.problem import Path, Problem, Severity, did_you_mean
from tidegate.config.schema import Configuration
from tidegate.config.schema_limits import EACH, ScopeSection
from tidegate.config.scopes import given
from tidegate.config.source import Source
from tidegate.domain.principal import DEFAULT_TIER


def check_scope(configuration: Configuration, scope: ScopeSection, path: Path, source: Source, *, kind: str) -> Iterator[Problem]:
    """Find patterns that hold for nobody that the configuration knows; keys, users, tenants and features are not in it.

    `path` is where the scope stands, `kind` what has it: `limit` or `budget`.
    """
    for name, written in given(scope).items():
        if not written or written != written.strip():
            message = f"the {name} of this {kind} is empty or has spaces around it"
            yield source.problem((*path, name), message, f"write a name, a pattern, or `{EACH}`")
    routes = [route.model for route in configuration.routes]
    for name, pattern, known in (("tier", scope.tier, [DEFAULT_TIER, *configuration.tiers]), ("route", scope.route, routes)):
        if pattern not in (None, "", EACH) and not any(each == pattern or fnmatchcase(each, pattern) for each in known):
            hint = did_you_mean(pattern, known) or f"there are: {', '.join(known)}"
            yield source.problem((*path, name), f'no {name} is called "{pattern}"', hint, severity=Severity.WARNING)
    model = scope.model
    if model not in (None, "", EACH) and not is_pattern(model) and not any(fnmatchcase(model, route) for route in routes):
        message = f'this {kind} never holds: no route takes requests for "{model}"'
        hint = did_you_mean(model, [route for route in routes if not is_pattern(route)]) or "add a route for it"
        yield source.problem((*path, "model"), message, hint, severity=Severity.WARNING)
