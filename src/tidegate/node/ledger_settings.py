"""Whether a node needs a ledger process, and what that is to know."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tidegate.adapters.books.spent_before import Budgets
from tidegate.config.bookkeeping import books_are_kept
from tidegate.config.schema import Configuration
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


def ledger_environment(configuration: Configuration, state_directory: Path, *, started_at: float) -> dict[str, str]:
    """Give what the process is told; the address of the books may hold a password. `started_at`: of the node, seconds since the epoch."""
    if not books_are_kept(configuration):
        return {}
    environment = {BOOKS_VARIABLE: books_database(configuration, state_directory.absolute())}
    if configuration.limits.store is None:  # a store that nodes share outlives each of them
        environment[BUDGETS_VARIABLE] = msgspec.json.encode(Budgets(budget_rules(configuration), started_at)).decode()
    return environment
