"""Keeps the books in PostgreSQL: for several nodes. An advisory lock makes each group commit the only writer of all nodes' desks.

asyncpg runs on a loop of this object's own, so that callers, who are in a thread, simply wait. Every wait has a deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar
from urllib.parse import urlsplit

import asyncpg  # type: ignore[import-untyped]

from tidegate.adapters.books.ledger import BooksUnavailable, EntryRefused
from tidegate.adapters.books.queries import STATE_COLUMNS, Row
from tidegate.adapters.books.schema import COLUMNS, POSTGRES, VERSION, Cell
from tidegate.adapters.books.sqlite import check_version
from tidegate.domain.books import OperationId

CONNECT_S: Final = 5.0
COMMAND_S: Final = 30.0
"""For any one statement, waiting for the other desks' commits included; each of those takes milliseconds."""
_CLOSE_S: Final = 2.0
_SESSION: Final = {
    "application_name": "tidegate",
    "plan_cache_mode": "force_custom_plan",  # a plan made while the books were short would read them all, for ever
}
_LOCK: Final = 7_166_483_721_406_590_561
"""Of the books among all advisory locks of the database: any number that nobody else takes."""
_POSTINGS_OF: Final = f"SELECT {STATE_COLUMNS} FROM tidegate_postings WHERE operation_id = ANY($1::text[]) ORDER BY posting_id"  # noqa: S608

Result = TypeVar("Result")


class PostgresDatabase:
    """A `ledger.Database`. The tables are made when they are missing."""

    def __init__(self, url: str, *, connect_timeout_s: float = CONNECT_S) -> None:
        self._name = shown_url(url)
        self._runner = asyncio.Runner()
        try:
            connecting = asyncpg.connect(url, timeout=connect_timeout_s, command_timeout=COMMAND_S, server_settings=_SESSION)
            self._connection = self._run(connecting)
        except BaseException:
            self._runner.close()
            raise
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"PostgresDatabase({self._name})"

    @contextmanager
    def writing(self) -> Iterator[None]:
        with self._transaction("read_committed"):
            self._run(self._connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK))
            yield

    @contextmanager
    def reading(self) -> Iterator[None]:
        with self._transaction("repeatable_read"):
            yield

    def insert(self, rows: Sequence[tuple[Cell, ...]]) -> None:
        self._run(self._connection.copy_records_to_table("tidegate_postings", records=rows, columns=COLUMNS))

    def rows(self, query: str, *parameters: Cell) -> list[Row]:
        return [tuple(record) for record in self._run(self._connection.fetch(query, *parameters))]

    def rows_of(self, operations: Sequence[OperationId]) -> list[Row]:
        return [tuple(record) for record in self._run(self._connection.fetch(_POSTINGS_OF, operations))]

    def close(self) -> None:
        try:
            self._run(self._connection.close(timeout=_CLOSE_S))
        except BooksUnavailable:
            self._connection.terminate()
        self._runner.close()

    @contextmanager
    def _transaction(self, isolation: str) -> Iterator[None]:
        transaction = self._connection.transaction(isolation=isolation)
        self._run(transaction.start())
        try:
            yield
        except BaseException:
            if not self._connection.is_closed():
                self._run(transaction.rollback())
            raise
        self._run(transaction.commit())

    def _prepare(self) -> None:
        with self.writing():
            if self.rows("SELECT to_regclass('tidegate_books') IS NULL")[0][0]:
                self._run(self._connection.execute(POSTGRES))
                self._run(self._connection.execute("INSERT INTO tidegate_books VALUES (1, $1)", VERSION))
            check_version(int(self.rows("SELECT schema_version FROM tidegate_books")[0][0] or 0), self._name)

    def _run(self, work: Coroutine[object, object, Result]) -> Result:
        """Wait for it; say in `ledger`'s terms what asyncpg's exceptions mean."""
        try:
            return self._runner.run(work)
        except (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError, ValueError, OverflowError) as error:
            raise EntryRefused(f"The books {self._name} do not take an entry: {error}.") from error
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
            reason = str(error) or f"no answer within {COMMAND_S:g} s"
            raise BooksUnavailable(
                f"The books {self._name} cannot be used ({reason}); check that the server runs, and what this user may do."
            ) from error


def shown_url(url: str) -> str:
    """Give an address without its password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
