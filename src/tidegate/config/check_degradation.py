"""Check the prepared answers: that each can be given, that a client can show it, and that the file of rules is there.

What stands in the file of rules is judged by whoever loads it (`adapters.rules`), with the same consequence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from tidegate.config.problem import Path, Problem, Severity
from tidegate.config.schema import Configuration
from tidegate.config.schema_degradation import DegradationSection, HoldingSection
from tidegate.config.source import Source

_DEFAULT = "default"
_LONGEST_FEATURE = 64
"""Characters of a feature that are read from `X-Business-Context`."""
_ADDRESS = re.compile(r"(?:https?://|mailto:|tel:|/)[^\s<>()]+")
_TITLE = re.compile(r"[^\[\]\n\r]+")


def check_degradation(configuration: Configuration, source: Source, *, file_exists: Callable[[str], bool]) -> Iterator[Problem]:
    """Check the section `degradation`."""
    section, path = configuration.degradation, ("degradation",)
    if section.rules_file is not None and not file_exists(section.rules_file):
        yield source.problem(
            (*path, "rules_file"),
            f'the file of rules "{section.rules_file}" is not a file that can be read',
            "relative paths start at the working directory; examples/rules/faq.json is one to start from",
        )
    for feature, held in section.holding.items():
        yield from _check_holding(feature, held, (*path, "holding", feature), source)
    yield from _check_effects(section, path, source)


def _check_holding(feature: str, held: HoldingSection, path: Path, source: Source) -> Iterator[Problem]:
    if not feature.strip() or feature != feature.strip() or len(feature) > _LONGEST_FEATURE:
        message = f'no request can name the feature "{feature[:_LONGEST_FEATURE]}"'
        yield source.problem(path, message, f"use 1 to {_LONGEST_FEATURE} characters, without spaces around them", at_key=True)
    if not held.sentence.strip():
        yield source.problem((*path, "sentence"), "the sentence is empty", "write what a waiting user should read")
    for index, link in enumerate(held.links):
        where = (*path, "links", index)
        if not _ADDRESS.fullmatch(link.url):
            message = f'"{link.url}" is not an address that a reader can open from an answer'
            yield source.problem((*where, "url"), message, "write it whole, like https://example.com/faq, without spaces or parentheses")
        if not link.title.strip() or not _TITLE.fullmatch(link.title):
            message = "the title of this link would break the Markdown link that it stands in"
            yield source.problem((*where, "title"), message, "use one line without [ and ]")


def _check_effects(section: DegradationSection, path: Path, source: Source) -> Iterator[Problem]:
    """Warn of settings that change nothing, and of requests that still get an error."""
    if section.holding and _DEFAULT not in section.holding and section.rules_file is None:
        yield source.problem(
            (*path, "holding"),
            "requests that name no feature, or another one, still get an error: there is no answer called default",
            "add holding.default, or rules_file",
            severity=Severity.WARNING,
            at_key=True,
        )
    if source.mentions((*path, "hold_for_s")) and not (section.holding and section.rules_file is not None):
        missing = "rules_file" if section.holding else "holding"
        yield source.problem(
            (*path, "hold_for_s"),
            f"hold_for_s has no effect without {missing}: it is when the rules take over from the prepared answers",
            f"add {missing}, or delete this line",
            severity=Severity.WARNING,
        )
    if source.mentions((*path, "hand_over")) and section.rules_file is None:
        yield source.problem(
            (*path, "hand_over"),
            "hand_over is never said without rules_file: it is for questions that the rules do not know",
            "add rules_file, or put the sentence into holding.default",
            severity=Severity.WARNING,
        )
