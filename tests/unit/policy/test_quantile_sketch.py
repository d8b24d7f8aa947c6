"""The sketch's arithmetic: what it remembers, what it forgets, and when it says nothing."""

from __future__ import annotations

import sys

from tidegate.policy.metering.quantile_sketch import BOUNDS, HALF_LIFE_S, QuantileSketch


def sketch_of(*values: int) -> QuantileSketch:
    sketch = QuantileSketch(now=0.0)
    for value in values:
        sketch.record(value, now=0.0)
    return sketch


def test_nothing_is_said_before_enough_was_seen() -> None:
    """Nine tenths can be told from nine values at the earliest: the tenth is the one to come."""
    assert sketch_of().quantile(0.5) is None
    assert sketch_of(*[5] * 8).quantile(0.9) is None
    assert sketch_of(*[5] * 10).quantile(0.9) == 5


def test_a_quantile_is_the_bound_of_its_bucket() -> None:
    """Small values are exact, large ones rounded up by at most a tenth."""
    assert sketch_of(*[7] * 20).quantile(0.9) == 7
    assert 1000 <= (sketch_of(*[1000] * 20).quantile(0.9) or 0) <= 1100


def test_the_longest_answers_are_as_long_as_the_last_bucket() -> None:
    """A value beyond all bounds counts as the largest."""
    assert sketch_of(*[10**9] * 20).quantile(0.9) == BOUNDS[-1] == 131_072


def test_an_empty_answer_is_a_value_too() -> None:
    """Zero has its own bucket."""
    assert sketch_of(*[0] * 20).quantile(0.9) == 0


def test_a_few_hundred_later_values_outweigh_earlier_ones() -> None:
    """After a change, the quantile follows within two half-lives of 512 values."""
    sketch = sketch_of(*[1000] * 2000, *[10] * 2000)
    assert sketch.quantile(0.9) == 10


def test_time_outweighs_too() -> None:
    """Thirty values of this evening say more than a thousand of yesterday."""
    sketch = sketch_of(*[1000] * 1000)
    for _ in range(30):
        sketch.record(10, now=12 * HALF_LIFE_S)
    assert sketch.quantile(0.9) == 10


def test_the_weight_stays_bounded_however_many_values_come() -> None:
    """It approaches the sum of a geometric row and survives being scaled down, at once or after a very long pause."""
    sketch = sketch_of(*[10] * 12_000)
    assert 735 < sketch.weight() < 743
    sketch.record(10, now=1e9)
    assert 1.0 <= sketch.weight() < 1.001


def test_a_clock_that_goes_back_makes_nothing_younger() -> None:
    """An earlier `now` counts as the latest one."""
    sketch = sketch_of(*[10] * 30)
    weight = sketch.weight()
    sketch.record(10, now=-HALF_LIFE_S)
    assert weight < sketch.weight() < weight + 1


def test_a_sketch_is_small() -> None:
    """Hundreds of bytes, so that thousands of groups fit into a worker."""
    sketch = sketch_of(1, 2, 3)
    assert sys.getsizeof(sketch) + sys.getsizeof(sketch._weights) < 800
    assert repr(sketch) == "QuantileSketch(weight=3.0)"
