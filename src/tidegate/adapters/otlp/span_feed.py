"""Follows the record files and hands what is kept of them to a collector, with a position of its own: the store does not wait for the
collector, nor the collector for the store.

How far the files are read is written down once a batch is taken or refused. While the collector is away the batch is tried again, with
growing pauses or as long as it asks for, and the files wait; what is deleted there meanwhile is counted. A batch that was taken just before
the process was killed is sent again, with the same ids.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final, Protocol

import msgspec

from tidegate.adapters.analytics.follow import Follower
from tidegate.adapters.analytics.positions import PositionFile, Positions
from tidegate.analytics.span_figures import SpanStatistics
from tidegate.analytics.spans import Span, spans_of
from tidegate.analytics.tail_sampling import TailSampling
from tidegate.domain.record import RequestRecord

KIND: Final = "requests"
BATCH_LINES: Final = 500
BATCH_BYTES: Final = 1_048_576
"""Of records. A span takes about a kilobyte and a request has two to six, so that a batch stays below what collectors take at once."""
INTERVAL_S: Final = 1.0
FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 30.0

_LOG = logging.getLogger("tidegate.recorder")
_decode = msgspec.json.Decoder(RequestRecord).decode


class Taken(msgspec.Struct, frozen=True):
    """The collector has them."""

    refused: int = 0
    """Spans that it did not want among them."""


class Rejected(msgspec.Struct, frozen=True):
    """The collector will never take these spans."""

    reason: str


class Unavailable(msgspec.Struct, frozen=True):
    """The collector may take them later."""

    reason: str
    retry_after_s: float | None = None
    """What it asks for."""


Reception = Taken | Rejected | Unavailable


class SpanReceiver(Protocol):
    def send(self, spans: list[Span], /) -> Reception: ...

    def close(self) -> None: ...


class SpanFeed:
    """`step` does what there is to do. For one thread, except `statistics`."""

    def __init__(
        self,
        records: Path,
        positions: PositionFile,
        receiver: SpanReceiver,
        *,
        sampling: TailSampling,
        batch_lines: int = BATCH_LINES,
    ) -> None:
        self._records = records
        self._positions = positions
        self._receiver = receiver
        self._sampling = sampling
        self._batch_lines = batch_lines
        self._follower: Follower | None = None
        self._spans: list[Span] | None = None
        """Of the batch that is read and not yet done with."""
        self._lost_before = 0
        self._pause_s = 0.0
        self._statistics = SpanStatistics()

    def __repr__(self) -> str:
        return f"SpanFeed({self._statistics!r})"

    def statistics(self) -> SpanStatistics:
        return self._statistics

    def step(self, *, now: float) -> float:
        """Send one batch at most; give the seconds to wait before the next step, 0 when there is more to do."""
        del now  # records have their own instants
        try:
            return self._advance()
        except OSError as error:
            return self._wait(f"{error.strerror}: {error.filename or self._records}.", None)

    def close(self) -> None:
        if self._follower is not None:
            self._follower.close()
        self._receiver.close()

    def _advance(self) -> float:
        follower = self._follower or self._begin()
        follower.look()
        self._count(backlog_bytes=follower.backlog_bytes, lost_bytes=self._lost_before + follower.lost_bytes)
        if self._spans is None and not self._read(follower):
            return self._go_on(INTERVAL_S)
        if self._spans:
            match self._receiver.send(self._spans):
                case Taken(refused=refused):
                    self._count(sent=self._statistics.sent + len(self._spans) - refused, refused=self._statistics.refused + refused)
                case Rejected(reason=reason):
                    self._count(refused=self._statistics.refused + len(self._spans))
                    _LOG.error("spans.refused spans=%d %s They are not sent again.", len(self._spans), reason)
                case Unavailable(reason=reason, retry_after_s=retry_after_s):
                    return self._wait(reason, retry_after_s)
        self._spans = []  # done with; if the position cannot be written, only that is tried again
        self._positions.write(Positions(follower.positions(), deleted=follower.deleted(), lost_bytes=self._statistics.lost_bytes))
        self._spans = None
        backlog = follower.backlog_bytes
        self._count(backlog_bytes=backlog)
        return self._go_on(0.0 if backlog else INTERVAL_S)

    def _begin(self) -> Follower:
        noted = self._positions.read()
        self._lost_before = noted.lost_bytes
        follower = self._follower = Follower(self._records, kinds=(KIND,), positions=noted)
        return follower

    def _read(self, follower: Follower) -> bool:
        """Make the spans of the next lines; False when there are none."""
        lines = follower.read(max_lines=self._batch_lines, max_bytes=BATCH_BYTES)
        spans: list[Span] = []
        kept = passed_over = unreadable = 0
        for line in lines:
            try:
                record = _decode(line.text)
                kept_for = self._sampling.judge(record)
                made = spans_of(record, kept_for) if kept_for is not None else ()
            except (ValueError, RecursionError):
                unreadable += bool(line.text.strip())
                continue
            spans += made
            kept, passed_over = kept + bool(made), passed_over + (not made)
        if not lines:
            return False
        self._spans = spans
        before = self._statistics
        self._count(kept=before.kept + kept, passed_over=before.passed_over + passed_over, unreadable=before.unreadable + unreadable)
        return True

    def _go_on(self, pause_s: float) -> float:
        if self._statistics.trouble:
            _LOG.info("spans.resumed backlog_bytes=%d", self._statistics.backlog_bytes)
        self._pause_s = 0.0
        self._count(trouble="")
        return pause_s

    def _wait(self, trouble: str, wish_s: float | None) -> float:
        if trouble != self._statistics.trouble:
            _LOG.warning("spans.waiting %s Records wait in their files.", trouble)
        self._count(trouble=trouble)
        self._pause_s = min(2 * self._pause_s or FIRST_PAUSE_S, LONGEST_PAUSE_S)
        return max(self._pause_s, wish_s or 0.0)

    def _count(self, **changes: object) -> None:
        self._statistics = msgspec.structs.replace(self._statistics, **changes)
