"""Brings what was recorded into the store: each line of a file exactly once, whatever breaks off, fails or is killed on the way.

A batch is read; which ranges of which files it has is written down as intended; its rows are put in, for each table and day in one piece;
and how far files are read is written down. Whatever happens between, the same batch is tried again, also by the next process, and before
anything is put in again the store is asked what it has of it. A server that was given up on may still keep the rows later: therefore the
same rows always go with the same token, by which it knows them.

While the store is away the files wait, and nothing is held in memory but one batch and the latest samples.
"""

from __future__ import annotations

import hashlib
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from tidegate.adapters.analytics.follow import Follower, RecordLine
from tidegate.adapters.analytics.positions import Position, PositionFile, Positions, Range
from tidegate.analytics.asking import AnalyticsStore
from tidegate.analytics.rows import Row, Rows, instant, timestamp
from tidegate.analytics.schema import SAMPLES, TABLES
from tidegate.errors import StoreError

BATCH_LINES: Final = 10_000
BATCH_BYTES: Final = 8_388_608
"""Of lines; as rows and as what the store is sent they take some ten times as much, for as long as the batch takes."""
MAX_SAMPLES: Final = 20_000
"""Waiting for the store: minutes of them. Older ones make room, and are counted: a sample that comes late is worth little."""
INTERVAL_S: Final = 1.0
"""From one batch to the next while little comes: a store prefers few large pieces."""
FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 30.0
MOST_VANISHED: Final = 3
"""Times that rows may vanish in a row before that is told as a failure, and waited for."""

_DAY_CHARS: Final = len("2026-11-04")
_DAY_S: Final = 86_400
_LOG = logging.getLogger("tidegate.recorder")

ToRows = Callable[[bytes, str, int], Rows | None]
"""(line, source, offset) -> rows, or None for what is no record."""


class FeedState(StrEnum):
    RUNNING = "running"
    WAITING = "waiting"
    """The store, or the files here, cannot be used at this moment; records wait in their files."""


class FeedStatistics(msgspec.Struct, frozen=True):
    state: FeedState = FeedState.RUNNING
    trouble: str = ""
    """Why nothing can be put in; empty while all is well."""
    rows: int = 0
    """Put into the store, of all tables."""
    lines: int = 0
    unreadable: int = 0
    """Lines that are no records."""
    expired: int = 0
    """Records that were too old to be kept."""
    found: int = 0
    """Rows that the store had already when they were to be put in again."""
    backlog_bytes: int = 0
    lag_s: float = 0.0
    """Age of the oldest record that waits, as far as it is read; 0 when none does."""
    lost_bytes: int = 0
    samples_dropped: int = 0


class Chunk(msgspec.Struct):
    """The rows of one batch that are of one table and day. They are kept as one, or not at all."""

    table: str
    token: str
    rows: list[Row]
    is_doubtful: bool = False
    """The store may have some of it."""
    vanished: int = 0
    """Times that the store said it kept these rows, and then did not have them."""


class Batch(msgspec.Struct):
    """What is being put in."""

    ranges: tuple[Range, ...]
    chunks: list[Chunk]
    """What of it is not put in yet."""
    is_repeat: bool
    """An earlier process may have put some of it in, or tried to."""
    is_intended: bool
    """It is written down that this is being put in."""
    is_checked: bool = False
    """It is known what of it may be in the store."""


class Feed:
    """`step` does what there is to do. Everything belongs to one thread, except `write_samples` and `statistics`."""

    def __init__(
        self,
        directory: Path,
        positions: PositionFile,
        open_store: Callable[[], AnalyticsStore],
        *,
        to_rows: Mapping[str, ToRows],
        keep_days: int,
        batch_lines: int = BATCH_LINES,
    ) -> None:
        """`directory` is where records are; `to_rows` has what makes rows of a line, by the kind of file."""
        self._directory = directory
        self._positions = positions
        self._open_store = open_store
        self._to_rows = to_rows
        self._keep_s = keep_days * _DAY_S
        self._batch_lines = batch_lines
        self._follower: Follower | None = None
        self._store: AnalyticsStore | None = None
        self._has_tables = False
        self._noted = Positions()
        """What the position file says."""
        self._repeats: tuple[Range, ...] = ()
        """What an earlier process intended, and perhaps did not finish."""
        self._batch: Batch | None = None
        self._next: dict[str, int] = {}
        """For each source, where the lines after those that were taken begin; others may be in the store already."""
        self._known_until: dict[str, int] = {}
        """For each source, the last offset that the store had when the source was met."""
        self._samples: deque[Row] = deque(maxlen=MAX_SAMPLES)
        self._samples_pushed_out = 0
        self._samples_failed = 0
        self._losses_told = 0
        self._pause_s = 0.0
        self._statistics = FeedStatistics()

    def __repr__(self) -> str:
        return f"Feed({self._statistics!r})"

    def statistics(self) -> FeedStatistics:
        return msgspec.structs.replace(self._statistics, samples_dropped=self._samples_pushed_out + self._samples_failed)

    def write_samples(self, rows: Sequence[Row]) -> None:
        """Take rows of the table `samples`, to be put in with the next batch. From one other thread."""
        self._samples_pushed_out += max(0, len(self._samples) + len(rows) - MAX_SAMPLES)
        self._samples.extend(rows)

    def step(self, *, now: float) -> float:
        """Put in one batch at most; give the seconds to wait before the next step, 0 when there is more to do.

        `now` is in seconds since the epoch.
        """
        try:
            is_more = self._advance(now)
        except (StoreError, OSError) as error:
            return self._wait(error)
        if self._statistics.state is FeedState.WAITING:
            _LOG.info("recorder.resumed backlog_bytes=%d", self._statistics.backlog_bytes)
        self._pause_s = 0.0
        self._count(state=FeedState.RUNNING, trouble="")
        return 0.0 if is_more else INTERVAL_S

    def close(self) -> None:
        if self._follower is not None:
            self._follower.close()
        if self._store is not None:
            self._store.close()

    # ── one step ──────────────────────────────────────────────────────────────

    def _advance(self, now: float) -> bool:
        follower = self._follower or self._begin()
        follower.look()
        self._tell_losses(follower)
        store = self._opened()
        if self._batch is None:
            self._batch = self._taken(follower, now)
        batch = self._batch
        if batch is not None:
            if not batch.is_intended:
                self._note(intended=batch.ranges)
                batch.is_intended = True
            self._check(store, batch)
            while batch.chunks:
                self._put_in(store, batch.chunks[0])
                del batch.chunks[0]
            self._note(sources=follower.positions(), intended=())
            self._batch = None
        self._put_samples_in(store)
        backlog = follower.backlog_bytes
        self._count(backlog_bytes=backlog, lag_s=self._statistics.lag_s if backlog else 0.0)
        return batch is not None and backlog > 0  # without a batch, what is left is half a line

    def _begin(self) -> Follower:
        self._noted = self._positions.read()
        self._repeats = self._noted.intended
        follower = self._follower = Follower(self._directory, kinds=self._to_rows, positions=self._noted)
        return follower

    def _opened(self) -> AnalyticsStore:
        """Give the store, with its tables. One that could not make them stays open: chDB keeps threads of every one that is closed."""
        store = self._store = self._store or self._open_store()
        if not self._has_tables:
            store.create_tables()
            self._has_tables = True
        return store

    def _taken(self, follower: Follower, now: float) -> Batch | None:
        """Read the next batch, or again the one that an earlier process intended, and make its rows. None when there is nothing."""
        lines = [line for each in self._repeats for line in follower.read_range(each.source, each.start, each.end)]
        is_again = bool(lines) and _ranges(lines) == self._repeats
        self._repeats = ()
        if not lines:
            lines = follower.read(max_lines=self._batch_lines, max_bytes=BATCH_BYTES)
        if not lines:
            return None
        ranges = _ranges(lines)
        return Batch(ranges, self._chunks_of(lines, ranges, now), is_repeat=is_again, is_intended=is_again)

    def _chunks_of(self, lines: Sequence[RecordLine], ranges: Sequence[Range], now: float) -> list[Chunk]:
        """Make rows, by table and day; the token of each is the same whenever this batch is made."""
        name = hashlib.sha256(msgspec.msgpack.encode(ranges)).hexdigest()[:32]
        chunks: dict[tuple[str, str], Chunk] = {}
        oldest = timestamp(now - self._keep_s)
        unreadable = expired = 0
        first_at = ""
        for line in lines:
            rows = self._to_rows[line.kind](line.text, line.source, line.offset)
            if rows is None:
                unreadable += bool(line.text.strip())
                continue
            for row, table in ((row, table) for table, made in rows.items() for row in made):
                at = str(row["started_at"])
                first_at = first_at or at
                if at < oldest:
                    expired += 1
                    continue
                day = at[:_DAY_CHARS]
                chunk = chunks.get((table, day))
                if chunk is None:
                    chunk = chunks[table, day] = Chunk(table, f"{table}-{day}-{name}", [])
                chunk.rows.append(row)
        statistics = self._statistics
        self._count(
            lines=statistics.lines + len(lines),
            unreadable=statistics.unreadable + unreadable,
            expired=statistics.expired + expired,
            lag_s=max(0.0, now - instant(first_at)) if first_at else statistics.lag_s,
        )
        return list(chunks.values())

    # ── into the store ────────────────────────────────────────────────────────

    def _check(self, store: AnalyticsStore, batch: Batch) -> None:
        """Find out what of a batch may be in the store: of sources met for the first time, or read again, whatever it has of them."""
        if batch.is_checked:
            return
        for each in batch.ranges:
            if self._next.get(each.source) != each.start:
                known = (store.offsets(table.name, each.source, at_least=each.start) for table in TABLES if table.is_followed)
                self._known_until[each.source] = max((max(offsets, default=-1) for offsets in known), default=-1)
            self._next[each.source] = each.end
        doubtful = {each.source for each in batch.ranges if each.start <= self._known_until[each.source]}
        for chunk in batch.chunks:
            chunk.is_doubtful = batch.is_repeat or any(row["source"] in doubtful for row in chunk.rows)
        for source in self._next.keys() - self._noted.sources.keys() - {each.source for each in batch.ranges}:
            del self._next[source], self._known_until[source]  # its file is gone
        batch.is_checked = True

    def _put_in(self, store: AnalyticsStore, chunk: Chunk) -> None:
        """Put in what the store has not. What failed before is asked for first, and once more when it seems to be in."""
        while True:
            if chunk.is_doubtful:
                self._leave_out_found(store, chunk)
            if not chunk.rows:
                return
            was_doubtful, chunk.is_doubtful = chunk.is_doubtful, True
            store.insert(chunk.table, chunk.rows, token=f"{chunk.token}-{chunk.vanished}")
            if not was_doubtful:
                break
            if not self._missing(store, chunk):
                break
            chunk.vanished += 1  # a store that crashed may know the token of rows that it lost
            if chunk.vanished % MOST_VANISHED == 0:
                raise StoreError(f"The store says that it keeps rows of the table {chunk.table}, and does not have them.")
        self._count(rows=self._statistics.rows + len(chunk.rows))

    def _missing(self, store: AnalyticsStore, chunk: Chunk) -> list[Row]:
        starts: dict[str, int] = {}
        for row in chunk.rows:
            starts.setdefault(str(row["source"]), _offset(row))
        known = {source: store.offsets(chunk.table, source, at_least=start) for source, start in starts.items()}
        return [row for row in chunk.rows if _offset(row) not in known[str(row["source"])]]

    def _leave_out_found(self, store: AnalyticsStore, chunk: Chunk) -> None:
        missing = self._missing(store, chunk)
        self._count(found=self._statistics.found + len(chunk.rows) - len(missing))
        chunk.rows = missing

    def _put_samples_in(self, store: AnalyticsStore) -> None:
        """Put in samples that wait, those of a day together. What fails is gone: a little later it would have made room for others."""
        days: dict[str, list[Row]] = {}
        for row in [self._samples.popleft() for _ in range(len(self._samples))]:
            days.setdefault(str(row["at"])[:_DAY_CHARS], []).append(row)
        for rows in days.values():
            try:
                store.insert(SAMPLES.name, rows)
            except (StoreError, OSError):
                self._samples_failed += len(rows)
                raise
            self._count(rows=self._statistics.rows + len(rows))

    # ── what became of it ─────────────────────────────────────────────────────

    def _note(self, *, intended: tuple[Range, ...], sources: Mapping[str, Position] | None = None) -> None:
        """Write down what is intended, and (with `sources`) how far files are put in."""
        before = self._noted
        deleted = self._follower.deleted() if self._follower is not None else before.deleted
        noted = Positions(before.sources if sources is None else dict(sources), intended, deleted, self._statistics.lost_bytes)
        self._positions.write(noted)
        self._noted = noted

    def _tell_losses(self, follower: Follower) -> None:
        before = max(self._statistics.lost_bytes, self._noted.lost_bytes)
        more = follower.lost_bytes - self._losses_told
        self._losses_told = follower.lost_bytes
        if more > 0:
            _LOG.error(
                "recorder.records_lost bytes=%d of files that were deleted before they were read. Raise records.keep_files, or find out "
                "why the store was away for so long.",
                more,
            )
        self._count(lost_bytes=before + more, backlog_bytes=follower.backlog_bytes)

    def _wait(self, error: StoreError | OSError) -> float:
        trouble = error.message if isinstance(error, StoreError) else f"{error.strerror}: {error.filename or self._directory}."
        if trouble != self._statistics.trouble:
            _LOG.warning("recorder.waiting %s Records wait in their files.", trouble)
        self._count(state=FeedState.WAITING, trouble=trouble)
        self._pause_s = min(2 * self._pause_s or FIRST_PAUSE_S, LONGEST_PAUSE_S)
        return self._pause_s

    def _count(self, **changes: object) -> None:
        self._statistics = msgspec.structs.replace(self._statistics, **changes)


def _ranges(lines: Sequence[RecordLine]) -> tuple[Range, ...]:
    """Give the pieces of files that lines came from, in the order of the lines."""
    ranges: list[Range] = []
    for line in lines:
        last = ranges[-1] if ranges else None
        if last is not None and last.source == line.source and last.end == line.offset:
            ranges[-1] = Range(line.source, last.start, line.end)
        else:
            ranges.append(Range(line.source, line.offset, line.end))
    return tuple(ranges)


def _offset(row: Row) -> int:
    offset = row["offset"]
    assert isinstance(offset, int)
    return offset
