"""Whether a configuration has books; apart from its checks, so that a worker can ask without reading YAML."""

from __future__ import annotations

from tidegate.config.schema import Configuration

POSTGRES_SCHEMES = ("postgresql://", "postgres://")
"""How an address of `books.database` begins that is no file."""


def books_are_kept(configuration: Configuration) -> bool:
    """Say whether books are kept: where the configuration says so, or where anything has a price or a budget."""
    if configuration.books.enabled is not None:
        return configuration.books.enabled
    prices = configuration.prices
    return bool(prices.models or prices.hybrid or prices.file or configuration.budgets)
