"""What budgets have spent, from the books: their counters begin there and not at nothing.

What was settled after the node's start, or the reload that brought a budget, was counted by a worker, which tells of it itself while it
lives. So it is given by worker, for those that are no more. A budget by tier, or by the model's name that clients use, begins at nothing:
the books know neither.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
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
    added_at: dict[str, float] = {}
    """Of those that a reload has added, by name, since when they are counted."""

    def counted_from(self, rule: LimitRule) -> float:
        """Give since when the workers of this node count what is spent of a budget."""
        return self.added_at.get(rule.name, self.started_at)


class SpentBefore(msgspec.Struct, frozen=True, gc=False):
    """What one counter has counted already."""

    counter: str
    spec: CounterSpec
    used: int
    worker: str = ""
    """The run of a worker of this node that counted it; empty: it was before the node's start."""


def spent_before(books: Books, budgets: Budgets, *, now: float) -> list[SpentBefore]:
    """Sum what was settled in each budget's running period (`now`: seconds since the epoch) and before it was counted.

    Waits for the database, like `spent_since`: call them from a thread.
    """
    found: list[SpentBefore] = []
    for rule in _answered_by_books(budgets):
        used = _used(books, rule, (), _began_at(rule, now), budgets.counted_from(rule))
        found += [SpentBefore(name, rule.spec, amount) for (name, *_), amount in used.items()]
    return found


def spent_since(books: Books, budgets: Budgets, *, now: float) -> list[SpentBefore]:
    """Sum what was settled in each budget's running period and since it was counted, by worker."""
    found: list[SpentBefore] = []
    for rule in _answered_by_books(budgets):
        used = _used(books, rule, ("worker",), max(_began_at(rule, now), budgets.counted_from(rule)), inf)
        found += [SpentBefore(name, rule.spec, amount, worker) for (name, worker), amount in used.items()]
    return found


def _answered_by_books(budgets: Budgets) -> Iterator[LimitRule]:
    for rule in budgets.rules:
        is_budget = rule.resource is Resource.COST and rule.spec.meter is Meter.CALENDAR
        if is_budget and {match.scope for match in rule.scopes} <= set(_GROUPS):
            yield rule


def _began_at(rule: LimitRule, now: float) -> float:
    return starts_at(period_at(now, rule.spec.period), rule.spec.period)


def _used(books: Books, rule: LimitRule, by: tuple[str, ...], since: float, until: float) -> dict[tuple[str, ...], int]:
    """Give what each counter of a rule used, by its name and the values of `by`."""
    scopes = [match.scope for match in rule.scopes]
    used: dict[tuple[str, ...], int] = {}
    for row in books.usage([*by, *map(str, scopes)], since=since, until=until):
        subject = _subject(dict(zip(scopes, row.group[len(by) :], strict=True)))
        if row.amount_micro and applies(rule, subject):
            key = (counter_name(rule, subject), *row.group[: len(by)])
            used[key] = used.get(key, 0) + row.amount_micro
    return used


def _subject(values: dict[Scope, str]) -> LimitSubject:
    return LimitSubject(
        KeyId(values.get(Scope.KEY, "")),
        TenantId(values.get(Scope.TENANT, "")),
        UserId(values.get(Scope.USER, "")),
        feature=values.get(Scope.FEATURE, ""),
        route=values.get(Scope.ROUTE, ""),
    )
