"""Answers the questions that only group rows, out of records as they stand in files: what there is without a store.

It is slower and holds what it read in memory, so it is for what one development machine has seen.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from tidegate.analytics.asking import QueryAnswer, Value
from tidegate.analytics.groupings import Grouping
from tidegate.analytics.questions import SLOWEST_COLUMNS
from tidegate.analytics.rows import Row, request_rows, timestamp
from tidegate.analytics.schema import REQUESTS
from tidegate.analytics.scope import Scope, Section
from tidegate.domain.record import RequestRecord
from tidegate.errors import StoreError

MOST_ROWS: Final = 500_000
"""Some hundred megabytes of what questions need of them."""

_NOTHING: Final[dict[str, Value]] = {
    column.name: None if column.type.startswith("Nullable") else "" if "String" in column.type else 0 for column in REQUESTS.columns
}
"""What a store has where a record has no such field."""


def slowest(records: Iterable[RequestRecord], scope: Scope) -> tuple[Section, ...]:
    """Give the slowest requests."""
    kept = sorted(_rows(records, scope, "requests", SLOWEST_COLUMNS), key=lambda row: -_figure(row.get("duration_s")))
    rows = tuple(tuple(row.get(name, _NOTHING[name]) for name in SLOWEST_COLUMNS) for row in kept[: scope.limit])
    return (Section("slowest", _answer(SLOWEST_COLUMNS, rows, scope)),)


def grouped(records: Iterable[RequestRecord], scope: Scope, grouping: Grouping, *, title: str) -> tuple[Section, ...]:
    """Answer a question that groups."""
    keys = grouping.columns(scope.by)
    needs = {*keys, *(name for measure in grouping.measures for name in measure.needs), "outcome"}
    groups: dict[tuple[Value, ...], list[Row]] = {}
    for row in _rows(records, scope, grouping.table, tuple(needs)):
        if grouping.keeps(row):
            groups.setdefault(tuple(_key(row.get(key)) for key in keys), []).append(row)
    columns = (*keys, *(measure.name for measure in grouping.measures))
    table = [(*key, *(measure.take(rows) for measure in grouping.measures)) for key, rows in groups.items()]
    places = [columns.index(name.removesuffix(" DESC")) for name in grouping.order.split(", ")]
    table.sort(key=lambda row: (*(-_figure(row[place]) for place in places), *map(str, row[: len(keys)])))
    return (Section(title, _answer(columns, tuple(table[: scope.limit]), scope)),)


def _rows(records: Iterable[RequestRecord], scope: Scope, table: str, needs: tuple[str, ...]) -> list[Row]:
    first, last = timestamp(scope.since), timestamp(scope.until)
    kept: list[Row] = []
    for record in records:
        made = request_rows(msgspec.json.encode(record), node="", source="", offset=0)
        for row in made[table] if made is not None else ():
            if not first <= str(row["started_at"]) < last or any(row.get(name, "") != value for name, value in scope.filters.items()):
                continue
            kept.append({name: row[name] for name in needs if name in row})
            if len(kept) > MOST_ROWS:
                raise StoreError(
                    f"There are more than {MOST_ROWS:,} records in that time. Ask about a shorter one (--since), or install the extra that "
                    "keeps them in tables: pip install 'tidegate[analytics]'."
                )
    return kept


def _answer(columns: tuple[str, ...], rows: tuple[tuple[Value, ...], ...], scope: Scope) -> QueryAnswer:
    types = tuple("Float64" if any(isinstance(row[n], int | float) for row in rows) else "String" for n in range(len(columns)))
    return QueryAnswer(columns, types, rows[: scope.max_rows], truncated=len(rows) > scope.max_rows)


def _key(value: Value) -> Value:
    return value if value is not None else ""


def _figure(value: Value) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
