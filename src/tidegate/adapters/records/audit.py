"""Keeps bodies by policy: masked and appended to `<directory>/audit-<worker>.jsonl` by a thread.

The event loop only puts a reference in a queue, which is bounded in bytes; what does not fit is dropped, counted and told. The thread takes
one request's bodies at a time and works in steps of a fraction of a millisecond: it shares the interpreter with the event loop. While the
file cannot be written, the queue fills; every change of state is one log line. Killing the process loses at most what is in the queue.

Invariants: what leaves the queue was masked by its policy; `set_aside` and `give_back` balance; nothing is kept twice.
"""

from __future__ import annotations

import hashlib
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from tidegate.adapters.records.files import RotatingFile
from tidegate.adapters.records.lines import LogFormat, Value, line_format, masked
from tidegate.adapters.records.sink import LogSink
from tidegate.domain.audit import AuditPolicy, AuditRules
from tidegate.domain.request import Operation
from tidegate.ports import AuditedBodies
from tidegate.wire.audit_text import Mask, stream_text, summary, whole_text
from tidegate.wire.masking import Masker, mask_credentials

INTERVAL_S = 0.1
"""Longest time bodies wait for the thread when all is well."""
RETRY_S = 1.0
"""Time between two tries of a file that failed."""
JOIN_S = 5.0
_OF_DEADLINE = 0.8  # from then on what is left is only counted
OVERHEAD_BYTES = 1_024
"""Counted for each request beside its bodies, so that any number of small ones is bounded, too."""
SHORTEST_SECRET = 8
"""Shorter ones would be found in ordinary words."""


class AuditSettings(msgspec.Struct, frozen=True):
    """What a configuration says of audit; replaced as a whole at a reload."""

    rules: AuditRules = AuditRules()
    masker: Masker = msgspec.field(default_factory=Masker)
    secrets: tuple[str, ...] = ()
    """Credentials of the gateway itself: a server may repeat in its answer what it was sent."""
    max_body_bytes: int = 65_536

    def redacted(self, text: str) -> str:
        """Mask what no text may show that people are to read."""
        return self.masker.mask(self.without_our_own(text))

    def without_our_own(self, text: str) -> str:
        """Mask the gateway's own credentials."""
        for secret in self.secrets:
            text = text.replace(secret, "[key]")
        return text


class AuditStatistics(msgspec.Struct, frozen=True):
    queued_bytes: int = 0
    written: int = 0
    """Bodies."""
    dropped: int = 0
    """Bodies that found no room, could not be kept, or were left at the end."""
    stuck: bool = False
    """The file cannot be written; bodies wait in memory."""


class KeptBody(msgspec.Struct, frozen=True):
    """One line."""

    request_id: str
    started_at: float
    kind: str
    policy: AuditPolicy
    body: str
    truncated: bool
    bytes: int
    """Of the whole body, as it came or went."""
    sha256: str
    """Likewise."""


class BodyRecorder:
    """A `ports.Auditor`. All but the thread's own methods belong to one thread (the event loop's)."""

    def __init__(
        self,
        directory: Path,
        *,
        worker: int,
        max_file_bytes: int,
        keep_files: int,
        queue_bytes: int,
        sink: LogSink,
        log_format: LogFormat = LogFormat.LOGFMT,
        clock: Callable[[], float],
        retry_s: float = RETRY_S,
    ) -> None:
        """`clock` gives seconds since the epoch, for log lines about the recorder itself."""
        self._file = RotatingFile(directory / f"audit-{worker}.jsonl", max_bytes=max_file_bytes, keep_files=keep_files)
        self._settings = AuditSettings()
        self.max_body_bytes = self._settings.max_body_bytes
        self._queue: deque[tuple[AuditedBodies, int]] = deque()  # bounded in bytes by `keep`
        self._capacity = queue_bytes
        self._sink = sink
        self._line = line_format(log_format)
        self._clock = clock
        self._retry_s = retry_s
        self._wake = threading.Event()
        self._closing = False
        self._give_up_at = math.inf
        self._writer = threading.Thread(target=self._run, name=f"audit-{worker}", daemon=True)
        self._encoder = msgspec.json.Encoder()
        # One counter for each thread: `+=` on a shared one could lose a count.
        self._taken = 0
        self._freed = 0
        self._refused = 0
        self._lost = 0
        self._written = 0
        self._refused_told = 0
        self._dropping = False
        self._stuck = False

    def __repr__(self) -> str:
        return f"BodyRecorder({self._file.path}, {self.statistics()!r})"

    def configure(self, settings: AuditSettings) -> None:
        """Use these from now on; what waits is masked by them, too."""
        self._settings = settings
        self.max_body_bytes = settings.max_body_bytes
        if settings.rules.keep_something and self._writer.ident is None:
            self._writer.start()

    def close(self, *, deadline_s: float = JOIN_S) -> bool:
        """Write what waits, then stop; False when that took longer than `deadline_s` and bodies were left behind. Blocks."""
        self._give_up_at = time.monotonic() + deadline_s * _OF_DEADLINE
        self._closing = True
        self._wake.set()
        if self._writer.ident is None:
            return not self._queue
        self._writer.join(deadline_s)
        return not self._writer.is_alive() and not self._queue

    def statistics(self) -> AuditStatistics:
        return AuditStatistics(self._taken - self._freed, self._written, self._refused + self._lost, self._stuck)

    # ── ports.Auditor ─────────────────────────────────────────────────────────

    def policy(self, tenant: str, route: str) -> AuditPolicy:
        return self._settings.rules.policy_for(tenant, route)

    def set_aside(self, size: int) -> bool:
        if self._taken - self._freed + size > self._capacity:
            return False
        self._taken += size
        return True

    def give_back(self, size: int) -> None:
        self._taken -= size

    def keep(self, bodies: AuditedBodies, *, set_aside: int) -> None:
        size = len(bodies.request) + len(bodies.answer or b"") + OVERHEAD_BYTES
        if not self.set_aside(size - set_aside):
            self.give_back(set_aside)
            self._refused += 1 if bodies.answer is None else 2
            return
        self._queue.append((bodies, size))

    # ── the thread ────────────────────────────────────────────────────────────

    def _run(self) -> None:
        while not self._closing:
            self._wake.wait(INTERVAL_S)
            self._write_waiting()
            self._tell_drops()
        self._write_waiting()
        self._finish()

    def _write_waiting(self) -> None:
        while self._queue and time.monotonic() < self._give_up_at:
            bodies, size = self._queue[0]
            count = 1 if bodies.answer is None else 2
            try:
                block = b"".join([self._encoder.encode(line) + b"\n" for line in kept_bodies(bodies, self._settings)])
            except Exception as error:  # noqa: BLE001  outermost frame of the thread: a fault costs one request's bodies, not all later ones
                self._lost += count
                # The type alone: a fault's text may repeat what it was about.
                self._tell("error", "audit.unreadable", {"request_id": masked(bodies.request_id), "error": type(error).__name__})
            else:
                if not self._append(block):
                    return
                self._written += count
            self._queue.popleft()
            self._freed += size

    def _append(self, block: bytes) -> bool:
        """Write, and try again until it works; False when the end came first."""
        while True:
            try:
                self._file.append(block)
            except OSError as error:
                if not self._stuck:
                    self._stuck = True
                    self._tell("error", "audit.stuck", {"file": str(self._file.path), "error": error.strerror or str(error)})
            else:
                if self._stuck:
                    self._stuck = False
                    self._tell("info", "audit.resumed", {"file": str(self._file.path)})
                return True
            if self._closing:
                return False
            self._tell_drops()
            self._wake.wait(self._retry_s)

    def _tell_drops(self) -> None:
        """Log that drops began, and their sum once a whole round had none."""
        refused = self._refused
        if refused > self._refused_told and not self._dropping:
            self._dropping = True
            self._tell("error", "audit.dropping", {"queue_bytes": self._capacity, "file": str(self._file.path)})
        elif refused == self._refused_told and self._dropping:
            self._dropping = False
            self._tell("error", "audit.dropped", {"total": refused + self._lost, "file": str(self._file.path)})
        self._refused_told = refused

    def _finish(self) -> None:
        left = sum(1 if bodies.answer is None else 2 for bodies, _ in self._queue)
        if left:
            self._lost += left
            self._freed += sum(size for _, size in self._queue)
            self._queue.clear()
            self._tell("error", "audit.lost", {"bodies": left, "file": str(self._file.path)})
        self._file.close()

    def _tell(self, level: str, event: str, fields: dict[str, Value]) -> None:
        self._sink.write([self._line(self._clock(), level, event, fields)])


def kept_bodies(bodies: AuditedBodies, settings: AuditSettings) -> Sequence[KeptBody]:
    """Give what is kept of a request, and of its answer if there was one."""
    request_id = masked(bodies.request_id)
    mask = _mask(bodies.policy, settings)
    text, cut = _text(bodies.request, len(bodies.request), settings.max_body_bytes)
    request = summary(bodies.request) if mask is None else whole_text(text, mask, cut=cut)
    lines = [
        KeptBody(
            request_id=request_id,
            started_at=bodies.started_at,
            kind="request",
            policy=bodies.policy,
            body=request,
            truncated=mask is not None and cut,
            bytes=len(bodies.request),
            sha256=hashlib.sha256(bodies.request).hexdigest(),
        )
    ]
    if bodies.answer is None:
        return lines
    text, cut = _text(bodies.answer, bodies.answer_bytes, settings.max_body_bytes)
    if mask is None or (bodies.operation == Operation.EMBEDDING and bodies.status == _OK):  # a vector has no text
        answer, cut = f'{{"status":{bodies.status}}}', False
    else:
        answer = (stream_text if bodies.is_stream else whole_text)(text, mask, cut=cut)
    lines.append(
        KeptBody(
            request_id=request_id,
            started_at=bodies.started_at,
            kind="response",
            policy=bodies.policy,
            body=answer,
            truncated=cut,
            bytes=bodies.answer_bytes,
            sha256=bodies.answer_sha256 or hashlib.sha256(bodies.answer).hexdigest(),
        )
    )
    return lines


_OK = 200


def _text(body: bytes, size: int, bound: int) -> tuple[bytes, bool]:
    """Give the beginning that is kept, and whether there is more."""
    return body[:bound], size > min(len(body), bound)


def _mask(policy: AuditPolicy, settings: AuditSettings) -> Mask | None:
    """Give what masks texts under a policy; None where none are kept."""
    if policy not in (AuditPolicy.REDACTED, AuditPolicy.FULL):
        return None
    if policy is AuditPolicy.REDACTED:
        return settings.redacted
    return lambda text: mask_credentials(settings.without_our_own(text))
