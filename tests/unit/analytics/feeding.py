"""Records as a worker writes them, and stores to put them into."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tidegate.adapters.analytics.feed import Feed
from tidegate.adapters.analytics.positions import PositionFile
from tidegate.analytics.asking import AnalyticsStore, QueryAnswer, QueryRequest, Value
from tidegate.errors import StoreError
from tidegate.node.recorder import to_rows

NOW = 1_793_780_000.0
"""4 November 2026."""


def record(number: int, *, started_at: float = NOW, **fields: Any) -> bytes:
    """Write the line of a request with one attempt."""
    attempts = [{"attempt": 1, "replica": "there/0", "result": "ok", "duration_s": 0.5}]
    required = {
        "request_id": f"r{number}",
        "started_at": started_at,
        "operation": "chat",
        "outcome": "ok",
        "status": 200,
        "duration_s": 0.6,
    }
    return json.dumps(required | {"attempts": attempts} | fields).encode() + b"\n"


class Killed(BaseException):
    """What a `kill -9` is to the code: it goes no further."""


class RowsInMemory:
    """An `AnalyticsStore` that keeps rows in dictionaries and fails when told to: `before` or `after` it kept the rows, or `late`.

    Its caller may be killed there, too; `forgets` is a failure after it noted the token.

    Like a server, it passes over rows that come again with a token it knows.
    """

    def __init__(self) -> None:
        self.rows: dict[str, list[Mapping[str, Value]]] = {"requests": [], "attempts": [], "samples": [], "bodies": []}
        self.faults: list[str] = []
        """Of the next inserts, one each; an empty one is none."""
        self.tokens: set[str] = set()
        self.late: list[tuple[str, Sequence[Mapping[str, Value]], str]] = []
        """Inserts that were given up on, and will be kept all the same."""

    def create_tables(self) -> None:
        return None

    def insert(self, table: str, rows: Sequence[Mapping[str, Value]], *, token: str = "") -> None:
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "before":
            raise StoreError("The store failed.")
        if fault == "killed_before":
            raise Killed
        if fault == "late":
            self.late.append((table, tuple(rows), token))
            raise StoreError("The store did not answer.")
        if fault == "forgets":
            self.tokens.add(token)
        self._keep(table, rows, token)
        if fault == "killed_after":
            raise Killed
        if fault in {"after", "forgets"}:
            raise StoreError("The store failed.")

    def come_true(self) -> None:
        """Let what was given up on arrive now."""
        for table, rows, token in self.late:
            self._keep(table, rows, token)
        self.late = []

    def offsets(self, table: str, source: str, *, at_least: int) -> set[int]:
        found = [row["offset"] for row in self.rows[table] if row["source"] == source]
        return {offset for offset in found if isinstance(offset, int) and offset >= at_least}

    def query(self, request: QueryRequest) -> QueryAnswer:
        return QueryAnswer(error=request.sql)

    def close(self) -> None:
        return None

    def _keep(self, table: str, rows: Sequence[Mapping[str, Value]], token: str) -> None:
        if token and token in self.tokens:
            return
        if token:
            self.tokens.add(token)
        self.rows[table] += rows

    def ids(self, table: str = "requests") -> list[str]:
        return [str(row["request_id"]) for row in self.rows[table]]


def feed_of(directory: Path, store: AnalyticsStore, *, keep_days: int = 30, batch_lines: int = 10_000) -> Feed:
    """Make a feed of `records/` into a store, with its positions beside it."""
    (directory / "records").mkdir(exist_ok=True)
    (directory / "state").mkdir(exist_ok=True)
    return Feed(
        directory / "records",
        PositionFile(directory / "state"),
        lambda: store,
        to_rows=to_rows("here"),
        keep_days=keep_days,
        batch_lines=batch_lines,
    )


def write(directory: Path, *lines: bytes, name: str = "requests-0.jsonl") -> None:
    (directory / "records").mkdir(exist_ok=True)
    with (directory / "records" / name).open("ab") as file:
        file.write(b"".join(lines))


def settle(feed: Feed, *, now: float = NOW, most: int = 100) -> None:
    """Take steps until one neither fails nor has more to do."""
    for _ in range(most):
        pause_s = feed.step(now=now)
        if pause_s and not feed.statistics().trouble:
            return
    raise AssertionError(f"not settled: {feed!r}")
