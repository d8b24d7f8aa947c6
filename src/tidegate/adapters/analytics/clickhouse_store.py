"""Rows in a ClickHouse server, over HTTP. The same tables, questions and answers as in chDB.

Each piece of rows is one insert with a token, so that one that was given up on and comes true later is kept once. There is no asynchronous
insert: pieces are whole batches already, and only an insert of its own is known by its token.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from tidegate.adapters.analytics.results import (
    ANSWER_FORMAT,
    COLUMNS_SQL,
    MAX_OWN_ROWS,
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
from tidegate.analytics.asking import QueryAnswer, QueryRequest, Value
from tidegate.analytics.schema import BY_NAME, DATABASE, TABLES
from tidegate.domain.units import Secret
from tidegate.errors import StoreError

DEADLINE_S: Final = 30.0
"""Of an insert, and of a question of ours. A server that takes longer is in trouble, and is better left alone for a while."""
CONNECT_S: Final = 5
_HTTP_PORT: Final = 8123
_HTTPS_PORT: Final = 8443


class ClickHouseStore:
    """An `AnalyticsStore` on a server. `url` is like `https://user:password@host:8443/database`."""

    def __init__(self, url: Secret, *, keep_days: int, deadline_s: float = DEADLINE_S) -> None:
        """`StoreError` when there is no such server, or it does not let us in. `deadline_s` is of an insert; a question has its own."""
        self._keep_days = keep_days
        self._deadline_s = deadline_s
        self._client: Any = _connect(url, deadline_s)
        self._database = urlsplit(url.reveal()).path.strip("/") or DATABASE

    def __repr__(self) -> str:
        return f"ClickHouseStore(database={self._database!r})"

    def create_tables(self) -> None:
        named = {"name": self._database}
        if not self._rows("SELECT name FROM system.databases WHERE name = {name:String}", named):
            self.run("CREATE DATABASE IF NOT EXISTS {name:Identifier}", named)
        self._client.database = self._database
        for table in TABLES:
            self.run(table.create(keep_days=self._keep_days))
        present = [(str(each[0]), str(each[1])) for each in self._rows(COLUMNS_SQL, named)]
        created = {str(each[0]): str(each[1]) for each in self._rows(TABLES_SQL, named)}
        for statement in updates(present, created, keep_days=self._keep_days):
            self.run(statement)

    def insert(self, table: str, rows: Sequence[Mapping[str, Value]], *, token: str = "") -> None:
        self._client.database = self._database
        settings: dict[str, str | int | float] = {"async_insert": 0, "max_execution_time": self._deadline_s}
        if token:
            settings["insert_deduplication_token"] = token
        with _told():
            self._client.raw_insert(table, BY_NAME[table].names, row_lines(rows), settings=settings, fmt=ROW_FORMAT)

    def offsets(self, table: str, source: str, *, at_least: int) -> set[int]:
        self._client.database = self._database
        return {int(str(row[0])) for row in self._rows(offsets_sql(table), {"source": source, "least": at_least})}

    def query(self, request: QueryRequest) -> QueryAnswer:
        self._client.database = self._database
        try:
            with _told():
                settings = query_settings(request) | {"readonly": 2}
                content = self._client.raw_query(plain(request.sql), parameters=request.parameters, settings=settings, fmt=ANSWER_FORMAT)
        except StoreError as error:
            return QueryAnswer(error=error.message)
        return answer_of(content, request)

    def close(self) -> None:
        self._client.close()

    def _rows(self, sql: str, parameters: Mapping[str, str | int]) -> Sequence[Sequence[Value]]:
        """Ask something of ours, that has as many rows as it has."""
        settings = {"output_format_json_quote_64bit_integers": 0}
        with _told():
            content = self._client.raw_query(sql, parameters=dict(parameters), settings=settings, fmt=ANSWER_FORMAT)
        return answer_of(content, QueryRequest(sql, max_rows=MAX_OWN_ROWS)).rows

    def run(self, sql: str, parameters: Mapping[str, str] | None = None) -> None:
        with _told():
            self._client.command(sql, parameters=parameters)


@contextmanager
def _told() -> Iterator[None]:
    """Say everything that a server or the way to it can do in our own words. Messages never hold the address: it has a password."""
    from clickhouse_connect.driver.exceptions import ClickHouseError
    from urllib3.exceptions import HTTPError

    try:
        yield
    except ClickHouseError as error:
        raise StoreError(reason(str(error))) from error
    except (HTTPError, OSError) as error:
        raise StoreError(f"ClickHouse did not answer ({type(error).__name__}).") from error


def _connect(url: Secret, deadline_s: float) -> Any:
    try:
        import clickhouse_connect
    except ImportError as error:
        raise StoreError("clickhouse-connect is not installed. Install the extra with pip install 'tidegate[analytics]'.") from error
    address = urlsplit(url.reveal())
    with _told():
        return clickhouse_connect.get_client(
            interface=address.scheme,
            host=address.hostname,
            port=address.port or (_HTTPS_PORT if address.scheme == "https" else _HTTP_PORT),
            username=unquote(address.username or ""),
            password=unquote(address.password or ""),
            connect_timeout=CONNECT_S,
            send_receive_timeout=deadline_s,
            query_limit=0,
            query_retries=0,
            compress=False,
            autogenerate_session_id=False,
            client_name="tidegate",
        )
