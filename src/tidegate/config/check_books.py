"""Check where books are kept, that budgets have them, and that no hold ends before its request."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from tidegate.config.bookkeeping import POSTGRES_SCHEMES
from tidegate.config.problem import Problem, Severity
from tidegate.config.schema import Configuration
from tidegate.config.source import Source


def check_books(configuration: Configuration, source: Source) -> Iterator[Problem]:
    """Messages do not repeat the address: it may hold a password."""
    books = configuration.books
    if books.database is not None:
        database = books.database.reveal()
        if database.startswith(POSTGRES_SCHEMES) and not _names_a_host(database):
            yield source.problem(
                ("books", "database"), "books.database names no server", "write it like postgresql://tidegate:password@10.0.0.7/books"
            )
        elif "://" in database and not database.startswith(POSTGRES_SCHEMES):
            yield source.problem(
                ("books", "database"),
                "books.database is neither a file nor a PostgreSQL server",
                "name a file, or write it like postgresql://tidegate:password@10.0.0.7/books",
            )
    if books.enabled is False and configuration.budgets:
        message = "without books every restart forgets what was spent of the budgets"
        yield source.problem(("books", "enabled"), message, "delete this line", severity=Severity.WARNING)
    longest = max((upstream.timeouts.total_s for upstream in configuration.upstreams.values()), default=0.0)
    attempts = configuration.retry.max_attempts
    if books.hold_expiry_s < longest * attempts and source.mentions(("books", "hold_expiry_s")):
        yield source.problem(
            ("books", "hold_expiry_s"),
            f"holds end after {books.hold_expiry_s:,g} s, while {attempts} attempts of {longest:,g} s may still run",
            f"write at least {longest * attempts:,g}s; what ends too early is settled all the same, and may become debt",
            severity=Severity.WARNING,
        )


def _names_a_host(url: str) -> bool:
    try:
        return bool(urlsplit(url).hostname)
    except ValueError:
        return False
