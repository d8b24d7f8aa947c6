"""When requests arrive: evenly, by chance, in bursts, or along any rate curve. Seconds from the run's origin, in order.

Pure: chance comes from the generator that is given, time from nowhere. Nothing is rescaled to fit a number of requests: that would take the
chance out of the sum, and the arrivals would no longer be what they are called. All are iterators, so that a caller stops where it likes.

Invariants: every instant is at least 0 and below the length; the expected number is the integral of the rate, also with bursts, because the
first gap is that of a process which has been going on for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count, takewhile
from random import Random

import msgspec


class Piece(msgspec.Struct, frozen=True):
    """A stretch of a rate curve, on which the rate goes straight from one value to the other."""

    begins_s: float
    length_s: float
    from_per_s: float
    to_per_s: float

    @property
    def ends_s(self) -> float:
        return self.begins_s + self.length_s

    @property
    def expected(self) -> float:
        """Give the mean number of arrivals."""
        return self.length_s * (self.from_per_s + self.to_per_s) / 2

    def rate(self, at_s: float) -> float:
        """Give the rate at an instant of the piece."""
        return self.from_per_s + (self.to_per_s - self.from_per_s) * (at_s - self.begins_s) / self.length_s


def constant(rate_per_s: float, length_s: float) -> Iterator[float]:
    """Arrive evenly, the first at 0. Each instant is computed by itself, so that no error adds up."""
    return takewhile(lambda at_s: at_s < length_s, (number / rate_per_s for number in count()))


def gamma(rate_per_s: float, length_s: float, *, shape: float, rng: Random) -> Iterator[float]:
    """Arrive with gaps of a gamma distribution: their coefficient of variation is 1/sqrt(shape), so below 1 they come in bursts."""
    scale = 1.0 / (rate_per_s * shape)
    at_s = rng.random() * rng.gammavariate(shape + 1.0, scale)  # what is left of a gap that one happens upon
    while at_s < length_s:
        yield at_s
        at_s += rng.gammavariate(shape, scale)


def poisson(rate_per_s: float, length_s: float, rng: Random) -> Iterator[float]:
    """Arrive independently of each other."""
    at_s = rng.expovariate(rate_per_s)
    while at_s < length_s:
        yield at_s
        at_s += rng.expovariate(rate_per_s)


def thinned(rate: Callable[[float], float], begins_s: float, length_s: float, *, bound_per_s: float, rng: Random) -> Iterator[float]:
    """Arrive independently at a rate that changes and never exceeds `bound_per_s` (thinning, Lewis and Shedler 1979)."""
    for after_s in poisson(bound_per_s, length_s, rng):
        at_s = begins_s + after_s
        if rng.random() * bound_per_s < rate(at_s):
            yield at_s


def along(pieces: Iterable[Piece], rng: Random) -> Iterator[float]:
    """Arrive independently along a curve. Each piece is thinned from its own highest rate: at most half of what is drawn is thrown away."""
    for piece in pieces:
        bound = max(piece.from_per_s, piece.to_per_s)
        if bound > 0 and piece.length_s > 0:
            yield from thinned(piece.rate, piece.begins_s, piece.length_s, bound_per_s=bound, rng=rng)
