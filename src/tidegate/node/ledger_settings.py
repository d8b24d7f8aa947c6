"""Whether a node needs a ledger process, and what that is to know."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tidegate.adapters.books.spent_before import Budgets
from tidegate.config.bookkeeping import books_are_kept
from tidegate.config.schema import Configuration
from tidegate.domain.limits import LimitRule, Period, ScopeMatch
from tidegate.node.restarts import RestartPolicy
from tidegate.wiring.books import books_database
from tidegate.wiring.prices import budget_rules

BOOKS_VARIABLE = "TIDEGATE_BOOKS_DATABASE"
"""Where the books are, as `adapters.books.opening.open_books` takes it; without it, there are none."""
BUDGETS_VARIABLE = "TIDEGATE_BUDGETS"
"""Budgets that begin with what the books say was spent, as JSON of `adapters.books.spent_before.Budgets`."""
LEDGER_POLICY = RestartPolicy(first_pause_s=0.1, longest_pause_s=5.0, healthy_s=60.0, give_up_after=None)
"""While it is away every worker keeps to its share of the limits, so it is started again sooner than others."""


def needs_ledger(configuration: Configuration) -> bool:
    """Say whether workers have to share limits without a store of their own, or books are kept."""
    return books_are_kept(configuration) or (configuration.server.workers > 1 and configuration.limits.store is None)


def budgets_of(configuration: Configuration, *, now: float, before: Budgets | None = None) -> Budgets:
    """Give the budgets of a node that starts now (seconds since the epoch), or after a reload those that follow `before`."""
    rules = budget_rules(configuration)
    if before is None:
        return Budgets(rules, now)
    known = {_counted_as(rule): before.counted_from(rule) for rule in before.rules}
    since = {rule.name: known.get(_counted_as(rule), now) for rule in rules}
    return Budgets(rules, before.started_at, {name: at for name, at in since.items() if at != before.started_at})


def added_budgets(budgets: Budgets, before: Budgets) -> Budgets:
    """Give those that a reload adds. Another ceiling or mode makes no other budget of one; another scope or period does."""
    known = {_counted_as(rule) for rule in before.rules}
    return msgspec.structs.replace(budgets, rules=tuple(rule for rule in budgets.rules if _counted_as(rule) not in known))


def ledger_environment(configuration: Configuration, state_directory: Path, budgets: Budgets) -> dict[str, str]:
    """Give what the process is told; the address of the books may hold a password."""
    if not books_are_kept(configuration):
        return {}
    environment = {BOOKS_VARIABLE: books_database(configuration, state_directory.absolute())}
    if asks_books(configuration):
        environment[BUDGETS_VARIABLE] = msgspec.json.encode(budgets).decode()
    return environment


def asks_books(configuration: Configuration) -> bool:
    """Say whether budgets begin with what the books say: a store that nodes share outlives each of them, and knows for itself."""
    return books_are_kept(configuration) and configuration.limits.store is None


def _counted_as(rule: LimitRule) -> tuple[str, tuple[ScopeMatch, ...], Period]:
    return rule.name, rule.scopes, rule.spec.period
