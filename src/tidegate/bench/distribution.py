"""What many measurements come to: a record that can be written, read back and compared.

Values are seconds, or units of a currency. Where nothing was measured there is no distribution (None): nought is a measurement.
"""

from __future__ import annotations

import msgspec

from tidegate.bench.histogram import Histogram
from tidegate.bench.sample import Buckets, Count, Spread


class Distribution(msgspec.Struct, frozen=True):
    """Of `n` > 0 values. Mean, sd, least and most are exact; quantiles are within half a per cent."""

    n: Count
    mean: float
    sd: Spread
    least: float
    p50: float
    p75: float
    p90: float
    p95: float
    p99: float
    p999: float
    most: float
    buckets: Buckets
    """Everything again, for drawing, merging and judging noise."""

    @property
    def variation(self) -> float | None:
        """Give the coefficient of variation; None for a mean of 0."""
        return self.sd / self.mean if self.mean else None


class Latencies(msgspec.Struct, frozen=True):
    """The same measurements from two beginnings."""

    due: Distribution
    """From when the request was due: what a user waited."""
    sent: Distribution
    """From when it was sent: what the server took."""


class LatencyHistograms:
    """Collects what becomes `Latencies`."""

    __slots__ = ("due", "sent")

    def __init__(self) -> None:
        self.due = Histogram()
        self.sent = Histogram()

    def record(self, at: float, *, due_at: float, sent_at: float) -> None:
        self.due.record(at - due_at)
        self.sent.record(at - sent_at)

    def latencies(self) -> Latencies | None:
        due, sent = distribution(self.due), distribution(self.sent)
        return None if due is None or sent is None else Latencies(due, sent)


def distribution(histogram: Histogram) -> Distribution | None:
    """Sum up a histogram; None when it is empty."""
    if not histogram.total:
        return None
    return Distribution(
        n=histogram.total,
        mean=histogram.mean,
        sd=histogram.sd,
        least=histogram.least,
        p50=histogram.quantile(0.5),
        p75=histogram.quantile(0.75),
        p90=histogram.quantile(0.9),
        p95=histogram.quantile(0.95),
        p99=histogram.quantile(0.99),
        p999=histogram.quantile(0.999),
        most=histogram.most,
        buckets=histogram.buckets(),
    )
