"""What is kept of the bodies of requests and answers, and whose.

The first rule that holds for a request decides; where none does, the default.
"""

from __future__ import annotations

from enum import StrEnum
from fnmatch import fnmatchcase

import msgspec


class AuditPolicy(StrEnum):
    OFF = "off"
    METADATA = "metadata"
    """Sizes, hashes, how many messages of which roles, parameters; no text."""
    REDACTED = "redacted"
    """The text, with placeholders for what would betray a person or open a door."""
    FULL = "full"
    """The text; only what would open a door is masked."""


class AuditRule(msgspec.Struct, frozen=True):
    """Whose bodies are kept in which way: shell-style patterns; None: everybody's."""

    policy: AuditPolicy
    tenant: str | None = None
    route: str | None = None
    """Of the route's own pattern."""

    def holds(self, tenant: str, route: str) -> bool:
        return (self.tenant is None or fnmatchcase(tenant, self.tenant)) and (
            self.route is None or route == self.route or fnmatchcase(route, self.route)
        )


class AuditRules(msgspec.Struct, frozen=True):
    default: AuditPolicy = AuditPolicy.OFF
    rules: tuple[AuditRule, ...] = ()

    def policy_for(self, tenant: str, route: str) -> AuditPolicy:
        """Decide for a caller's tenant and the pattern of the route that the request took; empty while it took none."""
        for rule in self.rules:
            if rule.holds(tenant, route):
                return rule.policy
        return self.default

    @property
    def keep_something(self) -> bool:
        return self.default is not AuditPolicy.OFF or any(rule.policy is not AuditPolicy.OFF for rule in self.rules)
