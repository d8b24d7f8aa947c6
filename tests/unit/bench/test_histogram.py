"""The histogram's edges, one by one."""

import pytest

from tidegate.bench.histogram import BUCKETS, Histogram
from tidegate.bench.sample import Buckets


def test_an_empty_histogram_answers_with_zeros() -> None:
    """Nothing was recorded: no figure invents a value."""
    empty = Histogram()
    assert (0, 0.0, 0.0, 0.0, 0.0, 0.0) == (empty.total, empty.mean, empty.sd, empty.least, empty.most, empty.quantile(0.5))


def test_it_can_go_on_from_what_another_gave() -> None:
    """Buckets are all of it."""
    first = Histogram()
    first.record_many([0.1, 0.2, 0.3])
    second = Histogram(first.buckets())
    second.merge(Histogram().buckets())
    assert first.buckets() == second.buckets()
    assert "<Histogram of 3: p50 0.2" in repr(second)


def test_an_hour_and_more_share_the_last_bucket() -> None:
    """The bound of memory is the bound of time."""
    long = Histogram()
    long.record_many([3600.0, 7200.0])
    assert {BUCKETS - 1: 2} == long.buckets().counts
    assert 7200.0 == long.most


def test_foreign_buckets_are_refused() -> None:
    """An index that no value of ours has is a broken contract."""
    foreign = Buckets(counts={BUCKETS: 1}, total=1, sum=1.0, sum_of_squares=1.0, least=1.0, most=1.0)
    with pytest.raises(AssertionError, match="another kind"):
        Histogram().merge(foreign)
