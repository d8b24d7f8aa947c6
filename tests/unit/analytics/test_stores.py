"""Both stores keep the same rows and give the same answers, and say in the same words what is wrong."""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.analytics.feeding import NOW, feed_of, record, settle, write

from tidegate.adapters.analytics.chdb_store import ChdbStore
from tidegate.adapters.analytics.clickhouse_store import ClickHouseStore
from tidegate.adapters.analytics.feed import FeedState
from tidegate.adapters.analytics.opening import StoreSettings, open_store
from tidegate.adapters.analytics.positions import PositionFile
from tidegate.analytics.asking import AnalyticsStore, QueryRequest
from tidegate.analytics.schema import TABLES
from tidegate.domain.units import Secret
from tidegate.errors import StoreError
from tidegate.testing.clickhouse_server import ClickHouseServer

KEEP_DAYS = 3650
"""The rows of these tests are of a fixed day."""
Open = Callable[[], AnalyticsStore]


@pytest.fixture(scope="module")
def server() -> Iterator[ClickHouseServer]:
    with ClickHouseServer(user="tidegate", password="canary") as running:
        yield running


@pytest.fixture(params=["chdb", "clickhouse"])
def opened(request: pytest.FixtureRequest, tmp_path: Path, server: ClickHouseServer) -> Iterator[Open]:
    """Opens the store; what was opened is closed at the end, since one process has one directory of chDB's."""
    stores: list[AnalyticsStore] = []

    def open_one(*, is_read_only: bool = False) -> AnalyticsStore:
        url = server.url if request.param == "clickhouse" else None
        stores.append(open_store(StoreSettings(str(tmp_path / "tables"), url, KEEP_DAYS, 2**30), is_read_only=is_read_only))
        return stores[-1]

    yield open_one
    for store in stores:
        store.close()
    server.forget()


def answer(store: AnalyticsStore, sql: str, **parameters: str | float) -> list[tuple[object, ...]]:
    given = store.query(QueryRequest(sql, parameters))
    assert "" == given.error
    return list(given.rows)


def test_what_a_record_says_stands_in_its_row(tmp_path: Path, opened: Open) -> None:
    """Numbers, times, words, maps, and nothing where nothing is known; fields of a later version are passed over."""
    fields: dict[str, Any] = {
        "ttft_s": 0.2,
        "upstream_s": 0.5,
        "stream": True,
        "tenant": "acme",
        "usage": {"prompt_tokens": 10, "completion_tokens": 5},
        "business_context": "feature=code; user_tier=vip",
        "cost_micro": 2**40,
        "of_a_later_version": [1],
        "status": 499,
    }
    write(tmp_path, record(0, **fields), b'{"started_at":%f}\n' % NOW)
    store = opened()
    settle(feed_of(tmp_path, store, keep_days=KEEP_DAYS))
    asked = "started_at, tenant, context['user_tier'], ttft_s, round(gateway_s, 6), round(tpot_s, 6), stream, cost_micro, status, replica"
    expected = ("2026-11-04 08:13:20.000", "acme", "vip", 0.2, 0.1, 0.1, True, 2**40, 499, "there/0")
    assert [expected] == answer(store, f"SELECT {asked} FROM requests WHERE request_id = {{id:String}}", id="r0")  # noqa: S608
    assert [("", None, None, 0)] == answer(store, "SELECT operation, ttft_s, queue_s, attempts FROM requests WHERE request_id = ''")
    assert [("r0", "there", 10, 5)] == answer(store, "SELECT request_id, upstream, prompt_tokens, completion_tokens FROM attempts")


def test_offsets_tell_what_is_there(tmp_path: Path, opened: Open) -> None:
    """Of one source, from one offset on."""
    store = opened()
    write(tmp_path, record(0), record(1), record(2))
    settle(feed_of(tmp_path, store, keep_days=KEEP_DAYS))
    [(source,)] = answer(store, "SELECT DISTINCT source FROM requests")
    size = len(record(0))
    assert {size, 2 * size} == store.offsets("attempts", str(source), at_least=size)
    assert set() == store.offsets("requests", "another", at_least=0)


def test_answers_are_bounded(opened: Open) -> None:
    """More rows are left out and that is said; time runs out; statements that change something are refused; faults are told in a line."""
    store = opened()
    store.create_tables()
    reader = opened(is_read_only=True)  # type: ignore[call-arg]
    some = reader.query(QueryRequest("SELECT number FROM numbers(10);", max_rows=3))
    assert ([(0,), (1,), (2,)], True, ("number",), ("UInt64",)) == (list(some.rows), some.truncated, some.columns, some.types)
    assert not reader.query(QueryRequest("SELECT number FROM numbers(3)", max_rows=3)).truncated
    endless = QueryRequest("SELECT count() FROM numbers(1000000000000) WHERE sipHash64(number) = 1", deadline_s=0.2)
    assert "Timeout exceeded" in reader.query(endless).error
    assert "FORMAT" not in reader.query(QueryRequest("SELECT nonsense FROM requests")).error
    assert "nonsense" in reader.query(QueryRequest("SELECT nonsense FROM requests")).error
    assert "canary" not in reader.query(QueryRequest("SELECT nonsense FROM requests")).error
    assert "memory limit" in reader.query(QueryRequest("SELECT length(groupArray(number)) FROM numbers(1000000000)")).error.lower()
    assert reader.query(QueryRequest("DROP TABLE requests")).error
    assert 0 == answer(reader, "SELECT count() FROM requests")[0][0]


def test_older_tables_are_added_to(tmp_path: Path, opened: Open) -> None:
    """A column that came later is there after the next start, and rows are kept as long as is said now."""
    store = opened()
    store.create_tables()
    write(tmp_path, record(0))
    settle(feed_of(tmp_path, store, keep_days=KEEP_DAYS))
    store.run("ALTER TABLE requests DROP COLUMN cache, DROP COLUMN rule")  # type: ignore[attr-defined]
    store._keep_days = 3000  # type: ignore[attr-defined]
    store.create_tables()
    assert [("r0", "", "")] == answer(store, "SELECT request_id, cache, rule FROM requests")
    [(created,)] = answer(store, "SELECT create_table_query FROM system.tables WHERE database = currentDatabase() AND name = 'requests'")
    assert "toIntervalDay(3001)" in str(created)


def test_every_declared_column_is_in_the_tables(opened: Open) -> None:
    """Names and types are those of the schema, in its order."""
    store = opened()
    store.create_tables()
    for table in TABLES:
        columns = answer(
            store,
            "SELECT name, type FROM system.columns WHERE database = currentDatabase() AND table = {of:String} ORDER BY position",
            of=table.name,
        )
        assert [(column.name, column.type) for column in table.columns] == columns


@pytest.mark.parametrize("how", ["refuse", "fail_after", "cut_after", "slow", "hang_after"])
def test_a_server_that_fails_has_every_record_once(tmp_path: Path, server: ClickHouseServer, how: str) -> None:
    """It refuses, or fails, hangs up, dallies or is silent after it kept the rows: nothing is missing, nothing is there twice."""
    store = ClickHouseStore(Secret(server.url), keep_days=KEEP_DAYS, deadline_s=1.0)
    feed = feed_of(tmp_path, store, keep_days=KEEP_DAYS, batch_lines=2)
    write(tmp_path, *(record(number) for number in range(5)))
    server.misbehave(how, times=3)  # type: ignore[arg-type]
    settle(feed)
    server.misbehave("slow", times=0)
    feed.close()
    for table in ("requests", "attempts"):
        assert [[5, 5]] == server.ask(f"SELECT count(), countDistinct(request_id) FROM {table}")  # noqa: S608
    server.forget()


def test_a_server_that_freezes_and_dies_has_every_record_once(tmp_path: Path) -> None:
    """What lay in its sockets when it froze is kept once, although it was sent again; after a crash the rest follows."""
    with ClickHouseServer() as server:
        store = ClickHouseStore(Secret(server.url), keep_days=KEEP_DAYS, deadline_s=1.0)
        feed = feed_of(tmp_path, store, keep_days=KEEP_DAYS)
        write(tmp_path, record(0))
        settle(feed)
        write(tmp_path, record(1))
        server.freeze()
        assert feed.step(now=NOW) > 0
        assert FeedState.WAITING is feed.statistics().state
        server.thaw()
        settle(feed)
        write(tmp_path, record(2))
        server.kill()
        assert feed.step(now=NOW) > 0
        server.start()
        settle(feed)
        feed.close()
        assert [[3, 3]] == server.ask("SELECT count(), countDistinct(request_id) FROM requests")


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/tidegate", "http://tidegate:wrong-canary@{address}/tidegate"])
def test_a_server_that_is_not_there_is_told_without_its_password(server: ClickHouseServer, url: str) -> None:
    """Nobody listens, or the password is wrong."""
    with pytest.raises(StoreError) as told:
        ClickHouseStore(Secret(url.format(address=f"127.0.0.1:{server.port}")), keep_days=1)
    assert "canary" not in told.value.message


def test_a_directory_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    """It is a file, or another process has it."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        ChdbStore(tmp_path / "file", keep_days=1)
    with ClickHouseServer(tmp_path / "held" / "store"), pytest.raises(StoreError, match="Another process has the records"):
        ChdbStore(tmp_path / "held", keep_days=1)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of four megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)], check=False).returncode:
        pytest.skip("only root can mount a small disk")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_costs_no_record(tmp_path: Path, small_disk: Path) -> None:
    """Tables and positions are on a disk that fills up: it is told, records wait, and with room again everything is there once."""
    rng = random.Random(7)
    write(tmp_path, *(record(number, cause=rng.randbytes(400).hex()) for number in range(8000)))
    store = ChdbStore(small_disk / "tables", keep_days=KEEP_DAYS, min_free_bytes=300_000)
    feed = feed_of(tmp_path, store, keep_days=KEEP_DAYS, batch_lines=500)
    feed._positions = PositionFile(small_disk)
    for _ in range(14):
        feed.step(now=NOW)
    assert "space" in feed.statistics().trouble.lower()
    assert 0 < feed.statistics().backlog_bytes
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    settle(feed)
    for table in ("requests", "attempts"):
        assert [(8000, 8000)] == answer(store, f"SELECT count(), countDistinct(request_id) FROM {table}")  # noqa: S608
    assert [(8000 * 800,)] == answer(store, "SELECT sum(length(cause)) FROM requests")
    feed.close()


def _write_with_bounded_files(directory: Path) -> None:
    """In a process of its own: put in while no file may be longer than a page, then go on without that."""
    store = ChdbStore(directory / "tables", keep_days=KEEP_DAYS)
    store.create_tables()
    feed = feed_of(directory, store, keep_days=KEEP_DAYS, batch_lines=500)
    unlimited = resource.RLIM_INFINITY
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, unlimited))
    for _ in range(3):
        feed.step(now=NOW)
    assert "whole" in feed.statistics().trouble
    resource.setrlimit(resource.RLIMIT_FSIZE, (unlimited, unlimited))
    settle(feed)
    assert [(2000, 2000, 2000 * 80)] == answer(store, "SELECT count(), countDistinct(request_id), sum(length(cause)) FROM requests")
    assert [(2000, 2000)] == answer(store, "SELECT count(), countDistinct(request_id) FROM attempts")
    feed.close()


def test_what_the_disk_did_not_take_whole_is_put_in_again(tmp_path: Path) -> None:
    """A write that fails in the middle, which the engine passes over, is found, and costs no record."""
    rng = random.Random(7)
    write(tmp_path, *(record(number, cause=rng.randbytes(40).hex()) for number in range(2000)))
    process = multiprocessing.get_context("spawn").Process(target=_write_with_bounded_files, args=(tmp_path,))
    process.start()
    process.join(50.0)
    assert 0 == process.exitcode


@pytest.mark.parametrize(("missing", "url"), [("chdb.state.sqlitelike", None), ("clickhouse_connect", "http://127.0.0.1:9")])
def test_a_missing_extra_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str, url: str | None) -> None:
    """With the command that installs it."""
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(StoreError, match=r"pip install 'tidegate\[analytics\]'"):
        open_store(StoreSettings(str(tmp_path), url, 30, 2**30))
