"""Questions reach whoever has the tables open, and every failure is an answer in words."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
from tests.unit.analytics.feeding import RowsInMemory

from tidegate.adapters.analytics import desk as desks
from tidegate.adapters.analytics.client import SOCKET_FILE, NearestAsker, RecorderAsker, open_asker
from tidegate.adapters.analytics.desk import QUERY, STATUS, QueryDesk
from tidegate.adapters.analytics.feed import FeedStatistics
from tidegate.adapters.analytics.opening import StoreSettings, store_settings
from tidegate.adapters.counting.process import bind
from tidegate.adapters.frame_server import FrameServer
from tidegate.analytics.asking import AnalyticsStore, QueryAnswer, QueryRequest
from tidegate.config.schema import Configuration
from tidegate.config.schema_analytics import AnalyticsSection
from tidegate.domain.units import Secret
from tidegate.errors import StoreError
from tidegate.node.recorder_settings import SETTINGS_VARIABLE, RecorderSettings, keeps_tables, recorder_environment

SELECT = QueryRequest("SELECT 1")


def settings(directory: Path) -> StoreSettings:
    return StoreSettings(str(directory), None, 30, 2**30)


def with_desk(path: Path, open_store: Callable[[], AnalyticsStore], ask: Callable[[], Awaitable[object]]) -> object:
    """Serve questions at a path while `ask` runs."""

    async def run() -> object:
        desk = QueryDesk(open_store)

        async def status(_: bytes) -> bytes:
            return msgspec.msgpack.encode(FeedStatistics(rows=7))

        server = FrameServer(bind(str(path)), {QUERY: desk.answer, STATUS: status})
        try:
            return await ask()
        finally:
            server.close()
            desk.close()
            await asyncio.sleep(0)

    return asyncio.run(run())


def test_the_process_that_runs_is_asked(tmp_path: Path) -> None:
    """Its socket is where it wrote down that it is; its feed tells how it is."""
    (tmp_path / SOCKET_FILE).write_text(str(tmp_path / "r.sock"))
    asker = NearestAsker(settings(tmp_path))
    assert QueryAnswer(error="SELECT 1") == with_desk(tmp_path / "r.sock", RowsInMemory, lambda: asker.ask(SELECT))
    assert 7 == with_desk(tmp_path / "r.sock", RowsInMemory, RecorderAsker(tmp_path / "r.sock").status).rows  # type: ignore[attr-defined]


def test_where_none_runs_the_tables_are_opened(tmp_path: Path) -> None:
    """Also when one was killed and left its path behind; tables that nobody made yet are empty."""
    (tmp_path / SOCKET_FILE).write_text(str(tmp_path / "nobody.sock"))
    asker = NearestAsker(settings(tmp_path))
    answer = asyncio.run(asker.ask(QueryRequest("SELECT count() FROM requests")))
    assert ((0,),) == answer.rows
    assert asker._store is not None
    asker._store.close()


def test_a_store_that_cannot_be_opened_is_an_answer(tmp_path: Path) -> None:
    """The desk tries again at the next question."""
    tries: list[int] = []

    def open_store() -> AnalyticsStore:
        tries.append(1)
        if len(tries) == 1:
            raise StoreError("No such luck.")
        return RowsInMemory()

    asker = RecorderAsker(tmp_path / "r.sock")

    async def twice() -> list[str]:
        return [(await asker.ask(SELECT)).error for _ in range(2)]

    assert ["No such luck.", "SELECT 1"] == with_desk(tmp_path / "r.sock", open_store, twice)


def test_a_crowd_is_told_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """More questions than may wait are refused; what is none is told."""
    monkeypatch.setattr(desks, "MAX_WAITING", 1)

    async def ask() -> list[str]:
        desk = QueryDesk(RowsInMemory)
        payload = msgspec.msgpack.encode(SELECT)
        answers = await asyncio.gather(desk.answer(payload), desk.answer(payload), desk.answer(b"\xc1"))
        errors = [msgspec.msgpack.decode(each, type=QueryAnswer).error for each in (*answers, await desk.answer(b"\xc1"))]
        desk.close()
        return errors

    first, second, _, unreadable = asyncio.run(ask())
    assert "SELECT 1" == first
    assert "Ask again" in second
    assert "cannot be read" in unreadable


def test_one_that_hangs_or_ends_is_told(tmp_path: Path) -> None:
    """Nobody answers within the deadline, or the connection ends."""

    async def ask(serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> str:
        served = asyncio.Event()

        async def serve_to_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await serve(reader, writer)
            writer.close()
            await writer.wait_closed()
            served.set()

        server = await asyncio.start_unix_server(serve_to_the_end, tmp_path / "r.sock")
        try:
            with pytest.raises(StoreError) as told:
                await RecorderAsker(tmp_path / "r.sock").status()
            await served.wait()
            return told.value.message
        finally:
            server.close()

    async def end(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read(65_536)

    async def hang(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65_536)
        writer.write(b"\xff" * 100)

    assert "ended before" in asyncio.run(ask(end))
    assert "within 1 s" in asyncio.run(ask(hang))
    assert "cannot be asked" in asyncio.run(ask(babble))


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        (AnalyticsSection(), True),
        (AnalyticsSection(enabled=False), False),
        (AnalyticsSection(enabled=True), True),
        (AnalyticsSection(clickhouse=Secret("http://127.0.0.1:1/t")), True),
    ],
)
def test_tables_are_kept_where_they_can_be(section: AnalyticsSection, expected: bool) -> None:
    """chDB is installed here; the configuration has the last word."""
    assert expected is keeps_tables(Configuration(analytics=section))


def test_the_process_is_told_in_its_environment() -> None:
    """An address with a password does not stand in a command line; paths do not depend on the working directory."""
    configuration = Configuration(state_directory="state", analytics=AnalyticsSection(clickhouse=Secret("http://u:canary@h:1/t")))
    told = msgspec.json.decode(recorder_environment(configuration)[SETTINGS_VARIABLE], type=RecorderSettings)
    assert told.store is not None
    assert (os.path.abspath("state/records"), "http://u:canary@h:1/t") == (told.records, told.store.clickhouse)  # noqa: PTH100
    assert store_settings(configuration, Path("state")) == told.store
    assert "canary" not in repr(open_asker(configuration, Path("state")))
