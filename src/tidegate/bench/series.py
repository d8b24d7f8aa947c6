"""How a run went over time: counts by second, and by longer bins when the run is long.

First tokens are filed by when their request was *due*: a stall shows at the second whose users waited.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tidegate.bench.bins import Bins
from tidegate.bench.histogram import Histogram
from tidegate.bench.outcome import Judged, Outcome

MOST_BINS: Final = 600
"""Ten minutes by second, and about as many points as a plot has room for."""


class SeriesPoint(msgspec.Struct, frozen=True):
    """One bin."""

    at_s: float
    """Where it begins."""
    due_per_s: float
    sent_per_s: float
    ok_per_s: float
    good_per_s: float
    failed_per_s: float
    tokens_out_per_s: float
    """Of the answers that ended in it, by their usage."""
    in_flight: int
    """At its end."""
    answers: int
    """Due in it."""
    e2e_mean_s: float | None
    """Of those, from due."""
    ttft_p50_s: float | None
    ttft_p99_s: float | None


class Series(msgspec.Struct, frozen=True):
    """All of them, in order, without gaps; the last may be of a part of its width only."""

    width_s: float
    points: tuple[SeriesPoint, ...]


class _Bin:
    __slots__ = ("answers", "due", "e2e_s", "failed", "good", "ok", "sent", "tokens_out", "ttft")

    def __init__(self) -> None:
        self.due = self.sent = self.ok = self.good = self.failed = self.tokens_out = self.answers = 0
        self.e2e_s = 0.0
        self.ttft = Histogram()

    def take(self, other: _Bin) -> None:
        self.due += other.due
        self.sent += other.sent
        self.ok += other.ok
        self.good += other.good
        self.failed += other.failed
        self.tokens_out += other.tokens_out
        self.answers += other.answers
        self.e2e_s += other.e2e_s
        self.ttft.merge(other.ttft.buckets())


class TimeSeries:
    """Collects requests into bins."""

    def __init__(self) -> None:
        self._bins = Bins(_Bin, width_s=1.0, most=MOST_BINS)

    def __repr__(self) -> str:
        return f"TimeSeries({self._bins!r})"

    def add(self, judged: Judged) -> None:
        """File a request, one that was not sent too: it was due."""
        sample = judged.sample
        self._bins.at(sample.due_at).due += 1
        if judged.outcome is Outcome.NOT_SENT:
            return
        self._bins.at(sample.sent_at).sent += 1
        ended = self._bins.at(sample.ended_at)
        ended.tokens_out += sample.completion_tokens or 0
        if judged.outcome is Outcome.OK:
            ended.ok += 1
            ended.good += judged.good
        else:
            ended.failed += 1
        if judged.answered:
            due = self._bins.at(sample.due_at)
            due.answers += 1
            due.e2e_s += sample.ended_at - sample.due_at
            if judged.first_at is not None:
                due.ttft.record(judged.first_at - sample.due_at)

    def series(self) -> Series:
        points: list[SeriesPoint] = []
        width = self._bins.width_s
        in_flight = 0
        for index, one in enumerate(self._bins.bins):
            in_flight += one.sent - one.ok - one.failed
            points.append(
                SeriesPoint(
                    at_s=index * width,
                    due_per_s=one.due / width,
                    sent_per_s=one.sent / width,
                    ok_per_s=one.ok / width,
                    good_per_s=one.good / width,
                    failed_per_s=one.failed / width,
                    tokens_out_per_s=one.tokens_out / width,
                    in_flight=in_flight,
                    answers=one.answers,
                    e2e_mean_s=one.e2e_s / one.answers if one.answers else None,
                    ttft_p50_s=one.ttft.quantile(0.5) if one.ttft.total else None,
                    ttft_p99_s=one.ttft.quantile(0.99) if one.ttft.total else None,
                )
            )
        return Series(width, tuple(points))
