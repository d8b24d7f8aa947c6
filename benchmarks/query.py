"""How long questions about ten million records take: `python -m benchmarks.query [--directory FOLDER] [--rows 10000000] [--runs 3]`.

Fills the folder with a day of generated records unless it was filled before; since noon one replica is slow for one feature. Then every
named question is asked about all of the day (`why-p99` about half of it and the half before), and one in SQL. Told are the wall time and
the processor time of the fastest of `runs`. chDB answers within this process, so both are whole: reading, grouping, and what Python does
with the answer. ClickHouse may remember which parts of a table a condition holds for; that is switched off.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

from benchmarks.records import Traffic, fill
from tidegate.adapters.analytics.chdb_store import ChdbStore
from tidegate.adapters.wall_clock import wall_clock
from tidegate.analytics.asking import AnalyticsStore, QueryAnswer, QueryRequest
from tidegate.analytics.questions import BY_NAME, asked
from tidegate.analytics.rows import instant
from tidegate.analytics.safe_sql import checked
from tidegate.analytics.scope import Plan, Scope, Section
from tidegate.cli.query import answered

DAY_S = 86_400.0
SQL = "SELECT model, tier, quantile(0.99)(ttft_s) FROM requests WHERE outcome = 'ok' GROUP BY model, tier"


class StoreAsker:
    """Asks a store in this process."""

    def __init__(self, store: AnalyticsStore) -> None:
        self._store = store

    async def ask(self, request: QueryRequest) -> QueryAnswer:
        return self._store.query(request)


def sql_plan(sql: str, scope: Scope) -> Plan:
    return (Section("answer", (yield scope.request(checked(sql)))),)


def timed(asker: StoreAsker, what: str, scope: Scope) -> tuple[float, float, str]:
    """Give wall and processor seconds of one question, and the sentence of its answer."""
    wall, processor = time.perf_counter(), time.process_time()
    plan = asked(what, scope) if what in BY_NAME else sql_plan(what, scope)
    sections = asyncio.run(answered(plan, asker))
    return time.perf_counter() - wall, time.process_time() - processor, sections[0].sentence


def main() -> None:
    parser = argparse.ArgumentParser(description="Times the questions that have names.")
    parser.add_argument("--directory", type=Path, help="the folder of the tables, kept; without it, one that is deleted")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = ChdbStore(arguments.directory or Path(folder), keep_days=3650)
        store.create_tables()
        store.run("SET use_query_condition_cache = 0")
        newest = "SELECT toString(max(started_at)), any(request_id), count() FROM requests"
        [(latest, request_id, rows)] = store.query(QueryRequest(newest)).rows
        if not rows:
            now = wall_clock()
            fill(store, Traffic(rows=arguments.rows, until=now, span_s=DAY_S, slow_since=now - DAY_S / 2))
            [(latest, request_id, rows)] = store.query(QueryRequest(newest)).rows
        until = instant(str(latest)) + 1.0
        print(f"{rows:,} records\n\n| question | wall s | processor s | |\n|---|---|---|---|")
        for what in (*BY_NAME, SQL):
            span_s = DAY_S / 2 if what == "why-p99" else DAY_S + 2.0
            scope = Scope(since=until - span_s, until=until, request_id=str(request_id), deadline_s=60.0)
            wall, processor, sentence = min(timed(StoreAsker(store), what, scope) for _ in range(arguments.runs))
            print(f"| {what if what in BY_NAME else 'SQL'} | {wall:.2f} | {processor:.2f} | {sentence} |", flush=True)
        store.close()


if __name__ == "__main__":
    main()
