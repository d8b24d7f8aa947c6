"""Keeps finished records: appended as JSON Lines by a thread, with one log line each.

`record` never waits: it puts the record in a bounded queue. The thread writes it to `<directory>/requests-<worker>.jsonl`. When that
fails, records go to a spill file in a second directory and are moved back in order once the first works again. When both fail they wait
in the queue, and what the queue cannot hold is counted as dropped. Every change of state is one log line. Killing the process loses at
most what is in the queue.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import deque
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from tidegate.adapters.records.files import RotatingFile, SpillFile
from tidegate.adapters.records.lines import LogFormat, Value, line_format, request_format, without_credentials
from tidegate.adapters.records.sink import LogSink
from tidegate.domain.record import RequestRecord
from tidegate.wire.masking import Masker

INTERVAL_S = 0.2
"""Longest time a record waits for the thread when all is well: a line in the log may come so much later. Each look costs a tenth of a
millisecond, with nothing to write too."""
WAKE_AT = 64
"""Waiting records that wake the thread early, so that a burst does not make one long write."""
BATCH = 96
"""Records encoded at a time: about half a millisecond of the interpreter's lock, which the event loop needs too. Above `WAKE_AT`, so
that what comes while the thread wakes is written with the others."""
PAUSE_S: Final = 0.001
"""Between two batches: on a core that the event loop shares, the system would let this thread go on for milliseconds."""
RETRY_S = 1.0
"""Time between two tries of a file that failed."""
JOIN_S = 5.0
MAX_SPILL_BYTES = 268_435_456
"""About 500,000 records; the spill directory is often a small temporary one."""


class RecorderState(StrEnum):
    WRITING = "writing"
    SPILLING = "spilling"
    """The directory cannot be written; records are in the spill file."""
    STUCK = "stuck"
    """Neither can be written; records wait in memory."""


class RecorderStatistics(msgspec.Struct, frozen=True):
    state: RecorderState
    queued: int
    written: int
    """Records in the log or, while spilling, in the spill file."""
    dropped: int
    spill_bytes: int
    log_lines_dropped: int


class JsonLinesRecorder:
    """A `ports.Recorder`. `record` belongs to one thread (the event loop's); call `start` before and `close` after."""

    def __init__(
        self,
        directory: Path,
        *,
        worker: int,
        spill_directory: Path,
        max_file_bytes: int,
        keep_files: int,
        queue_records: int,
        sink: LogSink,
        log_format: LogFormat = LogFormat.LOGFMT,
        clock: Callable[[], float],
        retry_s: float = RETRY_S,
    ) -> None:
        """`clock` gives seconds since the epoch, for log lines about the recorder itself."""
        self._log = RotatingFile(directory / f"requests-{worker}.jsonl", max_bytes=max_file_bytes, keep_files=keep_files)
        # Two gateways on one machine may share a temporary directory: the name tells their record directories apart.
        origin = hashlib.sha256(str(directory.absolute()).encode()).hexdigest()[:12]
        self._spill = SpillFile(spill_directory / f"tidegate-spill-{origin}-{worker}.jsonl", max_bytes=MAX_SPILL_BYTES)
        self._queue: deque[RequestRecord] = deque()  # bounded by `record`
        self._capacity = queue_records
        self._for_anyone = queue_records // 2
        """What the refusals of strangers may fill, so that they do not cost callers their records."""
        self._sink = sink
        self._line = line_format(log_format)
        self._request_line = request_format(log_format)
        self._clock = clock
        self._bell = threading.Lock()
        """Held while nobody wants the thread. A bare lock: an `Event` is three of them, in Python, at each wake-up."""
        self._bell.acquire()
        self._closing = False
        self._writer = threading.Thread(target=self._run, name=f"recorder-{worker}", daemon=True)
        self._encoder = msgspec.json.Encoder()
        self._state = RecorderState.WRITING
        self._retry_at = 0.0
        self._held: list[RequestRecord] = []
        """The batch taken from the queue that is not written yet; at most `BATCH`."""
        self._retry_s = retry_s
        self._mask_cause: Callable[[str], str] = Masker().mask
        self._written = 0
        # One counter for each thread: `+=` on a shared one could lose a count.
        self._refused = 0
        self._lost = 0
        self._refused_told = 0
        self._dropping = False

    def mask_causes(self, mask: Callable[[str], str]) -> None:
        """Mask the causes of failures so from now on; the words of an upstream are in them."""
        self._mask_cause = mask

    def start(self) -> None:
        self._writer.start()

    def record(self, record: RequestRecord) -> None:
        queue = self._queue
        waiting = len(queue)
        if waiting >= self._capacity or (waiting >= self._for_anyone and not record.key_id):
            self._refused += 1
            return
        queue.append(record)
        if waiting == WAKE_AT:
            self._ring()

    def close(self, *, deadline_s: float = JOIN_S) -> bool:
        """Write what waits, then stop; False when that took longer than `deadline_s` and records were left behind. Blocks."""
        self._closing = True
        self._ring()
        if self._writer.ident is None:
            return not self._queue
        self._writer.join(deadline_s)
        return not self._writer.is_alive() and not self._held and not self._queue

    def statistics(self) -> RecorderStatistics:
        return RecorderStatistics(
            state=self._state,
            queued=len(self._queue) + len(self._held),
            written=self._written,
            dropped=self._refused + self._lost,
            spill_bytes=self._spill.pending_bytes,
            log_lines_dropped=self._sink.dropped_lines,
        )

    def _ring(self) -> None:
        """Wake the thread. `record` and `close` may do so at once, and then one of them finds it done."""
        try:
            self._bell.release()
        except RuntimeError:
            return

    def __repr__(self) -> str:
        return f"JsonLinesRecorder({self._log.path}, state={self._state}, queued={len(self._queue)}, dropped={self._refused + self._lost})"

    # ── the thread ────────────────────────────────────────────────────────────

    def _run(self) -> None:
        try:
            self._spill.adopt(self._log.path)
        except OSError as error:
            self._tell("error", "records.spill_unreadable", {"spill": str(self._spill.path), "error": _reason(error)})
        if self._spill.pending_bytes:
            self._tell("info", "records.spill_found", {"spill": str(self._spill.path), "bytes": self._spill.pending_bytes})
        while not self._closing:
            self._bell.acquire(timeout=INTERVAL_S)
            self._round()
        self._retry_at = 0.0  # the last round tries everything once more
        self._round()
        self._finish()

    def _round(self) -> None:
        try:
            self._write_waiting()
        except Exception as error:  # noqa: BLE001  outermost frame of the thread: a fault costs one batch, not every later record
            self._lost += len(self._held)
            self._tell("error", "records.writer_failed", {"error": repr(error), "records": len(self._held)})
            self._held = []

    def _write_waiting(self) -> None:
        if self._spill.pending_bytes and not self._queue and not self._held:
            self._store(b"")
        while self._held or self._queue:
            if not self._held:
                self._held = [without_credentials(self._queue.popleft(), self._mask_cause) for _ in range(min(BATCH, len(self._queue)))]
            block = self._encode(self._held)
            if not self._store(block):
                break
            self._written += len(self._held)
            self._sink.write([self._request_line(each) for each in self._held])
            self._held = []
            if not self._closing:
                if len(self._queue) < WAKE_AT:
                    break  # they wake the thread again, or wait as long as any
                time.sleep(PAUSE_S)
        self._tell_drops()

    def _encode(self, batch: list[RequestRecord]) -> bytes:
        """Encode all that can be; a record that no encoder accepts is dropped and told."""
        try:
            return self._encoder.encode_lines(batch)
        except (ValueError, TypeError):
            pass  # one of them: see which
        lines: list[bytes] = []
        for record in tuple(batch):
            try:
                lines.append(self._encoder.encode(record) + b"\n")
            except (ValueError, TypeError) as error:
                batch.remove(record)
                self._lost += 1
                self._tell("error", "records.unencodable", {"request_id": record.request_id, "error": _reason(error)})
        return b"".join(lines)

    def _store(self, block: bytes) -> bool:
        """Write to the log, else to the spill; False when neither takes it. An empty block only tries to move the spill back."""
        now = time.monotonic()
        if self._state is RecorderState.WRITING and not self._spill.pending_bytes:
            try:
                self._log.append(block)
            except OSError as error:
                self._retry_at = now + self._retry_s
                return self._store_in_spill(block, _reason(error))
            return True
        if now >= self._retry_at:
            self._retry_at = now + self._retry_s
            try:
                self._replay()
                self._log.append(block)
            except OSError as error:
                return self._store_in_spill(block, _reason(error))
            self._change(RecorderState.WRITING, "records.resumed", {"file": str(self._log.path)})
            return True
        return self._store_in_spill(block, "waiting to try again")

    def _replay(self) -> None:
        if self._spill.pending_bytes:
            self._spill.replay(self._log)

    def _store_in_spill(self, block: bytes, reason: str) -> bool:
        if not block:
            return True
        try:
            kept = self._spill.append(block)
            spill_reason = "full"
        except OSError as error:
            kept = False
            spill_reason = _reason(error)
        if kept:
            self._change(
                RecorderState.SPILLING, "records.spilling", {"file": str(self._log.path), "error": reason, "spill": str(self._spill.path)}
            )
        else:
            files: dict[str, Value] = {
                "file": str(self._log.path),
                "error": reason,
                "spill": str(self._spill.path),
                "spill_error": spill_reason,
            }
            self._change(RecorderState.STUCK, "records.stuck", files)
        return kept

    def _change(self, state: RecorderState, event: str, fields: dict[str, Value]) -> None:
        if state is not self._state:
            self._state = state
            self._tell("info" if state is RecorderState.WRITING else "error", event, fields)

    def _tell_drops(self) -> None:
        """Log that drops began, and their sum once a whole round had none."""
        refused = self._refused
        if refused > self._refused_told and not self._dropping:
            self._dropping = True
            self._tell("error", "records.dropping", {"queue": self._capacity, "file": str(self._log.path)})
        elif refused == self._refused_told and self._dropping:
            self._dropping = False
            self._tell("error", "records.dropped", {"total": refused + self._lost, "file": str(self._log.path)})
        self._refused_told = refused

    def _finish(self) -> None:
        left = len(self._held) + len(self._queue)
        if left:
            self._lost += left
            self._held = []
            self._queue.clear()
            self._tell("error", "records.lost", {"records": left, "file": str(self._log.path)})
        self._log.close()
        self._spill.close()

    def _tell(self, level: str, event: str, fields: dict[str, Value]) -> None:
        self._sink.write([self._line(self._clock(), level, event, fields)])


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
