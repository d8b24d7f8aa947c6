"""Where entries arrive: answers frames of the kind `post` in the ledger process, once they are committed.

One thread writes. What arrives while a commit is under way goes into the next one together, so the more there is to do, the more a commit
does. While the database is away, nobody is answered: the journals keep what they sent, and the same batch is tried until it is in.
Between commits the thread releases holds past their time.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from tidegate.adapters.books.ledger import Books, BooksUnavailable, EntryRefused, Sweep
from tidegate.domain.books import Entry
from tidegate.errors import ConfigurationError

BATCH = 2_000
"""Entries of one commit: some 40 ms of work, so that nobody's answer waits for long behind others'."""
MAX_QUEUED = 50_000
"""Entries that wait for a commit, some 30 MB; further frames wait in their sockets."""
SWEEP_S = 1.0
"""From one look for expired holds to the next."""
SWEEP_PAGE = 1_000
"""Holds looked at between two commits: a few milliseconds."""
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
CLOSE_S = 10.0
"""For the last commit at the end; what is not in by then was not acknowledged, and is sent again."""

_LOG = logging.getLogger("tidegate.books")

decode_entries = msgspec.msgpack.Decoder(tuple[Entry, ...]).decode
_encode = msgspec.msgpack.Encoder().encode


class DeskStatistics(msgspec.Struct, frozen=True):
    posted: int
    unchanged: int
    refused: int
    """Entries that the database does not take: each is a fault of ours, and told in the log."""
    commits: int
    expired: int
    """Holds that nobody ended."""
    queued: int
    trouble: str | None
    """Why nothing can be entered at this moment; None when all is well."""


class _Waiting:
    """The entries of one frame, and who waits for them."""

    __slots__ = ("entries", "refused")

    def __init__(self, entries: tuple[Entry, ...], refused: asyncio.Future[int]) -> None:
        self.entries = entries
        self.refused = refused


class Desk:
    """Use it on one loop: `start`, `post` as often as wanted, `aclose`. `clock` gives seconds since the epoch."""

    def __init__(
        self,
        open_books: Callable[[], Books],
        *,
        clock: Callable[[], float],
        sweep_s: float = SWEEP_S,
        first_pause_s: float = FIRST_PAUSE_S,
    ) -> None:
        self._open_books = open_books
        self._clock = clock
        self._sweep_s = sweep_s
        self._first_pause_s = first_pause_s
        self._queue: deque[_Waiting] = deque()
        self._queued = 0
        self._room = asyncio.Event()
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="books-desk", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        # The thread's own from here on.
        self._books: Books | None = None
        self._sweep = Sweep()
        self._swept_at = 0.0
        self._sweep_due = 0.0
        self._posted = self._unchanged = self._refused = self._commits = self._expired = 0
        self._trouble: str | None = None

    def __repr__(self) -> str:
        return f"Desk(queued={self._queued}, posted={self._posted}, trouble={self._trouble!r})"

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def post(self, payload: bytes) -> bytes:
        """Enter what one frame brings; after the commit, give how many of its entries the database does not take, encoded.

        `BooksUnavailable` when nobody knows what became of it: whoever sent it sends it again.
        """
        try:
            entries = decode_entries(payload)
        except msgspec.MsgspecError as error:
            self._refused += 1
            _LOG.error("books.frame_unreadable bytes=%d %s", len(payload), error)
            return _encode(1)
        while self._queued >= MAX_QUEUED:
            self._room.clear()
            await self._room.wait()
        waiting = _Waiting(entries, asyncio.get_running_loop().create_future())
        self._queued += len(entries)
        self._queue.append(waiting)
        self._wake.set()
        return _encode(await waiting.refused)

    def statistics(self) -> DeskStatistics:
        return DeskStatistics(self._posted, self._unchanged, self._refused, self._commits, self._expired, self._queued, self._trouble)

    async def aclose(self) -> None:
        """Commit what has arrived, and stop; what cannot be committed is not answered."""
        self._closing.set()
        self._wake.set()
        await asyncio.to_thread(self._thread.join, CLOSE_S)
        self._tell(self._queue, None)

    def _tell(self, batch: Sequence[_Waiting], refused: Sequence[int] | None) -> None:
        """Answer on the loop; None: nobody knows."""
        self._queued -= sum(len(each.entries) for each in batch)
        self._room.set()
        for number, waiting in enumerate(batch):
            if waiting.refused.done():
                continue  # whoever asked has left
            if refused is None:
                waiting.refused.set_exception(BooksUnavailable("The entries could not be entered."))
            else:
                waiting.refused.set_result(refused[number])

    # ── the thread ────────────────────────────────────────────────────────────

    def _run(self) -> None:
        while not self._closing.is_set() or self._queue:
            if not self._queue:
                self._wake.wait(self._sweep_s)
            self._wake.clear()
            batch = self._take()
            refused: list[int] | None = None
            try:
                if batch:
                    refused = self._post(batch)
                self._sweep_if_due()
            except _ClosingError:
                break
            except Exception:  # noqa: BLE001  the thread's outermost frame: a fault costs one batch, which is sent again
                _LOG.exception("books.desk_failed entries=%d", sum(len(each.entries) for each in batch))
            finally:
                self._answer(batch, refused)
        if self._books is not None:
            self._books.close()

    def _take(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        size = 0
        while self._queue and size < BATCH:
            waiting = self._queue.popleft()
            batch.append(waiting)
            size += len(waiting.entries)
        return batch

    def _answer(self, batch: Sequence[_Waiting], refused: Sequence[int] | None) -> None:
        assert self._loop is not None
        if batch and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._tell, batch, refused)

    def _post(self, batch: Sequence[_Waiting]) -> list[int]:
        """Enter a batch; give how many of each frame's entries were refused."""
        try:
            self._enter([entry for waiting in batch for entry in waiting.entries])
        except EntryRefused:
            return [sum(self._is_refused(entry) for entry in waiting.entries) for waiting in batch]
        return [0] * len(batch)

    def _is_refused(self, entry: Entry) -> bool:
        """Enter one alone, to find the one that the database does not take."""
        try:
            self._enter([entry])
        except EntryRefused as error:
            self._refused += 1
            _LOG.error("books.entry_refused operation=%r attempt=%d %s", entry.operation_id, entry.attempt, error.message)
            return True
        return False

    def _enter(self, entries: Sequence[Entry]) -> None:
        """Commit entries, trying until the database takes them; `_ClosingError` when that would hold up the end."""
        pause_s = self._first_pause_s
        while True:
            try:
                posted = self._opened().post(entries, now=self._clock())
            except (BooksUnavailable, ConfigurationError) as error:
                self._lose(error)
                if self._closing.wait(pause_s):
                    raise _ClosingError from error
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
                continue
            self._commits += 1
            self._posted += posted.posted
            self._unchanged += posted.unchanged
            if self._trouble is not None:
                self._trouble = None
                _LOG.info("books.resumed entries=%d", len(entries))
            return

    def _sweep_if_due(self) -> None:
        """Look at some holds; all of them are looked at once, each after its time."""
        if time.monotonic() < self._sweep_due or self._closing.is_set():
            return
        now = self._clock()
        if now < self._swept_at:
            self._sweep = Sweep()  # the clock was set back: holds may have come behind the place
        self._swept_at = now
        try:
            self._sweep = self._opened().expire(self._sweep, now=now, limit=SWEEP_PAGE)
        except (BooksUnavailable, ConfigurationError) as error:
            self._lose(error)
            self._sweep = Sweep()
        self._expired += self._sweep.released
        if self._sweep.looked < SWEEP_PAGE:
            self._sweep_due = time.monotonic() + self._sweep_s

    def _opened(self) -> Books:
        if self._books is None:
            self._books = self._open_books()
        return self._books

    def _lose(self, error: BooksUnavailable | ConfigurationError) -> None:
        """Let the connection go; the next try opens another."""
        if self._trouble is None:
            _LOG.error("books.unavailable %s Entries are kept and tried again.", error.message)
        self._trouble = error.message
        books, self._books = self._books, None
        if books is not None:
            books.close()


class _ClosingError(Exception):
    """The desk is to end while the database is away."""
