"""Check whose bodies are kept: rules that can hold, patterns that can be used, and room for the largest body."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from tidegate.config.problem import Path, Problem, Severity, did_you_mean
from tidegate.config.schema import Configuration
from tidegate.config.schema_audit import AuditPatternSection
from tidegate.config.source import Source
from tidegate.domain.audit import AuditPolicy

MOST_RULES = 100
"""Each is looked at for every request whose bodies may be kept."""
MOST_PATTERNS = 100
"""Each is one more pass over every text."""
_LONGEST_PATTERN = 200
_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")


def check_audit(configuration: Configuration, source: Source) -> Iterator[Problem]:
    """What a pattern may be made of is looked at closely when the gateway starts; here, whether it is one at all."""
    audit = configuration.audit
    for name, most, count in (("rules", MOST_RULES, len(audit.rules)), ("patterns", MOST_PATTERNS, len(audit.patterns))):
        if count > most:
            yield source.problem(("audit", name), f"there are {count} {name} of audit, more than {most}", "make several into one")
    for index, pattern in enumerate(audit.patterns):
        yield from _check_pattern(pattern, ("audit", "patterns", index), source)
    routes = [route.model for route in configuration.routes]
    for index, rule in enumerate(audit.rules):
        path: Path = ("audit", "rules", index)
        if rule.route is not None and not any(each == rule.route or fnmatchcase(each, rule.route) for each in routes):
            hint = did_you_mean(rule.route, routes) or f"there are: {', '.join(routes)}"
            yield source.problem((*path, "route"), f'no route is called "{rule.route}"', hint, severity=Severity.WARNING)
        if rule.tenant is None and rule.route is None and index + 1 < len(audit.rules):
            yield source.problem(path, "this rule holds for every request, so those after it never do", "put it last, or set audit.policy")
    keeps = any(policy is not AuditPolicy.OFF for policy in (audit.policy, *(rule.policy for rule in audit.rules)))
    if keeps and audit.queue_bytes < configuration.server.max_body_bytes:
        yield source.problem(
            ("audit", "queue_bytes"),
            f"queue_bytes ({audit.queue_bytes:,}) is less than server.max_body_bytes ({configuration.server.max_body_bytes:,}), "
            "so the largest bodies would always be dropped",
            "raise queue_bytes to a few times that",
            severity=Severity.WARNING,
        )


def _check_pattern(pattern: AuditPatternSection, path: Path, source: Source) -> Iterator[Problem]:
    if not _NAME.fullmatch(pattern.name):
        yield source.problem(
            (*path, "name"), f'"{pattern.name}" cannot name a pattern', "use at most 32 of a-z, 0-9 and _, with a letter first"
        )
    if len(pattern.pattern) > _LONGEST_PATTERN:
        yield source.problem((*path, "pattern"), f"this pattern has more than {_LONGEST_PATTERN} characters", "make several of it")
    try:
        re.compile(pattern.pattern)
    except re.error as error:
        yield source.problem((*path, "pattern"), f"this is not a regular expression: {error}", "correct it")
