"""The desk: frames in, commits, answers; what happens while the database is away, and to an entry that it does not take."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from tidegate.adapters.books import desk as desk_module
from tidegate.adapters.books.desk import Desk
from tidegate.adapters.books.ledger import Books, BooksUnavailable, Posted
from tidegate.adapters.books.opening import open_books
from tidegate.domain.books import Balance, Entry, Hold, OperationId, Settle
from tidegate.domain.units import TenantId

ACME = TenantId("acme")
ENOUGH_S = 20.0


def hold(number: int, *, expires_at: float = 5_000.0) -> Hold:
    return Hold(OperationId(f"op-{number}"), 1, ACME, 50, 1.0, expires_at)


def settle(number: int, amount: int = 30) -> Settle:
    return Settle(OperationId(f"op-{number}"), 1, ACME, amount, 1.0)


def frame(*entries: Entry) -> bytes:
    return msgspec.msgpack.encode(entries)


@asynccontextmanager
async def desk_of(open_one: Callable[[], Books], clock: Callable[[], float] = lambda: 1_000.0) -> AsyncIterator[Desk]:
    desk = Desk(open_one, clock=clock, sweep_s=0.01, first_pause_s=0.01)
    desk.start()
    try:
        async with asyncio.timeout(ENOUGH_S):
            yield desk
    finally:
        await desk.aclose()


def balances(path: str) -> list[Balance]:
    books = open_books(path)
    try:
        return books.balances()
    finally:
        books.close()


def refused(answer: bytes) -> int:
    return msgspec.msgpack.decode(answer, type=int)


def test_an_answer_comes_after_the_commit(database: str) -> None:
    """What was answered for is in the books, for everybody who opens them."""

    async def run() -> None:
        async with desk_of(lambda: open_books(database)) as desk:
            assert 0 == refused(await desk.post(frame(hold(1), settle(1), settle(1))))
            assert [Balance(ACME, 0, -30, 0, 30)] == await asyncio.to_thread(balances, database)
            assert (2, 1, 0, None) == (
                (told := desk.statistics()).posted,
                told.unchanged,
                told.refused,
                told.trouble,
            )

    asyncio.run(run())


def test_frames_that_wait_together_are_committed_together(tmp_path: Path) -> None:
    """A hundred frames take far fewer than a hundred commits; each is answered."""

    async def run() -> None:
        async with desk_of(lambda: open_books(str(tmp_path / "b.sqlite"))) as desk:
            answers = await asyncio.gather(*(desk.post(frame(settle(number))) for number in range(100)))
            assert [0] * 100 == [refused(answer) for answer in answers]
            assert desk.statistics().commits < 50
            assert 0 == desk.statistics().queued

    asyncio.run(run())


class Flaky:
    """Opens books that cannot be used the first few times."""

    def __init__(self, path: str, failures: int) -> None:
        self.path = path
        self.failures = failures

    def __call__(self) -> Books:
        if self.failures:
            self.failures -= 1
            raise BooksUnavailable("the server is away")
        return open_books(self.path)


def test_while_the_database_is_away_nobody_is_answered_and_nothing_is_lost(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The same batch is tried until it is in; the trouble is told once, and so is its end."""

    async def run() -> None:
        with caplog.at_level(logging.INFO):
            async with desk_of(Flaky(str(tmp_path / "b.sqlite"), 5)) as desk:
                assert 0 == refused(await desk.post(frame(settle(1))))
                assert desk.statistics().trouble is None
        told = [record.getMessage() for record in caplog.records]
        assert ["books.unavailable the server is away Entries are kept and tried again.", "books.resumed entries=1"] == told

    asyncio.run(run())


def test_a_desk_that_ends_without_its_database_answers_nobody(tmp_path: Path) -> None:
    """Whoever sent the entries is told that nobody knows, and sends them again to the next process."""

    async def run() -> None:
        desk = Desk(Flaky(str(tmp_path / "b.sqlite"), 1_000_000), clock=lambda: 1.0, first_pause_s=30.0)
        desk.start()
        waiting = [asyncio.create_task(desk.post(frame(settle(number)))) for number in range(3)]
        await _until(lambda: desk.statistics().trouble is not None)
        await desk.aclose()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert [BooksUnavailable] * 3 == [type(outcome) for outcome in outcomes]

    asyncio.run(run())


def test_an_entry_that_no_database_takes_does_not_hold_up_the_others(database: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is counted, told with its operation, and answered for."""

    class Wide(Books):
        """Turns one amount into one that no column has room for."""

        def post(self, entries: Sequence[Entry], *, now: float) -> Posted:
            wide = [
                msgspec.structs.replace(entry, amount_micro=2**64) if isinstance(entry, Settle) and entry.amount_micro == 13 else entry
                for entry in entries
            ]
            return super().post(wide, now=now)

    def open_wide() -> Books:
        books = open_books(database)
        books.__class__ = Wide
        return books

    async def run() -> None:
        async with desk_of(open_wide) as desk:
            answers = await asyncio.gather(desk.post(frame(settle(1), settle(2, 13))), desk.post(frame(settle(3))))
            assert 1 == sum(refused(answer) for answer in answers)
            assert 1 == desk.statistics().refused

    asyncio.run(run())
    assert [Balance(ACME, 0, -60, 0, 60)] == balances(database)
    assert "books.entry_refused operation='op-2' attempt=1" in caplog.text


def test_a_frame_without_entries_is_answered_and_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It would never become readable: sent again it would hold up everything behind it."""

    async def run() -> None:
        async with desk_of(lambda: open_books(str(tmp_path / "b.sqlite"))) as desk:
            assert 1 == refused(await desk.post(b"\xc1"))
            assert 1 == refused(await desk.post(frame(settle(1, -5))))

    asyncio.run(run())
    assert 2 == caplog.text.count("books.frame_unreadable")


def test_a_fault_costs_one_batch_its_answer_and_no_more(tmp_path: Path) -> None:
    """What goes wrong in a way that nobody thought of is not answered; the thread goes on."""

    class Faulty(Books):
        faults = 1

        def post(self, entries: Sequence[Entry], *, now: float) -> Posted:
            if Faulty.faults:
                Faulty.faults -= 1
                raise RuntimeError("nobody thought of this")
            return super().post(entries, now=now)

    def open_faulty() -> Books:
        books = open_books(str(tmp_path / "b.sqlite"))
        books.__class__ = Faulty
        return books

    async def run() -> None:
        async with desk_of(open_faulty) as desk:
            with pytest.raises(BooksUnavailable):
                await desk.post(frame(settle(1)))
            assert 0 == refused(await desk.post(frame(settle(1))))

    asyncio.run(run())


def test_a_full_queue_makes_further_frames_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames wait in their sockets, and all are answered in the end."""
    monkeypatch.setattr(desk_module, "MAX_QUEUED", 2)

    async def run() -> None:
        async with desk_of(lambda: open_books(str(tmp_path / "b.sqlite"))) as desk:
            answers = await asyncio.gather(*(desk.post(frame(settle(number))) for number in range(20)))
            assert 20 == len(answers)
            assert 20 == desk.statistics().posted

    asyncio.run(run())


def test_holds_past_their_time_are_released(database: str) -> None:
    """The sweep finds each when its time has come, also after the clock was set back; a late settlement is posted all the same."""
    now = [1_000.0]  # a wall clock, which may be set back

    async def run() -> None:
        async with desk_of(lambda: open_books(database), lambda: now[0]) as desk:
            await desk.post(frame(hold(1, expires_at=1_010.0), hold(2, expires_at=2_000.0)))
            now[0] = 1_010.0
            await _until(lambda: desk.statistics().expired == 1)
            await desk.post(frame(settle(1)))
            assert [Balance(ACME, 0, -80, 50, 30)] == await asyncio.to_thread(balances, database)
            now[0] = 510.0
            await desk.post(frame(hold(3, expires_at=600.0)))
            now[0] = 610.0
            await _until(lambda: desk.statistics().expired == 2)

    asyncio.run(run())


async def _until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110  looks at what tells nobody of its changes
        await asyncio.sleep(0.001)
