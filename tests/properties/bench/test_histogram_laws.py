"""The laws of the histogram: near the truth, small, and indifferent to who recorded what."""

import math
import statistics

from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.bench.histogram import BUCKETS, LEAST_S, MOST_S, Histogram

SECONDS = st.floats(min_value=LEAST_S, max_value=MOST_S)


def of(values: list[float]) -> Histogram:
    histogram = Histogram()
    histogram.record_many(values)
    return histogram


@settings(max_examples=150)
@given(values=st.lists(SECONDS, min_size=1, max_size=60), ratio=st.floats(min_value=0.0, max_value=1.0))
def test_a_quantile_is_within_half_a_per_cent_of_the_value_of_its_rank(values: list[float], ratio: float) -> None:
    """Whatever was recorded."""
    truth = sorted(values)[max(1, math.ceil(ratio * len(values) - 1e-9)) - 1]
    assert abs(of(values).quantile(ratio) - truth) <= 0.005 * truth


@settings(max_examples=100)
@given(values=st.lists(SECONDS, min_size=1, max_size=60), cut=st.integers(min_value=0, max_value=60))
def test_merging_is_recording_together(values: list[float], cut: int) -> None:
    """Two halves merged answer as the whole does."""
    merged = of(values[:cut])
    merged.merge(of(values[cut:]).buckets())
    whole = of(values)
    assert whole.buckets().counts == merged.buckets().counts
    assert [whole.quantile(q) for q in (0.0, 0.5, 0.9, 1.0)] == [merged.quantile(q) for q in (0.0, 0.5, 0.9, 1.0)]
    assert math.isclose(whole.mean, merged.mean)


@settings(max_examples=100)
@given(values=st.lists(st.floats(min_value=-10.0, max_value=1e9), max_size=60))
def test_memory_is_bounded_and_ends_are_exact(values: list[float]) -> None:
    """Every index is one of the buckets; least, most, mean and deviation are those of the values, with 0 for what is below it."""
    histogram = of(values)
    counts = histogram.buckets().counts
    clamped = [max(0.0, value) for value in values]
    assert all(0 <= index < BUCKETS for index in counts)
    assert len(values) == sum(counts.values()) == histogram.total
    assert (min(clamped, default=0.0), max(clamped, default=0.0)) == (histogram.least, histogram.most)
    if values:
        assert math.isclose(statistics.fmean(clamped), histogram.mean, abs_tol=1e-9)
        assert math.isclose(statistics.pstdev(clamped), histogram.sd, rel_tol=1e-6, abs_tol=max(clamped) * 1e-6 + 1e-9)


@given(values=st.lists(SECONDS, min_size=1, max_size=30), one=st.floats(0, 1), other=st.floats(0, 1))
def test_quantiles_rise(values: list[float], one: float, other: float) -> None:
    """A higher quantile is never a smaller value."""
    histogram = of(values)
    low, high = sorted((one, other))
    assert histogram.quantile(low) <= histogram.quantile(high)
