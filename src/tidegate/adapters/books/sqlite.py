"""Keeps the books in one SQLite file: for one node. WAL lets the command line and the admin API read while the desk writes.

A commit waits for the disk. Every wait for another process's lock is bounded by the busy timeout.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from tidegate.adapters.books.ledger import BooksUnavailable, EntryRefused
from tidegate.adapters.books.queries import STATE_COLUMNS, Row
from tidegate.adapters.books.schema import COLUMNS, SQLITE, VERSION, Cell
from tidegate.adapters.sqlite_file import make_private, statements, turn_wal_on
from tidegate.domain.books import OperationId
from tidegate.errors import ConfigurationError

BUSY_S: Final = 5.0
"""Far above a group commit: whoever holds the lock for longer hangs."""
_CHECKPOINT_PAGES: Final = 4_000  # 16 MB: the main file is written, and waited for, a few times a minute instead of at every tenth commit
_INSERT: Final = f"INSERT INTO tidegate_postings ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"  # noqa: S608
_POSTINGS_OF: Final = (
    f"SELECT {STATE_COLUMNS} FROM tidegate_postings WHERE operation_id IN (SELECT value FROM json_each(?))"  # noqa: S608
    " ORDER BY posting_id"
)


class SqliteDatabase:
    """A `ledger.Database`. The file is made when it is missing, unless `create` is False."""

    def __init__(self, path: Path, *, create: bool = True, busy_timeout_s: float = BUSY_S) -> None:
        self._path = path
        try:
            if create:
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                make_private(path)
            elif not path.exists():
                raise ConfigurationError(f"There are no books at {path}; they are made when the gateway runs with prices or budgets.")
            self._connection = sqlite3.connect(
                f"{path.resolve().as_uri()}?mode=rw", uri=True, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False
            )
        except (OSError, sqlite3.Error) as error:
            raise ConfigurationError(f"The books {path} cannot be opened ({error}); check the path, its owner and free space.") from error
        try:
            self._prepare()
        except BaseException:
            self._connection.close()
            raise

    def __repr__(self) -> str:
        return f"SqliteDatabase({self._path})"

    @contextmanager
    def writing(self) -> Iterator[None]:
        with self._transaction("BEGIN IMMEDIATE"):
            yield

    @contextmanager
    def reading(self) -> Iterator[None]:
        with self._transaction("BEGIN"):
            yield

    def insert(self, rows: Sequence[tuple[Cell, ...]]) -> None:
        with _translated(self._path):
            self._connection.executemany(_INSERT, rows)

    def rows(self, query: str, *parameters: Cell) -> list[Row]:
        with _translated(self._path):
            return self._connection.execute(query, {str(number): value for number, value in enumerate(parameters, 1)}).fetchall()

    def rows_of(self, operations: Sequence[OperationId]) -> list[Row]:
        with _translated(self._path):
            return self._connection.execute(_POSTINGS_OF, (msgspec.json.encode(operations).decode(),)).fetchall()

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        connection = self._connection
        with _translated(self._path):
            connection.execute(begin)
        try:
            yield
            with _translated(self._path):
                connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _prepare(self) -> None:
        connection = self._connection
        with _translated(self._path):
            turn_wal_on(connection, self._path, busy_timeout_s=BUSY_S)
            connection.execute("PRAGMA synchronous = FULL")  # acknowledged money survives a power cut
            connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        with self.writing(), _translated(self._path):
            if connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
                for statement in statements(SQLITE):
                    connection.execute(statement)
                connection.execute("INSERT INTO tidegate_books VALUES (1, ?)", (VERSION,))
            if connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'tidegate_books'").fetchone() == (0,):
                raise ConfigurationError(f"{self._path} is a database, but not Tidegate's books; name another file in books.database.")
            check_version(connection.execute("SELECT schema_version FROM tidegate_books").fetchone()[0], str(self._path))


def check_version(found: int, name: str) -> None:
    """Refuse books that another version of Tidegate wrote."""
    if found != VERSION:
        raise ConfigurationError(
            f"The books {name} have schema version {found}, this Tidegate reads {VERSION}; run the version that wrote them."
        )


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    """Say in `ledger`'s terms what SQLite's exceptions mean."""
    try:
        yield
    except (sqlite3.IntegrityError, sqlite3.DataError, OverflowError, UnicodeError) as error:
        raise EntryRefused(f"The books {path} do not take an entry: {error}.") from error
    except sqlite3.Error as error:
        raise BooksUnavailable(
            f"The books {path} cannot be used ({error}); check free space, permissions, and who else has the file open."
        ) from error
