"""What is drawn: the shapes, their bounds, and that a seed decides."""

from __future__ import annotations

import random
import statistics

import msgspec
import pytest

from tidegate.mock.distribution import Distribution, draw, exponential, lognormal, normal, uniform

DRAWS = 4_000


def drawn(what: Distribution, seed: int = 1) -> list[float]:
    rng = random.Random(seed)
    return [what.sample(rng) for _ in range(DRAWS)]


@pytest.mark.parametrize(
    ("what", "mean"),
    [(uniform(1, 3), 2.0), (normal(2, 0.2), 2.0), (exponential(0.5), 0.5), (lognormal(1.0, 0.5), 1.133)],
)
def test_each_distribution_has_its_mean(what: Distribution, mean: float) -> None:
    """The mean of many draws is the distribution's."""
    assert statistics.fmean(drawn(what)) == pytest.approx(mean, rel=0.05)


def test_the_median_of_a_lognormal_is_its_first_figure() -> None:
    """Half of the draws are below."""
    assert statistics.median(drawn(lognormal(0.3, 0.8))) == pytest.approx(0.3, rel=0.1)


def test_bounds_hold() -> None:
    """Never below `min`, which is 0 unless given, nor above `max`."""
    assert min(drawn(normal(0, 1))) == 0.0
    bounded = drawn(Distribution(exponential=1.0, min=0.5, max=2.0))
    assert (min(bounded), max(bounded)) == (0.5, 2.0)


def test_a_seed_decides() -> None:
    """The same seed gives the same draws, another one others; a number is itself and draws nothing."""
    assert drawn(lognormal(1, 1), 5) == drawn(lognormal(1, 1), 5)
    assert drawn(lognormal(1, 1), 5) != drawn(lognormal(1, 1), 6)
    rng = random.Random(3)
    before = rng.getstate()
    assert draw(0.25, rng) == 0.25
    assert rng.getstate() == before
    assert exponential(0).sample(rng) == 0.0


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ({}, "exactly one of"),
        ({"uniform": [0, 1], "normal": [0, 1]}, "exactly one of"),
        ({"uniform": [2, 1]}, "low is above high"),
        ({"lognormal": [0, 1]}, "median is not above 0"),
        ({"exponential": 1, "min": 2, "max": 1}, "max is below min"),
    ],
)
def test_what_is_no_distribution_is_refused(raw: object, why: str) -> None:
    """Each contradiction is named."""
    with pytest.raises(msgspec.ValidationError, match=why):
        msgspec.convert(raw, Distribution)
