"""A worker's journal against a ledger process that does as it is told: slow, gone, back, refusing, or talking nonsense."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import msgspec
import pytest

from tidegate.adapters.books import journal as journal_module
from tidegate.adapters.books.journal import Journal
from tidegate.adapters.books.spill import EntrySpillFile
from tidegate.domain.books import Entry, OperationId, Settle
from tidegate.domain.units import TenantId

ENOUGH_S = 20.0


def settle(number: int) -> Settle:
    return Settle(OperationId(f"op-{number}"), 1, TenantId("acme"), 30, 1.0)


class Ledger:
    """Takes frames; answers them while `answers` is set."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.frames: list[list[Entry]] = []
        self.refused = 0
        self.nonsense: bytes | None = None
        self.answers = asyncio.Event()
        self.answers.set()
        self.writers: set[asyncio.StreamWriter] = set()
        self.server: asyncio.Server | None = None

    @property
    def operations(self) -> list[str]:
        return [entry.operation_id for frame in self.frames for entry in frame]

    async def start(self) -> None:
        Path(self.path).unlink(missing_ok=True)  # noqa: ASYNC240  a test's own folder
        self.server = await asyncio.start_unix_server(self._serve, self.path)

    async def stop(self) -> None:
        """Go without a word, as a killed process does."""
        if self.server is not None:
            self.server.close()
        for writer in self.writers:
            writer.transport.abort()
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.add(writer)
        try:
            while True:
                length = int.from_bytes(await reader.readexactly(4), "big")
                kind, number, payload = msgspec.msgpack.decode(await reader.readexactly(length), type=tuple[str, int, bytes])
                assert kind == "post"
                self.frames.append(msgspec.msgpack.decode(payload, type=list[Entry]))
                await self.answers.wait()
                body = msgspec.msgpack.encode((number, msgspec.msgpack.encode(self.refused)))
                writer.write(self.nonsense or len(body).to_bytes(4, "big") + body)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            self.writers.discard(writer)
            writer.close()


@asynccontextmanager
async def both(directory: Path, *, max_in_flight_bytes: int = 1_000_000) -> AsyncIterator[tuple[Ledger, Journal]]:
    ledger = Ledger(directory / "l.sock")
    await ledger.start()
    journal = Journal(ledger.path, spill=EntrySpillFile(directory / "j.spill"), rng=Random(1), max_in_flight_bytes=max_in_flight_bytes)
    journal.start()
    try:
        async with asyncio.timeout(ENOUGH_S):
            yield ledger, journal
    finally:
        ledger.answers.set()
        await journal.aclose(deadline_s=1.0)
        await ledger.stop()


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110  looks at what tells nobody of its changes
        await asyncio.sleep(0.001)


def test_what_is_posted_in_one_turn_leaves_in_one_frame(tmp_path: Path) -> None:
    """Once, in order, and it is forgotten when it is acknowledged."""

    async def run() -> None:
        async with both(tmp_path) as (ledger, journal):
            for number in range(3):
                journal.post(settle(number))
            await until(lambda: bool(ledger.frames))
            journal.post(settle(3))
            await until(lambda: len(ledger.frames) == 2 and not journal.statistics().in_flight_bytes)
            assert [[settle(0), settle(1), settle(2)], [settle(3)]] == ledger.frames
            assert (True, 4, 0, 0, 0) == (
                (told := journal.statistics()).connected,
                told.posted,
                told.spilled_bytes,
                told.refused,
                told.lost,
            )

    asyncio.run(run())


def test_a_burst_is_cut_into_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No frame is larger than the other side takes."""
    monkeypatch.setattr(journal_module, "FRAME_ENTRIES", 10)

    async def run() -> None:
        async with both(tmp_path) as (ledger, journal):
            for number in range(25):
                journal.post(settle(number))
            await until(lambda: len(ledger.operations) == 25)
            assert [10, 10, 5] == [len(frame) for frame in ledger.frames]

    asyncio.run(run())


def test_what_was_not_acknowledged_is_sent_again(tmp_path: Path) -> None:
    """By way of the file: the process took it and died before it could say so."""

    async def run() -> None:
        async with both(tmp_path) as (ledger, journal):
            ledger.answers.clear()
            journal.post(settle(1))
            await until(lambda: bool(ledger.frames))
            await ledger.stop()
            await until(lambda: journal.statistics().spilled_bytes > 0)
            assert 0 == journal.statistics().in_flight_bytes
            journal.post(settle(2))
            ledger.answers.set()
            ledger.frames.clear()
            await ledger.start()
            await until(lambda: len(ledger.operations) >= 2 and not (tmp_path / "j.spill").exists())
            assert ["op-1", "op-2"] == sorted(set(ledger.operations))
            assert 1 == journal.statistics().reconnects

    asyncio.run(run())


def test_a_process_that_goes_while_the_file_is_sent_gets_it_again(tmp_path: Path) -> None:
    """Nothing leaves the file before it is acknowledged."""
    spill = EntrySpillFile(tmp_path / "j.spill")
    spill.append([msgspec.msgpack.encode([settle(number)]) for number in range(5)])
    spill.close()

    async def run() -> None:
        async with both(tmp_path) as (ledger, journal):
            ledger.answers.clear()
            await until(lambda: bool(ledger.frames))
            await ledger.stop()
            await until(lambda: not journal.statistics().connected)
            assert (tmp_path / "j.spill").exists()
            ledger.answers.set()
            ledger.frames.clear()
            await ledger.start()
            await until(lambda: len(set(ledger.operations)) == 5 and not (tmp_path / "j.spill").exists())

    asyncio.run(run())


def test_a_process_that_falls_behind_gets_the_rest_from_the_file(tmp_path: Path) -> None:
    """Memory is bounded by what may be in flight; everything arrives in the end."""

    async def run() -> None:
        async with both(tmp_path, max_in_flight_bytes=1_000) as (ledger, journal):
            ledger.answers.clear()
            for number in range(200):
                journal.post(settle(number))
                await asyncio.sleep(0)
            await until(lambda: journal.statistics().spilled_bytes > 0)
            assert journal.statistics().in_flight_bytes < 2_000
            ledger.answers.set()
            await until(lambda: len(ledger.operations) >= 200 and not (tmp_path / "j.spill").exists())
            assert sorted({f"op-{number}" for number in range(200)}) == sorted(set(ledger.operations))

    asyncio.run(run())


def test_a_full_socket_is_written_on_when_it_has_room(tmp_path: Path) -> None:
    """More than the kernel's buffer takes at once, to a process that reads slowly."""

    async def run() -> None:
        async with both(tmp_path, max_in_flight_bytes=50_000_000) as (ledger, journal):
            for number in range(30_000):
                journal.post(settle(number))
            await until(lambda: len(ledger.operations) == 30_000)
            await until(lambda: not journal.statistics().in_flight_bytes)
            assert 0 == journal.statistics().spilled_bytes

    asyncio.run(run())


def test_without_the_process_everything_goes_to_the_file_and_waits_there(tmp_path: Path) -> None:
    """A worker that ends meanwhile leaves it to its successor."""

    async def alone() -> None:
        journal = Journal(str(tmp_path / "l.sock"), spill=EntrySpillFile(tmp_path / "j.spill"), rng=Random(1))
        journal.start()
        journal.post(settle(1))
        await asyncio.sleep(0)
        journal.post(settle(2))
        assert await journal.aclose()

    async def successor() -> None:
        async with both(tmp_path) as (ledger, _):
            await until(lambda: sorted(ledger.operations) == ["op-1", "op-2"])

    asyncio.run(alone())
    asyncio.run(successor())


def test_a_file_that_cannot_be_written_keeps_entries_in_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """They are sent when the process is back; what memory has no room for is counted, and told."""
    (tmp_path / "j.spill").mkdir()

    async def run(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(journal_module, "FILE_PAUSE_S", 0.05)
        ledger = Ledger(tmp_path / "l.sock")
        journal = Journal(ledger.path, spill=EntrySpillFile(tmp_path / "j.spill"), rng=Random(1))
        journal.start()
        journal.post(settle(1))
        await until(lambda: "books.spill_failed" in caplog.text)
        monkeypatch.setattr(journal_module, "MAX_HELD_BYTES", 10)
        journal.post(settle(2))
        await until(lambda: journal.statistics().lost == 2)
        monkeypatch.setattr(journal_module, "MAX_HELD_BYTES", 10_000)
        journal.post(settle(3))
        await ledger.start()
        await until(lambda: ledger.operations == ["op-3"])
        assert not await journal.aclose(deadline_s=10.0 * ENOUGH_S), "two were lost"
        await ledger.stop()

    with pytest.MonkeyPatch.context() as monkeypatch:
        asyncio.run(run(monkeypatch))
    assert "books.lost entries=" in caplog.text


class HangingFile(EntrySpillFile):
    """On a disk that answers only when it is let."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.asked = threading.Event()
        self.answers = threading.Event()

    def append(self, payloads: Sequence[bytes]) -> None:
        self.asked.set()
        self.answers.wait(ENOUGH_S)
        super().append(payloads)


def test_a_disk_that_hangs_does_not_hold_up_the_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What it was to take, and what waited behind that, is counted as lost, and told."""
    file = HangingFile(tmp_path / "j.spill")

    async def run() -> None:
        journal = Journal(str(tmp_path / "l.sock"), spill=file, rng=Random(1))
        journal.start()
        journal.post(settle(1))
        await until(file.asked.is_set)
        journal.post(settle(2))
        async with asyncio.timeout(ENOUGH_S):
            assert not await journal.aclose(deadline_s=0.05)
        assert 2 == journal.statistics().lost

    asyncio.run(run())
    file.answers.set()
    assert "the disk did not take them within 0.05 s" in caplog.text
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "books-spill"), "none keeps the process alive"


def test_a_file_that_cannot_be_written_at_the_end_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing else could take the entries."""
    (tmp_path / "j.spill").mkdir()

    async def run() -> None:
        journal = Journal(str(tmp_path / "l.sock"), spill=EntrySpillFile(tmp_path / "j.spill"), rng=Random(1))
        journal.start()
        journal.post(settle(1))
        assert not await journal.aclose()
        assert 1 == journal.statistics().lost

    asyncio.run(run())
    assert "Is a directory" in caplog.text


def test_an_entry_that_cannot_be_encoded_costs_itself_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its neighbours of the same turn arrive."""

    async def run() -> None:
        async with both(tmp_path) as (ledger, journal):
            for operation in ("op-1", "op-\ud800", "op-3"):
                journal.post(Settle(OperationId(operation), 1, TenantId("acme"), 30, 1.0))
            await until(lambda: ledger.operations == ["op-1", "op-3"])
            assert 1 == journal.statistics().lost

    asyncio.run(run())
    assert "books.unencodable" in caplog.text


@pytest.mark.parametrize("nonsense", [b"\xff\xff\xff\xff", b"\0\0\0\1\xc1", b"\0\0\0\2\x92\x01"])
def test_nonsense_ends_the_connection(tmp_path: Path, nonsense: bytes) -> None:
    """Another is opened, and nothing counts as acknowledged."""

    async def run() -> None:
        async with both(tmp_path) as (ledger, journal):
            ledger.nonsense = nonsense
            journal.post(settle(1))
            await until(lambda: journal.statistics().reconnects == 1)
            ledger.nonsense = None
            await until(lambda: len(ledger.operations) >= 2 and not journal.statistics().spilled_bytes)

    asyncio.run(run())


def test_refusals_are_counted_and_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The books do not take an entry, now or ever: it is not sent again."""

    async def run() -> None:
        async with both(tmp_path) as (ledger, journal):
            ledger.refused = 1
            journal.post(settle(1))
            await until(lambda: journal.statistics().refused == 1)
            assert 0 == journal.statistics().in_flight_bytes

    with caplog.at_level(logging.ERROR):
        asyncio.run(run())
    assert "books.refused entries=1" in caplog.text
