"""Times and lengths that are drawn: a plain number, or one of four distributions with bounds.

A `Distribution` is written in a script exactly as it is declared here: `{lognormal: [0.3, 0.8], max: 10}`. Nothing is drawn except from
the generator that the caller gives, so that a seed decides everything.
"""

from __future__ import annotations

import math
import random
from typing import Annotated

import msgspec
from msgspec import Meta


class Distribution(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One of `uniform`, `normal`, `lognormal`, `exponential`; what is drawn is moved into `min` … `max`."""

    uniform: tuple[float, float] | None = None
    """(low, high)"""
    normal: tuple[float, float] | None = None
    """(mean, standard deviation)"""
    lognormal: tuple[float, float] | None = None
    """(median, standard deviation of the logarithm)"""
    exponential: float | None = None
    """The mean."""
    min: Annotated[float, Meta(ge=0)] = 0.0
    max: float | None = None

    def __post_init__(self) -> None:
        given = [name for name in _NAMES if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"a distribution is exactly one of {', '.join(_NAMES)}, with min and max beside it")
        if self.uniform is not None and self.uniform[0] > self.uniform[1]:
            raise ValueError("uniform is [low, high], and low is above high")
        if self.lognormal is not None and self.lognormal[0] <= 0:
            raise ValueError("lognormal is [median, sigma], and the median is not above 0")
        if self.max is not None and self.max < self.min:
            raise ValueError("max is below min")

    def sample(self, rng: random.Random) -> float:
        """Draw once."""
        if self.uniform is not None:
            value = rng.uniform(*self.uniform)
        elif self.normal is not None:
            value = rng.gauss(*self.normal)
        elif self.lognormal is not None:
            value = rng.lognormvariate(math.log(self.lognormal[0]), self.lognormal[1])
        else:
            mean = self.exponential or 0.0
            value = rng.expovariate(1.0 / mean) if mean > 0 else 0.0
        return max(self.min, value if self.max is None else min(value, self.max))


Drawn = float | Distribution
"""A number, or what it is drawn from."""

_NAMES = ("uniform", "normal", "lognormal", "exponential")


def draw(what: Drawn, rng: random.Random) -> float:
    """Give the number itself, or one that is drawn."""
    return what.sample(rng) if isinstance(what, Distribution) else what


def uniform(low: float, high: float) -> Distribution:
    """Draw evenly between `low` and `high`."""
    return Distribution(uniform=(low, high))


def normal(mean: float, deviation: float) -> Distribution:
    """Draw from a normal distribution, never below 0."""
    return Distribution(normal=(mean, deviation))


def lognormal(median: float, sigma: float) -> Distribution:
    """Draw from a lognormal distribution: `sigma` is the standard deviation of the logarithm."""
    return Distribution(lognormal=(median, sigma))


def exponential(mean: float) -> Distribution:
    """Draw from an exponential distribution."""
    return Distribution(exponential=mean)
