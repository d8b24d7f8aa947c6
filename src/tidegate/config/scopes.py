"""What the `scope` of a limit or a budget means, and how it is said. Reads no YAML, so that a worker can ask."""

from __future__ import annotations

import msgspec

from tidegate.config.schema_limits import EACH, ScopeSection
from tidegate.domain.limits import Scope, ScopeMatch


def given(scope: ScopeSection) -> dict[str, str]:
    """Give the patterns that are set, by scope."""
    patterns: dict[str, str | None] = msgspec.structs.asdict(scope)
    return {name: pattern for name, pattern in patterns.items() if pattern is not None}


def matches_of(scope: ScopeSection) -> tuple[ScopeMatch, ...]:
    """Give the conditions of a scope as a limiter knows them."""
    return tuple(
        ScopeMatch(Scope(name)) if pattern == EACH else ScopeMatch(Scope(name), pattern, each=False)
        for name, pattern in given(scope).items()
    )


def scope_words(scope: ScopeSection) -> str:
    """Say in words whose use counts."""
    words = [f"each {name}" if pattern == EACH else f"{name} {pattern}" for name, pattern in given(scope).items()]
    return ", ".join(words) or "everybody together"
