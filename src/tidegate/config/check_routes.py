"""Check the routes: targets that exist, patterns that can be reached. Routes derived from `models` are right by construction."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from tidegate.config.check_targets import check_target
from tidegate.config.environment import is_pattern
from tidegate.config.problem import Path, Problem, Severity
from tidegate.config.schema import Configuration
from tidegate.config.schema_routing import RouteSection
from tidegate.config.source import Source


def check_routes(configuration: Configuration, source: Source) -> Iterator[Problem]:
    """Check the routes that the file writes."""
    if not source.mentions(("routes",)):
        return
    for index, route in enumerate(configuration.routes):
        path: Path = ("routes", index)
        if not route.model or route.model != route.model.strip():
            yield source.problem(
                (*path, "model"), "the model of this route is empty or has spaces around it", 'write a name or a pattern like "qwen*"'
            )
        yield from _check_reach(configuration.routes[:index], route, path, source)
        yield from _check_targets(configuration, route, path, source)


def covers(wide: str, narrow: str) -> bool:
    """Tell whether every name that `narrow` matches is matched by `wide` too. True is proven; False may mean "not known".

    A `*` in `wide` that swallows a wildcard of `narrow` as if it were a letter swallows all that it can stand for. Sets in brackets,
    and `?` in `wide`, would not have that property.
    """
    if not is_pattern(narrow):
        return fnmatchcase(narrow, wide)
    if "[" in narrow or "[" in wide or "?" in wide:
        return wide in {narrow, "*"}
    return fnmatchcase(narrow, wide)


def _check_reach(earlier: tuple[RouteSection, ...], route: RouteSection, path: Path, source: Source) -> Iterator[Problem]:
    for index, other in enumerate(earlier):
        line = source.values.get(("routes", index))
        before = f"on line {line.line}" if line is not None else "above"
        if other.model == route.model:
            message = f'the route for "{route.model}" is written twice'
            yield source.problem((*path, "model"), message, f"the first is {before}; put all targets into one")
            return
        if covers(other.model, route.model):
            message = f'no request can reach the route for "{route.model}": "{other.model}" {before} takes all of them'
            yield source.problem((*path, "model"), message, "move this route above it")
            return


def _check_targets(configuration: Configuration, route: RouteSection, path: Path, source: Source) -> Iterator[Problem]:
    seen: set[tuple[str, str | None]] = set()
    for index, target in enumerate(route.targets):
        where = (*path, "targets", index)
        yield from check_target(configuration, target, where, source)
        if (target.upstream, target.model) in seen:
            message = f"{target.upstream} stands twice in this route with the same model"
            yield source.problem(
                (*where, "upstream"), message, "delete one of them: retries need no second target", severity=Severity.WARNING
            )
        seen.add((target.upstream, target.model))
