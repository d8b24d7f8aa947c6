"""How a question is put to the records, and how it is answered, wherever the records are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

Value = str | int | float | bool | None | list[str | int | float | bool | None] | dict[str, str]
"""What a cell holds. Times are text in UTC, `2026-11-04 10:00:00.123`."""
Parameter = str | int | float


class QueryRequest(msgspec.Struct, frozen=True):
    """One question in ClickHouse's SQL. Parameters stand in it as `{name:Type}`."""

    sql: str
    parameters: dict[str, Parameter] = {}
    max_rows: int = 10_000
    """More are left out, and the answer says so."""
    deadline_s: float = 10.0


class QueryAnswer(msgspec.Struct, frozen=True):
    """A table, or (`error`) why there is none."""

    columns: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    rows: tuple[tuple[Value, ...], ...] = ()
    truncated: bool = False
    elapsed_s: float = 0.0
    rows_read: int = 0
    error: str = ""


class AnalyticsStore(Protocol):
    """Where rows are kept. Belongs to one thread. Every call has a deadline, and raises `OSError` or `StoreError` when it fails."""

    def create_tables(self) -> None:
        """Make what is missing; never drops or changes rows."""

    def insert(self, table: str, rows: Sequence[Mapping[str, Value]], *, token: str = "") -> None:
        """Keep all of these rows; they are of one day. When it raises, none or all may be kept, now or a little later: `offsets` tells.

        Rows that come again with the same token are kept once, however late those of the first try arrive.
        """

    def offsets(self, table: str, source: str, *, at_least: int) -> set[int]:
        """Give the offsets, from `at_least` on, of the rows that came from this source."""

    def query(self, request: QueryRequest) -> QueryAnswer: ...

    def close(self) -> None: ...


class Asker(Protocol):
    """Whom people's questions are put to."""

    async def ask(self, request: QueryRequest) -> QueryAnswer: ...
