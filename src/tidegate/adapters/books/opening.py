"""Which database an address means; each kind is imported only where it is used."""

from __future__ import annotations

from pathlib import Path

from tidegate.adapters.books.ledger import Books
from tidegate.config.bookkeeping import POSTGRES_SCHEMES
from tidegate.errors import ConfigurationError


def open_books(database: str, *, create: bool = True) -> Books:
    """Open the books at a path (SQLite) or an address (`postgresql://…`). `ConfigurationError`, or `BooksUnavailable` for a server away."""
    if not database.startswith(POSTGRES_SCHEMES):
        from tidegate.adapters.books.sqlite import SqliteDatabase

        return Books(SqliteDatabase(Path(database), create=create))
    try:
        from tidegate.adapters.books.postgres import PostgresDatabase
    except ModuleNotFoundError:
        raise ConfigurationError(
            "books.database is a PostgreSQL server, which needs the package asyncpg: pip install 'tidegate[postgres]', or name a file."
        ) from None
    return Books(PostgresDatabase(database))
