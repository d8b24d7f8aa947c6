"""A problem of the configuration: where it is, what is wrong, and what to do. Refusals are values.

Nothing in a `Problem` shows a secret: messages quote only values of settings that are not secret, and `excerpt` has them masked.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from enum import StrEnum

import msgspec

Path = tuple[str | int, ...]
"""The way from the top of the file to a value: keys, and positions in lists from 0."""

_LONGEST_COMPARED = 64
"""Characters of a wrong name that are compared: comparing is quadratic, and no right name is longer."""


class Severity(StrEnum):
    ERROR = "error"
    """The configuration is refused."""
    WARNING = "warning"
    """It works, but probably not as meant."""


class Problem(msgspec.Struct, frozen=True):
    """One thing a person should change. `line` and `column` count from 1; both are 0 when no line of a file is at fault."""

    line: int
    column: int
    path: str
    message: str
    hint: str | None = None
    severity: Severity = Severity.ERROR
    excerpt: str | None = None
    """The line of the file, secrets masked."""
    caret: int = 0
    """Position in `excerpt` of what is at fault, from 0."""


def path_text(path: Path) -> str:
    """Write a path as people do: `routes[0].targets[1].upstream`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
    return text


def nearest(name: str, choices: Iterable[str]) -> str | None:
    """Find the choice that `name` was probably meant to be."""
    matches = difflib.get_close_matches(name[:_LONGEST_COMPARED].lower(), list(choices), n=1, cutoff=0.6)
    return matches[0] if matches else None


def did_you_mean(name: str, choices: Iterable[str]) -> str | None:
    """Phrase the nearest choice as a hint."""
    choice = nearest(name, choices)
    return f'did you mean "{choice}"?' if choice is not None else None


def refused(problems: Iterable[Problem]) -> bool:
    """Tell whether any of the problems is an error."""
    return any(problem.severity is Severity.ERROR for problem in problems)
