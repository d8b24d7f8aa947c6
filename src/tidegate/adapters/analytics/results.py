"""What both stores say in the same words: rows as lines of JSON, answers out of ClickHouse's `JSONCompact`, limits as its settings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from tidegate.analytics.asking import QueryAnswer, QueryRequest, Value
from tidegate.analytics.schema import TABLES

ANSWER_FORMAT: Final = "JSONCompact"
ROW_FORMAT: Final = "JSONEachRow"
MAX_QUERY_MEMORY_BYTES: Final = 1_073_741_824
"""Of one question: enough to group 10 million records by anything sensible."""
MAX_OWN_ROWS: Final = 10_000_000
"""Of an answer to ourselves: more than a record file has lines."""
COLUMNS_SQL: Final = "SELECT table, name FROM system.columns WHERE database = {name:String}"
TABLES_SQL: Final = "SELECT name, create_table_query FROM system.tables WHERE database = {name:String}"
MAX_RESULT_BYTES: Final = 12_582_912
"""Of one answer, so that it goes through a frame."""

_NOISE: Final = re.compile(
    r"^.*?Code: \d+\. (?:DB::Exception: )?(?:default: )?|\s*\(version [^)]*\)|\s*\(for url [^)]*\)|: While executing [A-Za-z]+"
)
_encode_lines = msgspec.json.Encoder().encode_lines


class _Meta(msgspec.Struct, frozen=True):
    name: str
    type: str


class _Statistics(msgspec.Struct, frozen=True):
    elapsed: float = 0.0
    rows_read: int = 0


class _Answer(msgspec.Struct, frozen=True):
    meta: list[_Meta] = []
    data: list[tuple[Value, ...]] = []
    statistics: _Statistics = _Statistics()


_decode = msgspec.json.Decoder(_Answer, strict=False).decode


def offsets_sql(table: str) -> str:
    """Give the question for the offsets of a source's rows, from one on; `source` and `least` are its parameters."""
    return f"SELECT DISTINCT offset FROM {table} WHERE source = {{source:String}} AND offset >= {{least:UInt64}}"  # noqa: S608  our own names


def plain(sql: str) -> str:
    """Give a statement without what ends it, so that settings can follow."""
    return sql.rstrip().rstrip(";")


def row_lines(rows: Sequence[Mapping[str, Value]]) -> bytes:
    """Write rows for an insert with `FORMAT JSONEachRow`."""
    return _encode_lines(rows)


def query_settings(request: QueryRequest) -> dict[str, str | int | float]:
    """Give the settings that hold a question within its bounds: one more row than wanted tells that there were more."""
    return {
        "max_execution_time": request.deadline_s,
        "max_memory_usage": MAX_QUERY_MEMORY_BYTES,
        "limit": request.max_rows + 1,
        "output_format_json_quote_64bit_integers": 0,
        "output_format_json_quote_denormals": 0,
    }


def answer_of(content: bytes, request: QueryRequest) -> QueryAnswer:
    """Read an answer in `JSONCompact`."""
    if not content.strip():
        return QueryAnswer()
    try:
        read = _decode(content)
    except msgspec.MsgspecError as error:
        return QueryAnswer(error=f"The answer has cells that cannot be shown ({error}). Convert them with toString().")
    rows = tuple(read.data[: request.max_rows])
    answer = QueryAnswer(
        columns=tuple(each.name for each in read.meta),
        types=tuple(each.type for each in read.meta),
        rows=rows,
        truncated=len(read.data) > request.max_rows,
        elapsed_s=read.statistics.elapsed,
        rows_read=read.statistics.rows_read,
    )
    if len(content) > MAX_RESULT_BYTES:
        return msgspec.structs.replace(answer, rows=(), truncated=True, error="The answer is too large. Ask for fewer rows or columns.")
    return answer


def reason(text: str) -> str:
    """Give what ClickHouse says of an error, in one line and without its own names for things."""
    return _NOISE.sub("", " ".join(text.split()))[:500]


def updates(present: Sequence[tuple[str, str]], created: Mapping[str, str], *, keep_days: int) -> list[str]:
    """Give the statements that bring older tables up to date: `present` are their columns, `created` how each was made."""
    statements = []
    for table in TABLES:
        columns = {column for name, column in present if name == table.name}
        if columns and (addition := table.add_columns(columns)):
            statements.append(addition)
        if columns and f"toIntervalDay({keep_days + 1})" not in created.get(table.name, ""):
            statements.append(f"ALTER TABLE {table.name} MODIFY {table.ttl(keep_days=keep_days)} SETTINGS materialize_ttl_after_modify = 0")
    return statements
