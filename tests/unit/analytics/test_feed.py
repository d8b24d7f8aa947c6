"""Each record is in the store exactly once, whatever fails between file and store, and when."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.analytics.feeding import NOW, Killed, RowsInMemory, feed_of, record, settle, write

from tidegate.adapters.analytics.feed import FIRST_PAUSE_S, INTERVAL_S, LONGEST_PAUSE_S, MAX_SAMPLES, Feed, FeedState
from tidegate.adapters.analytics.positions import FILE, PositionFile
from tidegate.errors import StoreError

FAULTS = ("", "before", "after", "late", "forgets", "killed_before", "killed_after")


def test_records_and_their_attempts_become_rows(tmp_path: Path) -> None:
    """One row for the request, one for each attempt, and nothing more at the next look."""
    store = RowsInMemory()
    feed = feed_of(tmp_path, store)
    write(tmp_path, record(0), record(1))
    assert feed.step(now=NOW) == INTERVAL_S
    write(tmp_path, record(2)[:20])
    assert feed.step(now=NOW) == INTERVAL_S
    assert ["r0", "r1"] == store.ids() == store.ids("attempts")
    assert (4, 2, 0) == (feed.statistics().rows, feed.statistics().lines, feed.statistics().lost_bytes)


def test_a_line_that_is_no_record_is_counted(tmp_path: Path) -> None:
    """Torn, empty, of another kind, or without a time: none of them stops those after it."""
    store = RowsInMemory()
    feed = feed_of(tmp_path, store)
    write(tmp_path, b'{"request_id":"x"\n', b"\n", b"[1]\n", b'{"request_id":"y"}\n', b'{"started_at":1e300}\n', b"\xff\n", record(0))
    settle(feed)
    assert ["r0"] == store.ids()
    assert 5 == feed.statistics().unreadable


def test_what_is_too_old_to_be_kept_is_counted(tmp_path: Path) -> None:
    """Its rows would be deleted at once."""
    store = RowsInMemory()
    feed = feed_of(tmp_path, store, keep_days=1)
    write(tmp_path, record(0, started_at=NOW - 100_000), record(1))
    settle(feed)
    assert (["r1"], 2) == (store.ids(), feed.statistics().expired)


def test_days_are_put_in_apart(tmp_path: Path) -> None:
    """A piece that is of one day is kept as one."""
    store = RowsInMemory()
    feed = feed_of(tmp_path, store)
    write(tmp_path, record(0), record(1, started_at=NOW - 86_400), record(2))
    store.faults = ["", "", "", "before"]
    settle(feed)
    assert ["r0", "r1", "r2"] == sorted(store.ids()) == sorted(store.ids("attempts"))


def test_while_the_store_is_away_records_wait(tmp_path: Path) -> None:
    """The pause grows to its limit, the reason is told, and the backlog is what the files have."""
    store = RowsInMemory()
    away = True

    def opened() -> RowsInMemory:
        if away:
            raise StoreError("Nobody there.")
        return store

    feed = feed_of(tmp_path, store)
    feed._open_store = opened
    write(tmp_path, record(0))
    pauses = [feed.step(now=NOW) for _ in range(9)]
    assert [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, LONGEST_PAUSE_S] == [pauses[0], pauses[1], pauses[-1]]
    statistics = feed.statistics()
    assert (FeedState.WAITING, "Nobody there.", len(record(0))) == (statistics.state, statistics.trouble, statistics.backlog_bytes)
    away = False
    settle(feed)
    assert (["r0"], FeedState.RUNNING, 0) == (store.ids(), feed.statistics().state, feed.statistics().backlog_bytes)


class Slow(RowsInMemory):
    """A store without room for its tables at first."""

    def __init__(self) -> None:
        super().__init__()
        self.refusals = 2

    def create_tables(self) -> None:
        self.refusals -= 1
        if self.refusals >= 0:
            raise StoreError("No room.")


def test_a_store_that_cannot_make_its_tables_is_opened_once(tmp_path: Path) -> None:
    """It is asked again: an engine within the process keeps threads and descriptors of each one that is closed."""
    opened: list[Slow] = []

    def open_one() -> Slow:
        opened.append(Slow())
        return opened[-1]

    feed = feed_of(tmp_path, RowsInMemory())
    feed._open_store = open_one
    write(tmp_path, record(0))
    assert [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S] == [feed.step(now=NOW) for _ in range(2)]
    settle(feed)
    [store] = opened
    assert (["r0"], -1) == (store.ids(), store.refusals)


def test_without_its_position_file_nothing_is_put_in_twice(tmp_path: Path) -> None:
    """Everything is read again, batch by batch, and found in the store; what is not there is put in."""
    store = RowsInMemory()
    write(tmp_path, *(record(number) for number in range(20)))
    first = feed_of(tmp_path, store, batch_lines=3)
    settle(first)
    first.close()
    (tmp_path / "state" / FILE).write_text("{damaged")
    store.tokens.clear()
    write(tmp_path, record(20))
    second = feed_of(tmp_path, store, batch_lines=4)
    settle(second)
    assert [f"r{number}" for number in range(21)] == store.ids() == store.ids("attempts")
    assert 40 == second.statistics().found


def test_a_copied_file_is_not_read_twice(tmp_path: Path) -> None:
    """A backup beside the records has the same first line, so it is the same source."""
    store = RowsInMemory()
    feed = feed_of(tmp_path, store)
    write(tmp_path, record(0), record(1))
    settle(feed)
    write(tmp_path, record(0), record(1), name="requests-0.jsonl.7")
    settle(feed)
    assert ["r0", "r1"] == store.ids()


def test_a_lost_file_is_told_and_counted_for_good(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Bytes deleted unread, while the process runs or while none does, are in the log and in the count, which restarts keep."""
    store = RowsInMemory()
    first = feed_of(tmp_path, store, batch_lines=1)
    write(tmp_path, record(0), name="requests-1.jsonl")
    write(tmp_path, record(1))
    first.step(now=NOW)
    write(tmp_path, record(2))
    first.step(now=NOW)
    lines = len(record(0))
    first.close()
    (tmp_path / "records" / "requests-0.jsonl").unlink()
    second = feed_of(tmp_path, store)
    settle(second)
    lost = second.statistics().lost_bytes
    assert lost in {lines, 2 * lines}
    assert f"recorder.records_lost bytes={lost}" in caplog.text
    write(tmp_path, record(3), name="requests-2.jsonl")
    settle(second)
    second.close()
    third = feed_of(tmp_path, store)
    settle(third)
    assert lost == third.statistics().lost_bytes


def test_samples_go_with_the_next_batch(tmp_path: Path) -> None:
    """Those that find no room push out the oldest, and those that fail are gone; both are counted."""
    store = RowsInMemory()
    feed = feed_of(tmp_path, store)
    feed.write_samples([{"at": "2026-11-04 10:00:00.000", "value": float(number)} for number in range(MAX_SAMPLES + 2)])
    settle(feed)
    assert (MAX_SAMPLES, 2) == (len(store.rows["samples"]), feed.statistics().samples_dropped)
    store.faults = ["before"]
    feed.write_samples([{"at": "2026-11-04 10:00:00.000", "value": 1.0}])
    settle(feed)
    assert (MAX_SAMPLES, 3) == (len(store.rows["samples"]), feed.statistics().samples_dropped)


def test_a_store_that_only_says_so_is_not_believed(tmp_path: Path) -> None:
    """Rows that are never there after an insert that was doubtful are tried again, and told as trouble, but never passed over."""
    store = RowsInMemory()
    feed = feed_of(tmp_path, store)
    write(tmp_path, record(0))
    store.faults = ["before"]
    assert feed.step(now=NOW) == FIRST_PAUSE_S
    store.tokens = {f"{feed._batch.chunks[0].token}-{number}" for number in range(4)} if feed._batch is not None else set()
    assert feed.step(now=NOW) > FIRST_PAUSE_S
    assert "does not have them" in feed.statistics().trouble
    settle(feed)
    assert ["r0"] == store.ids() == store.ids("attempts")


class Mortal(PositionFile):
    """A position file at which the process may be killed, before or after it is written."""

    def __init__(self, directory: Path, deaths: list[str]) -> None:
        super().__init__(directory)
        self._deaths = deaths

    def write(self, positions: object) -> None:
        death = self._deaths.pop(0) if self._deaths else ""
        if death == "full":
            raise OSError(28, "No space left on device")
        if death == "before":
            raise Killed
        super().write(positions)  # type: ignore[arg-type]
        if death == "after":
            raise Killed


@settings(max_examples=60, deadline=None)
@given(
    batches=st.lists(st.integers(0, 4), min_size=1, max_size=6),
    faults=st.lists(st.sampled_from(FAULTS), max_size=12),
    deaths=st.lists(st.sampled_from(["", "", "before", "after", "full"]), max_size=10),
    rotate=st.sets(st.integers(0, 5)),
)
def test_every_record_is_in_the_store_exactly_once(batches: list[int], faults: list[str], deaths: list[str], rotate: set[int]) -> None:
    """Law: whatever inserts do, wherever the process is killed, and although what was given up on comes true at last."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        store = RowsInMemory()
        store.faults = faults
        written = 0

        def born() -> Feed:
            made = feed_of(directory, store, batch_lines=2)
            made._positions = Mortal(directory / "state", deaths)
            return made

        feed = born()
        for number, batch in enumerate(batches):
            write(directory, *(record(written + each) for each in range(batch)))
            written += batch
            try:
                feed.step(now=NOW)
            except Killed:
                feed.close()
                feed = born()
            path = directory / "records" / "requests-0.jsonl"
            if number in rotate and path.exists():
                path.rename(path.with_name(f"requests-0.jsonl.{20 - number}"))
        while True:
            try:
                settle(feed)
                break
            except Killed:
                feed.close()
                feed = born()
        store.come_true()
        feed.close()
        expected = [f"r{number}" for number in range(written)]
        assert (
            expected == sorted(store.ids(), key=lambda each: int(each[1:])) == sorted(store.ids("attempts"), key=lambda each: int(each[1:]))
        )
        assert 0 == feed.statistics().lost_bytes


@pytest.mark.parametrize(
    "content",
    [b"", b"[" * 5_000, b"\xff", b'{"sources":{"s":{"offset":-5,"size":9}}}', b'{"sources":{"s":{"offset":0,"size":%d}}}' % 2**70],
)
def test_a_damaged_position_file_is_none(content: bytes, tmp_path: Path) -> None:
    """Everything is read anew; what is no file holds nothing up."""
    write(tmp_path, b"[" * 5_000 + b"\n", record(1))
    os.mkfifo(tmp_path / "records" / "requests-1.jsonl")
    (tmp_path / "records" / "requests-2.jsonl").mkdir()
    store = RowsInMemory()
    feed = feed_of(tmp_path, store)
    (tmp_path / "state" / FILE).write_bytes(content)
    settle(feed)
    assert ["r1"] == [row["request_id"] for row in store.rows["requests"]]
    assert 1 == feed.statistics().unreadable
