"""A worker's way into the books: `post` never waits, and what was posted is not lost with the worker.

Entries of one turn of the event loop leave in its last step, together, on a Unix socket. From then on they are in the kernel, which hands
them to the ledger process even when this one has been killed. They are kept here until the process has committed them. When the
connection is lost, everything not acknowledged goes to a file, and so does whatever is posted until the process is back; then the file is
sent, and emptied as it is acknowledged. Entries may so arrive twice or out of order: the books do not mind either.

Invariants: nothing is forgotten before it is acknowledged or in the file; memory is bounded; the file is touched by a thread only.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from random import Random
from typing import TypeVar

import msgspec

from tidegate.adapters.books.disk_thread import DiskThread
from tidegate.adapters.books.spill import EntrySpillFile
from tidegate.adapters.frames import POST, question, take_answers
from tidegate.domain.books import Entry

MAX_IN_FLIGHT_BYTES = 8_388_608
"""Sent and not acknowledged: some 40,000 entries, two seconds of the desk's work. A desk that is further behind is not catching up."""
MAX_HELD_BYTES = 33_554_432
"""Waiting for the file to take it: some 150,000 entries, for a disk that is full or slow."""
FRAME_ENTRIES = 1_000
"""Entries of one frame, some 200 kB."""
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 2.0
FILE_PAUSE_S = 1.0
"""Between two tries of a file that failed."""
_SEND_BUFFER_BYTES = 4_194_304  # asked for; the kernel gives what `net.core.wmem_max` allows
_READ_BYTES = 65_536

_LOG = logging.getLogger("tidegate.books")
_decode_refused = msgspec.msgpack.Decoder(int).decode

Result = TypeVar("Result")


class JournalStatistics(msgspec.Struct, frozen=True):
    connected: bool
    posted: int
    in_flight_bytes: int
    """Sent, not acknowledged."""
    spilled_bytes: int
    """In the file, or on the way there."""
    reconnects: int
    refused: int
    """Entries that the books do not take."""
    lost: int
    """Entries for which neither the books, nor the file, nor memory had room."""


class Journal:
    """Use it on one loop: `start`, `post` as often as wanted, `aclose`."""

    def __init__(
        self,
        socket_path: str,
        *,
        spill: EntrySpillFile,
        orphans: Sequence[Path] = (),
        rng: Random,
        max_in_flight_bytes: int = MAX_IN_FLIGHT_BYTES,
    ) -> None:
        """`orphans` are the files of workers that are no more; they are taken over."""
        self._path = socket_path
        self._rng = rng
        self._max_in_flight_bytes = max_in_flight_bytes
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._encode = msgspec.msgpack.Encoder().encode
        self._fresh: list[Entry] = []
        """Posted in this turn."""
        # The connection.
        self._socket: socket.socket | None = None
        self._outbox = bytearray()
        """What the kernel had no room for; a part of what is in flight."""
        self._received = bytearray()
        self._in_flight: dict[int, bytes] = {}
        self._in_flight_bytes = 0
        self._quiet = asyncio.Event()
        """Nothing is in flight and nothing in the file, or there is no connection to wait for."""
        self._number = 0
        self._failures = 0
        # The file.
        self._spill = spill
        self._orphans = tuple(orphans)
        self._disk = DiskThread("books-spill")
        self._held: list[bytes] = []
        """To be written to the file."""
        self._held_bytes = 0
        self._writing: list[bytes] = []
        """What the thread writes at this moment."""
        self._file_turns = 0
        """What the thread has to do, and one while the file is left alone after a failure."""
        self._replayed: list[bytes] = []
        """Read from the file, sent, and not all acknowledged."""
        self._replaying: set[int] = set()
        self._posted = self._reconnects = self._refused = self._lost = 0

    def __repr__(self) -> str:
        return f"Journal({self._path}, connected={self._socket is not None}, in_flight_bytes={self._in_flight_bytes}, {self._spill!r})"

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._connect()
        self._in_thread(lambda: self._spill.adopt(self._orphans), self._adopted)

    def post(self, entry: Entry) -> None:
        """Enter it. Returns at once; the entry leaves in this turn of the loop."""
        fresh = self._fresh
        fresh.append(entry)
        if len(fresh) == 1:
            assert self._loop is not None, "a journal is used after its start"
            self._loop.call_soon(self._flush)

    def statistics(self) -> JournalStatistics:
        return JournalStatistics(
            connected=self._socket is not None,
            posted=self._posted,
            in_flight_bytes=self._in_flight_bytes,
            spilled_bytes=self._spill.pending_bytes + self._held_bytes,
            reconnects=self._reconnects,
            refused=self._refused,
            lost=self._lost,
        )

    async def aclose(self, *, deadline_s: float = 5.0) -> bool:
        """Wait until all is acknowledged, and put what is not into the file; False when some of it could not be kept at all.

        The deadline is for the ledger process, and once more for the disk.
        """
        self._flush()
        self._quiet.clear()
        self._tell_if_quiet()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(deadline_s):
                await self._quiet.wait()
        self._closed = True
        self._drop_connection()
        try:
            async with asyncio.timeout(deadline_s):
                await asyncio.wrap_future(self._disk.do(lambda: None))  # from here on, what it could not write is held again
                self._writing, self._held = self._held, []
                await asyncio.wrap_future(self._disk.do(self._end_file))
        except OSError as error:  # a TimeoutError is one
            left = [*self._writing, *self._held]
            if left:
                self._lose(left, error if f"{error}" else OSError(f"the disk did not take them within {deadline_s:g} s"))
        self._disk.stop()
        return not self._lost

    def _end_file(self) -> None:
        """Write, in the thread, what is left, and close the file."""
        try:
            if self._writing:
                self._spill.append(self._writing)
        finally:
            self._spill.close()

    def _tell_if_quiet(self) -> None:
        if not self._in_flight and (self._socket is None or not (self._file_turns or self._held or self._spill.pending_bytes)):
            self._quiet.set()

    # ── the turn ──────────────────────────────────────────────────────────────

    def _flush(self) -> None:
        entries, self._fresh = self._fresh, []
        self._posted += len(entries)
        for start in range(0, len(entries), FRAME_ENTRIES):
            payload = self._encoded(entries[start : start + FRAME_ENTRIES] if len(entries) > FRAME_ENTRIES else entries)
            self._send_or_hold(payload)

    @property
    def _has_room(self) -> bool:
        return self._socket is not None and self._in_flight_bytes < self._max_in_flight_bytes

    def _send_or_hold(self, payload: bytes) -> None:
        if self._has_room:
            self._send(payload)
        else:
            self._hold([payload])

    def _encoded(self, entries: Sequence[Entry]) -> bytes:
        """Encode all that can be; an entry that no encoder accepts is a fault of whoever made it, and told."""
        try:
            return self._encode(entries)
        except (ValueError, TypeError, OverflowError):
            pass  # one of them: see which
        sound: list[Entry] = []
        for entry in entries:
            try:
                self._encode(entry)
            except (ValueError, TypeError, OverflowError) as error:
                self._lost += 1
                _LOG.error("books.unencodable operation=%r %s", entry.operation_id, error)
            else:
                sound.append(entry)
        return self._encode(sound)

    def _send(self, payload: bytes) -> None:
        self._number += 1
        number = self._number
        self._in_flight[number] = payload
        self._in_flight_bytes += len(payload)
        frame = question(POST, number, payload)
        if self._outbox:
            self._outbox += frame
            return
        sent = self._write(frame)
        if sent < len(frame) and self._socket is not None:
            assert self._loop is not None
            self._outbox += memoryview(frame)[sent:]
            self._loop.add_writer(self._socket, self._write_more)

    # ── the connection ────────────────────────────────────────────────────────

    def _connect(self) -> None:
        if self._closed:
            return
        assert self._loop is not None
        link = socket.socket(socket.AF_UNIX)
        link.setblocking(False)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        try:
            link.connect(self._path)  # a Unix socket connects at once, or says why not
        except OSError as error:
            link.close()
            self._connect_later(error)
            return
        if self._failures:
            _LOG.info("books.journal_connected")
        self._failures = 0
        self._socket = link
        self._loop.add_reader(link, self._read)
        held, self._held, self._held_bytes = self._held, [], 0
        for payload in held:
            self._send_or_hold(payload)
        self._tend_file()

    def _connect_later(self, error: OSError) -> None:
        assert self._loop is not None
        if not self._failures:
            _LOG.warning("books.journal_alone socket=%s %s; entries go to %s until it is back", self._path, error, self._spill.path)
        span = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**self._failures)
        self._failures = min(self._failures + 1, 16)  # 0.05 · 2^16 is far over the longest pause
        self._loop.call_later(self._rng.uniform(span / 2, span), self._connect)

    def _write(self, frame: bytes | bytearray) -> int:
        """Give the kernel what it takes; how much that was."""
        if self._socket is None:
            return 0
        try:
            return self._socket.send(frame)
        except BlockingIOError:
            return 0
        except OSError as error:
            self._connection_lost(error)
            return 0

    def _write_more(self) -> None:
        assert self._loop is not None
        sent = self._write(self._outbox)
        if self._socket is not None:
            del self._outbox[:sent]
            if not self._outbox:
                self._loop.remove_writer(self._socket)

    def _read(self) -> None:
        if self._socket is None:
            return
        try:
            received = self._socket.recv(_READ_BYTES)
            if not received:
                raise ConnectionResetError("the ledger process closed the connection")
            self._received += received
            answers = [(number, _decode_refused(payload)) for number, payload in take_answers(self._received)]
        except BlockingIOError:
            return
        except (OSError, ValueError) as error:
            self._connection_lost(error if isinstance(error, OSError) else OSError(str(error)))
            return
        for number, refused in answers:
            self._acknowledged(number, refused)
        self._tend_file()
        self._tell_if_quiet()

    def _acknowledged(self, number: int, refused: int) -> None:
        payload = self._in_flight.pop(number, None)
        if payload is None:
            return
        self._in_flight_bytes -= len(payload)
        if refused:
            self._refused += refused
            _LOG.error("books.refused entries=%d; the ledger process's log says why", refused)
        self._replaying.discard(number)
        if self._replayed and not self._replaying:
            acknowledged, self._replayed = self._replayed, []
            self._in_thread(lambda: self._spill.forget(acknowledged), self._file_done)

    def _connection_lost(self, error: OSError) -> None:
        self._drop_connection()
        self._reconnects += 1
        self._connect_later(error)

    def _drop_connection(self) -> None:
        """Close it; what was not acknowledged is written to the file, but for what came from there."""
        link, self._socket = self._socket, None
        if link is not None:
            assert self._loop is not None
            self._loop.remove_reader(link)
            self._loop.remove_writer(link)
            link.close()
        kept = [payload for number, payload in self._in_flight.items() if number not in self._replaying]
        self._in_flight.clear()
        self._in_flight_bytes = 0
        self._outbox.clear()
        self._received.clear()
        self._replayed = []
        self._replaying.clear()
        self._hold(kept)
        self._tell_if_quiet()

    # ── the file ──────────────────────────────────────────────────────────────

    def _hold(self, payloads: list[bytes]) -> None:
        """Keep for the file, within bounds."""
        self._held += payloads
        self._held_bytes += sum(map(len, payloads))
        if self._held_bytes > MAX_HELD_BYTES:
            over: list[bytes] = []
            while self._held_bytes > MAX_HELD_BYTES:
                over.append(self._held.pop())
                self._held_bytes -= len(over[-1])
            self._lose(over, OSError("there is no room in memory either"))
        self._tend_file()

    def _lose(self, payloads: Sequence[bytes], error: OSError) -> None:
        entries = sum(len(msgspec.msgpack.decode(payload, type=tuple[msgspec.Raw, ...])) for payload in payloads)
        self._lost += entries
        _LOG.error("books.lost entries=%d file=%s %s", entries, self._spill.path, error)

    def _tend_file(self) -> None:
        """Write what is held; or, when there is a connection with room, send what the file has."""
        if self._file_turns or self._closed:
            return
        if self._held:
            held, self._held, self._held_bytes = self._held, [], 0
            self._writing = held
            self._in_thread(lambda: self._spill.append(held), lambda done: self._written(held, done))
        elif self._spill.pending_bytes and self._has_room and not self._replayed:
            self._in_thread(self._spill.peek, self._replay)

    def _written(self, payloads: list[bytes], done: Future[None]) -> None:
        self._writing = []
        error = done.exception()
        if error is None:
            self._file_done(done)
            return
        assert self._loop is not None
        self._held[:0] = payloads
        self._held_bytes += sum(map(len, payloads))
        _LOG.error("books.spill_failed file=%s entries wait in memory: %s", self._spill.path, error)
        self._file_turns += 1
        self._loop.call_later(FILE_PAUSE_S, self._file_rested)

    def _replay(self, done: Future[list[bytes]]) -> None:
        """Send what was read from the file; what comes back acknowledged is taken off there."""
        if self._socket is None:
            return
        self._replayed = done.result()
        for payload in self._replayed:
            self._replaying.add(self._number + 1)
            self._send(payload)
            if not self._replaying:
                return  # the connection was lost: what is in the file stays there

    def _adopted(self, done: Future[None]) -> None:
        error = done.exception()
        if error is not None:
            _LOG.error("books.spill_unreadable file=%s %s", self._spill.path, error)
        elif self._spill.pending_bytes:
            _LOG.info("books.spill_found file=%s bytes=%d", self._spill.path, self._spill.pending_bytes)
        self._tend_file()

    def _file_done(self, done: Future[None]) -> None:
        done.result()
        self._tend_file()

    def _file_rested(self) -> None:
        self._file_turns -= 1
        self._tend_file()
        self._tell_if_quiet()

    def _in_thread(self, work: Callable[[], Result], then: Callable[[Future[Result]], None]) -> None:
        """Have the file's thread do something, then go on here."""
        loop = self._loop
        assert loop is not None

        def finished(done: Future[Result]) -> None:
            self._file_turns -= 1
            then(done)
            self._tell_if_quiet()

        self._file_turns += 1
        self._disk.do(work).add_done_callback(lambda done: None if loop.is_closed() else loop.call_soon_threadsafe(finished, done))
