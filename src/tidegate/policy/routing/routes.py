"""From a model name to the route that serves it: the first pattern that matches, in the order of the configuration."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import translate

from tidegate.domain.upstream import Route

_REMEMBERED = 4096  # model names come from clients: remember this many, then start afresh


class RouteTable:
    """Immutable apart from a bounded memory of past answers."""

    def __init__(self, routes: Sequence[Route], listed_models: Sequence[str]) -> None:
        self.routes = tuple(routes)
        self.listed_models = tuple(listed_models)
        self._patterns = [(re.compile(translate(route.pattern)), route) for route in routes]
        self._memory: dict[str, Route | None] = {}
        self._permissions: dict[tuple[str, ...], re.Pattern[str]] = {}

    def __repr__(self) -> str:
        return f"RouteTable({', '.join(route.pattern for route in self.routes)})"

    def match(self, model: str) -> Route | None:
        try:
            return self._memory[model]
        except KeyError:
            pass
        found = next((route for pattern, route in self._patterns if pattern.match(model)), None)
        if len(self._memory) >= _REMEMBERED:
            self._memory.clear()
        self._memory[model] = found
        return found

    def allows(self, patterns: tuple[str, ...], model: str) -> bool:
        """Tell whether a caller limited to `patterns` (shell style, `*` for all) may use a model."""
        if "*" in patterns:
            return True
        compiled = self._permissions.get(patterns)
        if compiled is None:
            if len(self._permissions) >= _REMEMBERED:
                self._permissions.clear()
            compiled = re.compile("|".join(map(translate, patterns)) or r"(?!)")
            self._permissions[patterns] = compiled
        return compiled.match(model) is not None
