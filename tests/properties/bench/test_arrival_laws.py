"""Laws of arrivals: they are what they are called, and chance in them is neither lost nor added."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from itertools import islice, pairwise
from random import Random
from statistics import fmean, pstdev, pvariance

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.bench.arrivals import Piece, along, constant, gamma, poisson, thinned
from tidegate.bench.day_curve import three_peak_day
from tidegate.bench.load_options import Load, LoadOptions
from tidegate.bench.plan import Plan
from tidegate.bench.planning import make_plan


def _counts(dues: Sequence[float], width_s: float, length_s: float) -> list[int]:
    counts = [0] * round(length_s / width_s)
    for due_s in dues:
        counts[int(due_s / width_s)] += 1
    return counts


def _dispersion(dues: Sequence[float], width_s: float, length_s: float) -> float:
    """Give the variance of counts over their mean: 1 of a Poisson process, whatever the width."""
    counts = _counts(dues, width_s, length_s)
    return pvariance(counts) / fmean(counts)


def _is_likely(counts: Sequence[int], expected: Sequence[float]) -> bool:
    """Judge by chi-squared, whose mean is the number of bins and whose variance twice that: within three deviations of what is expected."""
    distance: float = sum((count - mean) ** 2 / mean for count, mean in zip(counts, expected, strict=True))
    return abs(distance - len(counts)) < 3 * math.sqrt(2 * len(counts))


@cache
def _poisson_plan() -> Plan:
    return make_plan(LoadOptions(load=Load.POISSON, rate_per_s=8, length_s=5_000, seed=11))


@pytest.mark.parametrize("width_s", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("clients", [1, 4, 10])
def test_poisson_is_neither_more_nor_less_dispersed(width_s: float, clients: int) -> None:
    """Law: the index of dispersion is 1 within a tenth at any width, also after sharing out by index over many clients."""
    plan = _poisson_plan()
    shares = [[request.due_s for request in plan.requests if request.index % clients == client] for client in range(clients)]
    merged = sorted(due_s for share in shares for due_s in share)
    assert pytest.approx(1.0, abs=0.1) == _dispersion(merged, width_s, plan.length_s)
    assert pytest.approx(8, rel=0.02) == len(merged) / plan.length_s


@given(st.floats(0.01, 5_000), st.floats(0.01, 20))
def test_constant_is_constant(rate: float, length_s: float) -> None:
    """Law: request number n is due at n / rate, exactly, as long as that is before the end."""
    dues = list(islice(constant(rate, length_s), 2_000))
    assert [number / rate for number in range(len(dues))] == dues
    assert len(dues) == 2_000 or len(dues) / rate >= length_s


@pytest.mark.parametrize("shape", [0.1, 0.5, 1.0, 4.0])
def test_gamma_has_the_variation_of_its_shape(shape: float) -> None:
    """Law: the gaps' mean is 1/rate and their coefficient of variation 1/sqrt(shape)."""
    dues = list(gamma(50, 1_000, shape=shape, rng=Random(5)))
    gaps = [later - earlier for earlier, later in pairwise(dues)]
    assert pytest.approx(1 / 50, rel=0.03) == fmean(gaps)
    assert pytest.approx(shape**-0.5, rel=0.03) == pstdev(gaps) / fmean(gaps)


def test_gamma_of_shape_one_is_poisson() -> None:
    """Law: with shape 1 the index of dispersion is that of Poisson, and the gaps remember nothing."""
    dues = list(gamma(8, 5_000, shape=1.0, rng=Random(3)))
    assert pytest.approx(1.0, abs=0.1) == _dispersion(dues, 1.0, 5_000)
    gaps = [later - earlier for earlier, later in pairwise(dues)]
    mean = fmean(gaps)
    memory = fmean((one - mean) * (other - mean) for one, other in pairwise(gaps)) / pvariance(gaps)
    assert abs(memory) < 3 / len(gaps) ** 0.5


@pytest.mark.parametrize("shape", [0.05, 1.0, 20.0])
def test_gamma_sends_its_rate_from_the_first_second(shape: float) -> None:
    """Law: over many short runs, the mean number is rate times length, however bursty it is."""
    numbers = [len(list(gamma(5, 2.0, shape=shape, rng=Random(seed)))) for seed in range(3_000)]
    assert abs(fmean(numbers) - 10) < 4 * pstdev(numbers) / len(numbers) ** 0.5


def test_thinning_follows_the_curve() -> None:
    """Law: the numbers in 96 quarters of an hour of a day are those of the curve, by chi-squared."""
    day = three_peak_day().played(100_000 / 86_400, 1.0)
    dues = list(along(day.pieces, Random(17)))
    expected = [sum(day.rate(begins + step) for step in range(30, 900, 60)) * 60 for begins in range(0, 86_400, 900)]
    assert _is_likely(_counts(dues, 900, 86_400), expected)
    assert dues == sorted(dues)


def test_thinning_takes_any_rate() -> None:
    """Law: a rate that is no straight line is followed as well, from wherever it begins."""
    dues = list(thinned(lambda at_s: (at_s - 10) ** 2, 10.0, 20.0, bound_per_s=400, rng=Random(2)))
    expected = [((begins + 1) ** 3 - begins**3) / 3 for begins in range(2, 20)]
    assert _is_likely(_counts([due_s - 10 for due_s in dues], 1.0, 20.0)[2:], expected)


@pytest.mark.parametrize(("first", "last"), [(0, 200), (200, 0), (50, 150), (80, 80)])
def test_a_ramp_integrates_right(first: float, last: float) -> None:
    """Law: the numbers of each second are those under the line, and so is their sum."""
    ramp = Piece(0.0, 100.0, first, last)
    dues = list(along([ramp], Random(23)))
    expected = [ramp.rate(begins + 0.5) for begins in range(100)]
    assert _is_likely(_counts(dues, 1.0, 100.0), expected)
    assert abs(len(dues) - ramp.expected) < 3 * ramp.expected**0.5


@given(
    st.lists(st.tuples(st.floats(0, 3), st.floats(0, 60), st.floats(0, 60)), max_size=6),
    st.integers(0, 99),
)
def test_arrivals_are_in_order_and_within_their_pieces(shapes: list[tuple[float, float, float]], seed: int) -> None:
    """Law: along any curve, instants never go back, and none falls where the rate is 0 all along."""
    pieces: list[Piece] = []
    for length_s, first, last in shapes:
        pieces.append(Piece(pieces[-1].ends_s if pieces else 0.0, length_s, first, last))
    dues = list(along(pieces, Random(seed)))
    assert dues == sorted(dues)
    assert all(any(piece.begins_s <= due_s <= piece.ends_s and piece.expected > 0 for piece in pieces) for due_s in dues)


def test_poisson_ends_with_its_length() -> None:
    """Law: every instant is at least 0 and below the length."""
    assert all(0 <= due_s < 3 for seed in range(200) for due_s in poisson(7, 3, Random(seed)))
