"""Whose bodies are kept in which way."""

from __future__ import annotations

import pytest

from tidegate.domain.audit import AuditPolicy, AuditRule, AuditRules

RULES = AuditRules(
    AuditPolicy.METADATA,
    (
        AuditRule(AuditPolicy.OFF, tenant="quiet"),
        AuditRule(AuditPolicy.FULL, tenant="lab-*", route="qwen*"),
        AuditRule(AuditPolicy.REDACTED, route="qwen3-[12]*"),
    ),
)


@pytest.mark.parametrize(
    ("tenant", "route", "policy"),
    [
        ("quiet", "qwen3-[12]*", AuditPolicy.OFF),
        ("lab-7", "qwen3-max", AuditPolicy.FULL),
        ("acme", "qwen3-1b", AuditPolicy.REDACTED),
        ("acme", "qwen3-[12]*", AuditPolicy.REDACTED),
        ("lab-7", "other", AuditPolicy.METADATA),
        ("acme", "", AuditPolicy.METADATA),
    ],
)
def test_the_first_rule_that_holds_decides(tenant: str, route: str, policy: AuditPolicy) -> None:
    """By tenant and route, as patterns; a route's own pattern is its name, whatever characters it has."""
    assert policy is RULES.policy_for(tenant, route)


def test_whether_anything_is_kept_can_be_asked() -> None:
    """Rules that keep nothing, and no rules, keep nothing."""
    assert not AuditRules().keep_something
    assert not AuditRules(rules=(AuditRule(AuditPolicy.OFF),)).keep_something
    assert AuditRules(rules=(AuditRule(AuditPolicy.FULL, tenant="x"),)).keep_something
    assert AuditRules(AuditPolicy.METADATA).keep_something
