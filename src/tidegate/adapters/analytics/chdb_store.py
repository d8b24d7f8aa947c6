"""Rows in chDB, ClickHouse's engine within this process: a directory that one process may open.

The engine's own appetite is bounded by a configuration file beside the tables: memory of all that runs, caches, and threads that merge.
A connection has one thread; there may be several on one directory, and a question does not hold up an insert.
"""

from __future__ import annotations

import fcntl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from tidegate.adapters.analytics.results import (
    ANSWER_FORMAT,
    COLUMNS_SQL,
    ROW_FORMAT,
    TABLES_SQL,
    answer_of,
    offsets_sql,
    plain,
    query_settings,
    reason,
    row_lines,
    updates,
)
from tidegate.analytics.asking import Parameter, QueryAnswer, QueryRequest, Value
from tidegate.analytics.schema import BY_NAME, DATABASE, TABLES
from tidegate.errors import StoreError

MEMORY_BYTES: Final = 2_147_483_648
MIN_FREE_BYTES: Final = 67_108_864
"""On the disk, or nothing is put in: records are written there too, and their files are what must not fail."""
CONFIGURATION: Final = """<clickhouse>
  <max_server_memory_usage>{memory_bytes}</max_server_memory_usage>
  <mark_cache_size>67108864</mark_cache_size>
  <index_mark_cache_size>8388608</index_mark_cache_size>
  <primary_index_cache_size>67108864</primary_index_cache_size>
  <uncompressed_cache_size>0</uncompressed_cache_size>
  <background_pool_size>2</background_pool_size>
  <background_schedule_pool_size>4</background_schedule_pool_size>
  <background_fetches_pool_size>1</background_fetches_pool_size>
  <background_common_pool_size>2</background_common_pool_size>
</clickhouse>
"""


PARTS_SQL: Final = "SELECT name, '' FROM system.parts WHERE database = {name:String} AND table = {table:String} AND active AND level = 0"


class _Checked(msgspec.Struct, frozen=True):
    data: list[tuple[str, int, str]]


class ChdbStore:
    """An `AnalyticsStore` in a directory; `create_tables` comes first. `StoreError` when it cannot be opened, with what to do."""

    def __init__(
        self,
        directory: Path,
        *,
        keep_days: int,
        memory_bytes: int = MEMORY_BYTES,
        min_free_bytes: int = MIN_FREE_BYTES,
        is_read_only: bool = False,
    ) -> None:
        """`memory_bytes` is of the whole engine, and what the first connection of this process says.

        One that is read-only may still make the tables, so that there is something to ask; from then on it only reads.
        """
        self._directory = directory
        self._keep_days = keep_days
        self._min_free_bytes = min_free_bytes
        self._is_read_only = is_read_only
        self._connection: Any = _connect(directory, memory_bytes)
        self._verified: set[str] = set()
        """Parts that are whole on disk, of those that were not merged yet."""

    def __repr__(self) -> str:
        return f"ChdbStore({str(self._directory)!r})"

    def create_tables(self) -> None:
        self.run(f"CREATE DATABASE IF NOT EXISTS {DATABASE}")
        self.run(f"USE {DATABASE}")
        for table in TABLES:
            self.run(table.create(keep_days=self._keep_days))
        for statement in updates(self._pairs(COLUMNS_SQL), dict(self._pairs(TABLES_SQL)), keep_days=self._keep_days):
            self.run(statement)
        if self._is_read_only:
            self.run("SET readonly = 2")  # settings may change: every question has its own limits

    def insert(self, table: str, rows: Sequence[Mapping[str, Value]], *, token: str = "") -> None:  # noqa: ARG002  nothing of it comes late
        columns = ", ".join(BY_NAME[table].names)
        settings = f"insert_deduplicate = 0, max_threads = 1, min_free_disk_bytes_to_perform_insert = {self._min_free_bytes}"
        self.run(f"INSERT INTO {table} ({columns}) SETTINGS {settings} FORMAT {ROW_FORMAT}\n{row_lines(rows).decode()}")
        self._verify(table)

    def offsets(self, table: str, source: str, *, at_least: int) -> set[int]:
        return {int(row) for row in self.run(offsets_sql(table), "TSV", {"source": source, "least": at_least}).split()}

    def query(self, request: QueryRequest) -> QueryAnswer:
        try:
            for name, value in query_settings(request).items():
                self.run(f"SET {name} = {value}")
            content = self.run(plain(request.sql), ANSWER_FORMAT, request.parameters)
        except StoreError as error:
            return QueryAnswer(error=error.message)
        return answer_of(content, request)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _pairs(self, sql: str, **parameters: str) -> list[tuple[str, str]]:
        lines = self.run(sql, "TSV", {"name": DATABASE, **parameters}).decode().splitlines()
        return [(first, second) for first, _, second in (line.partition("\t") for line in lines)]

    def _verify(self, table: str) -> None:
        """See that what was put in is whole on disk: the engine does not notice every write that fails. What is not is dropped.

        `StoreError` then; the rows are to be put in again.
        """
        parts = {f"{table} {name}" for name, _ in self._pairs(PARTS_SQL, table=table)}
        for part in parts - self._verified:
            name = part.partition(" ")[2]
            try:
                told = self.run(f"CHECK TABLE {table} PART '{name}'", "JSONCompact")
            except StoreError:
                continue  # it was merged meanwhile, which reads all of it
            if any(not is_whole for _, is_whole, _ in msgspec.json.decode(told, type=_Checked).data):
                self.run(f"ALTER TABLE {table} DROP PART '{name}'")
                raise StoreError(f"The disk did not take rows of the table {table} whole. Check its space, quota and health.")
        self._verified = {part for part in self._verified if not part.startswith(f"{table} ")} | parts

    def run(self, sql: str, output: str = "TSV", parameters: Mapping[str, Parameter] | None = None) -> bytes:
        try:
            content: bytes = self._connection.query(sql, output, params=dict(parameters) if parameters else None).bytes()
        except RuntimeError as error:  # its own errors are of that kind, too
            raise StoreError(reason(str(error))) from error
        return content or b""


def _connect(directory: Path, memory_bytes: int) -> Any:
    try:
        from chdb.state.sqlitelike import Connection
    except ImportError as error:
        raise StoreError(
            "chDB is not installed. Install the extra with pip install 'tidegate[analytics]', or set analytics.clickhouse."
        ) from error
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        configuration = directory / "engine.xml"
        configuration.write_text(CONFIGURATION.format(memory_bytes=memory_bytes))
    except OSError as error:
        raise StoreError(f"The directory {directory} cannot be written ({error.strerror}). Check owner and free space.") from error
    try:
        return Connection(f"{(directory / 'store').absolute()}?config-file={configuration.absolute()}")
    except RuntimeError as error:
        if _is_held(directory / "store" / "status"):
            raise StoreError(
                f"Another process has the records in {directory} open. Ask it through the running gateway, or end it."
            ) from error
        raise StoreError(f"The records in {directory} cannot be opened: {reason(str(error))}") from error


def _is_held(status: Path) -> bool:
    """Tell whether some process has the tables open: the engine locks this file, and does not always say that it could not."""
    try:
        with status.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
