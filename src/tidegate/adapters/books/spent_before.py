"""What budgets have spent before this node started, from the books: their counters begin there and not at nothing.

What is settled after the start is counted as it happens. A budget by tier, or by the model's name that clients use, begins at nothing:
the books know neither.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tidegate.adapters.books.ledger import Books
from tidegate.domain.limits import CounterSpec, LimitRule, LimitSubject, Meter, Resource, Scope
from tidegate.domain.units import KeyId, TenantId, UserId
from tidegate.policy.metering.calendar_window import period_at, starts_at
from tidegate.policy.metering.limiter import applies, counter_name

_GROUPS: Final = (Scope.KEY, Scope.TENANT, Scope.USER, Scope.FEATURE, Scope.ROUTE)
"""Scopes that the books know by the same name and value."""


class Budgets(msgspec.Struct, frozen=True):
    """The budgets of a configuration, and when the node that keeps them started: seconds since the epoch."""

    rules: tuple[LimitRule, ...]
    started_at: float


class SpentBefore(msgspec.Struct, frozen=True, gc=False):
    """What one counter has counted already."""

    counter: str
    spec: CounterSpec
    used: int


def spent_before(books: Books, budgets: Budgets) -> list[SpentBefore]:
    """Sum what was settled in each budget's period before the start. Waits for the database: call it from a thread."""
    found: list[SpentBefore] = []
    for rule in budgets.rules:
        scopes = [match.scope for match in rule.scopes]
        if rule.resource is not Resource.COST or rule.spec.meter is not Meter.CALENDAR or not set(scopes) <= set(_GROUPS):
            continue
        period = rule.spec.period
        since = starts_at(period_at(budgets.started_at, period), period)
        used: dict[str, int] = {}
        for row in books.usage([str(scope) for scope in scopes], since=since, until=budgets.started_at):
            subject = _subject(dict(zip(scopes, row.group, strict=True)))
            if row.amount_micro and applies(rule, subject):
                name = counter_name(rule, subject)
                used[name] = used.get(name, 0) + row.amount_micro
        found += [SpentBefore(name, rule.spec, amount) for name, amount in used.items()]
    return found


def _subject(values: dict[Scope, str]) -> LimitSubject:
    return LimitSubject(
        KeyId(values.get(Scope.KEY, "")),
        TenantId(values.get(Scope.TENANT, "")),
        UserId(values.get(Scope.USER, "")),
        feature=values.get(Scope.FEATURE, ""),
        route=values.get(Scope.ROUTE, ""),
    )
