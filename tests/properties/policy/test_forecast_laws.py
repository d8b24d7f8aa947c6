"""Laws of the learned reserve: its promise holds, it is never short of the exact quantile, and it has no clock and no chance of its own."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.domain.units import ModelName, TenantId
from tidegate.policy.metering.forecast import LearnedForecast
from tidegate.policy.metering.quantile_sketch import BOUNDS, QuantileSketch

MODEL = ModelName("model")

LENGTHS: dict[str, Callable[[Random], int]] = {
    "log-normal": lambda rng: int(rng.lognormvariate(5, 1)),
    "exponential": lambda rng: int(rng.expovariate(1 / 200)),
    "two kinds": lambda rng: rng.randrange(5, 15) if rng.random() < 0.7 else rng.randrange(300, 3000),
    "all alike": lambda _: 77,
    "heavy tail": lambda rng: int(20 * rng.paretovariate(1.1)),
}


@pytest.mark.parametrize("quantile", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("kind", LENGTHS)
def test_at_most_the_promised_share_is_longer(kind: str, quantile: float) -> None:
    """Law: on random lengths of one kind, the share of answers above the forecast is at most 1 - quantile; three deviations are allowed."""
    rng = Random(2023)
    forecast = LearnedForecast(quantile, 1024)
    for number in range(20_000):
        forecast.observe(TenantId("t"), "r", MODEL, prompt_tokens=100, completion_tokens=LENGTHS[kind](rng), cut=False, now=number * 0.1)
    statistics = forecast.statistics()
    deviation = (quantile * (1 - quantile) / statistics.foreseen) ** 0.5
    assert statistics.exceeded / statistics.foreseen <= 1 - quantile + 3 * deviation


@pytest.mark.parametrize("kind", LENGTHS)
def test_the_promise_holds_for_short_histories_too(kind: str) -> None:
    """Law: over many tenants of which each is just known, the share that exceeds the forecast is at most 1 - quantile."""
    foreseen = exceeded = 0
    for seed in range(400):
        rng = Random(seed)
        forecast = LearnedForecast(0.9, 1024)
        for _ in range(64):
            forecast.observe(TenantId("t"), "r", MODEL, prompt_tokens=100, completion_tokens=LENGTHS[kind](rng), cut=False, now=0.0)
        foreseen += forecast.statistics().foreseen
        exceeded += forecast.statistics().exceeded
    assert foreseen == 400 * 32
    assert exceeded / foreseen <= 0.1 + 3 * (0.09 / 400) ** 0.5 / 2  # answers of one tenant share a forecast: between 400 and 12,800 draws


@given(st.lists(st.integers(0, BOUNDS[-1]), min_size=30, max_size=200), st.sampled_from([0.5, 0.8, 0.9, 0.95]))
def test_a_quantile_is_never_below_the_exact_one(values: list[int], share: float) -> None:
    """Law: of values of one instant, it is at least the exact quantile and at most the largest value, each rounded up by a tenth."""
    sketch = QuantileSketch(now=0.0)
    for value in values:
        sketch.record(value, now=0.0)
    exact = sorted(values)[max(0, ceil(share * len(values)) - 1 - _faded(len(values)))]
    quantile = sketch.quantile(share)
    assert quantile is not None
    assert exact <= quantile <= max(1, max(values) * 1.1)


def _faded(count: int) -> int:
    """How many ranks the fading of the oldest values may cost: the weight that all of them have lost."""
    return ceil(sum(1 - 2 ** (-age / 512) for age in range(count)))


@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 100_000), st.integers(0, 4000), st.booleans()), max_size=150))
def test_same_observations_same_answers_at_any_time(steps: list[tuple[int, int, int, bool]]) -> None:
    """Law: a forecast is a function of what was observed and of the time between; a shifted clock changes nothing."""
    answers = []
    for epoch in (0.0, 2.0**20):
        forecast, now = LearnedForecast(0.8, 500), epoch
        said = []
        for pause, prompt, length, cut in steps:
            now += pause / 4
            forecast.observe(TenantId("t"), "r", MODEL, prompt_tokens=prompt, completion_tokens=length, cut=cut, now=now)
            said.append(forecast.expect(TenantId("t"), "r", MODEL, prompt_tokens=prompt, cap=None, now=now))
        answers.append(said)
    assert answers[0] == answers[1]


@given(st.lists(st.integers(0, 4000), max_size=100), st.integers(1, 5000))
def test_never_more_than_the_cap_once_something_is_known(lengths: list[int], cap: int) -> None:
    """Law: what is held is between 1 and the cap, or a fifth above it while nothing is known."""
    forecast = LearnedForecast(0.9, 1024)
    for length in lengths:
        forecast.observe(TenantId("t"), "r", MODEL, prompt_tokens=100, completion_tokens=length, cut=False, now=0.0)
    held = forecast.expect(TenantId("t"), "r", MODEL, prompt_tokens=100, cap=cap, now=0.0)
    assert 1 <= held <= (cap if len(lengths) >= 32 else ceil(cap * 1.2))
